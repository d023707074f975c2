package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/dev/demo"
)

// demoPatience bounds what a test of the demo waits for.
const demoPatience = 3 * time.Minute

// demoProcess is `belfry demo --json` in a process of its own.
type demoProcess struct {
	cmd    *exec.Cmd
	stdout bytes.Buffer
	stderr dbtest.Buffer
}

func startDemo(t *testing.T, db *dbtest.DB, more ...string) *demoProcess {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), demoPatience)
	t.Cleanup(cancel)
	p := new(demoProcess)
	p.cmd = exec.CommandContext(ctx, binary(t), append([]string{"demo", "--json", "--channels", "10000", "--database", db.Name}, more...)...)
	p.cmd.Env = append(p.cmd.Environ(), mainVariable+"=1", "BELFRY_DATABASE_URL="+db.DSN)
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	require.NoError(t, p.cmd.Start())
	return p
}

// end waits for the process and returns its exit code.
func (p *demoProcess) end(t *testing.T) code {
	t.Helper()
	_ = p.cmd.Wait() // the exit code says it
	require.True(t, p.cmd.ProcessState.Exited(), "%s\n%s", p.cmd.ProcessState, p.stderr.String())
	return code(p.cmd.ProcessState.ExitCode())
}

func (p *demoProcess) report(t *testing.T) demo.Report {
	t.Helper()
	var report demo.Report
	d := json.NewDecoder(&p.stdout)
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(&report), p.stderr.String())
	require.False(t, d.More(), "one document")
	return report
}

// until waits until an SQL condition is true.
func (p *demoProcess) until(t *testing.T, db *dbtest.DB, condition string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), demoPatience)
	defer cancel()
	again := time.NewTicker(2 * time.Millisecond)
	defer again.Stop()
	for {
		var done *bool // NULL and errors: not yet, the schema may not be there
		if err := db.Pool.QueryRow(ctx, condition).Scan(&done); err == nil && done != nil && *done {
			return
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			require.NoError(t, ctx.Err(), "waiting for %s\n%s", condition, p.stderr.String())
		}
	}
}

const (
	demoRunnerWorks = `SELECT EXISTS (SELECT FROM belfry.jobs WHERE status = 'RUNNING' AND chunks > 0)`
	noDemoSession   = `SELECT NOT EXISTS (SELECT FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name LIKE 'belfry%')`
)

// freeAddress is one of this machine that nobody listens at, below the ports that outgoing
// connections are given.
func freeAddress(t *testing.T) string {
	t.Helper()
	for {
		address := fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(20_000))
		if l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address); err == nil {
			require.NoError(t, l.Close())
			return address
		}
	}
}

// With --serve the console stays open on a database in which something happens, until Ctrl-C.
func TestDemoProcess_ProvesReportsJSONAndServes(t *testing.T) {
	t.Parallel()
	db := dbtest.NewEmpty(t)
	address := freeAddress(t)
	p := startDemo(t, db, "--serve="+address)
	p.until(t, db, `SELECT bool_or(id > 6 AND status = 'RUNNING') FROM belfry.jobs`)
	var within, agree bool
	require.NoError(t, db.Pool.QueryRow(t.Context(), `SELECT bool_and(created_at > now() - interval '1 hour'), max(delivered_at) < now() - interval '1 minute'
		FROM belfry.jobs WHERE id <= 6 AND status = 'PROCESSED' HAVING count(*) = 6`).Scan(&within, &agree))
	require.True(t, within && agree, "six jobs fill the last hour")
	require.NoError(t, db.Pool.QueryRow(t.Context(), `SELECT NOT EXISTS (
		SELECT FROM belfry.jobs j JOIN belfry.job_progress p ON p.job_id = j.id
		  LEFT JOIN LATERAL (SELECT sum(s.rows_written) AS rows_written, sum(s.sent) AS sent FROM belfry.samples s WHERE s.kind = 'job' AND s.name = j.id::text) s ON true
		 WHERE j.id <= 6 AND (s.rows_written, s.sent) IS DISTINCT FROM (j.rows_written::numeric, p.sent::numeric))`).Scan(&agree))
	require.True(t, agree, "samples and counts of the jobs")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/sign-in", nil)
	require.NoError(t, err)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusOK, res.StatusCode)
	r := command(t, []string{"BELFRY_DATABASE_URL=" + db.DSN}, "demo", "--serve="+address)
	require.Equal(t, codeUnavailable, r.code)
	require.Contains(t, r.stderr, "choose another address with --serve=HOST:PORT")
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGINT))
	require.Equal(t, codeDone, p.end(t), p.stderr.String())
	report := p.report(t)
	require.True(t, report.OK)
	require.Len(t, report.Jobs, 1)
	require.Zero(t, report.Jobs[0].Missing)
	require.Zero(t, report.Jobs[0].Duplicates)
	require.Contains(t, p.stderr.String(), "kill -9", "the narration goes to standard error")
	require.Contains(t, p.stderr.String(), "http://"+address+"/sign-in#link=")
	p.until(t, db, noDemoSession)
}

// A channel without a row, made behind the demo's back, is missed: exit code 1.
func TestDemoProcess_AMissingRowIsExitCode1(t *testing.T) {
	t.Parallel()
	db := dbtest.NewEmpty(t)
	p := startDemo(t, db)
	p.until(t, db, `SELECT status = 'PROCESSED' FROM belfry.jobs`)
	_, err := db.Pool.Exec(t.Context(), `UPDATE belfry.channels SET active = true WHERE id = (SELECT min(id) FROM belfry.channels WHERE NOT active)`)
	require.NoError(t, err)
	require.Equal(t, codeFailure, p.end(t))
	report := p.report(t)
	require.False(t, report.OK)
	require.Len(t, report.Problems, 1)
	require.Equal(t, int64(1), report.Jobs[0].Missing)
	require.Contains(t, p.stderr.String(), "a guarantee was violated")
}

func TestDemoProcess_RefusesADatabaseInUse(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t) // has a belfry schema that no demo made
	p := startDemo(t, db)
	require.Equal(t, codeFailure, p.end(t))
	require.False(t, p.report(t).OK)
	require.Contains(t, p.stderr.String(), "the demo does not touch other schemas and jobs")
}

func TestDemoProcess_InterruptedLeavesNothingRunning(t *testing.T) {
	t.Parallel()
	db := dbtest.NewEmpty(t)
	p := startDemo(t, db)
	p.until(t, db, demoRunnerWorks)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGINT))
	require.Equal(t, codeFailure, p.end(t))
	require.False(t, p.report(t).OK, "what was seen is reported all the same")
	require.Contains(t, p.stderr.String(), "interrupted by a signal")
	p.until(t, db, noDemoSession)
}

func TestDemo_BadFlags(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ flag, value, want string }{
		{"--channels", "9999", "whole numbers from 10000 to 10000000"},
		{"--channels", "many", "whole numbers from 10000 to 10000000"},
		{"--database", "Belfry", "up to 63 of a-z, 0-9 and _"},
		{"--serve", "somewhere", "allowed values: HOST:PORT of this machine, such as 127.0.0.1:8470"},
	} {
		r := command(t, nil, "demo", c.flag+"="+c.value)
		require.Equal(t, codeUsage, r.code)
		require.Contains(t, r.stderr, c.flag)
		require.Contains(t, r.stderr, c.want)
	}
}
