package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
)

// slow is a configuration under which a walk of many channels takes very long.
const slow = `
runner:
  poll_interval: 50ms
  chunk: {initial_rows: 10, min_rows: 1, max_rows: 10}
  load: {max_rows_per_second: 50}
log: {format: json}
`

// fast lifts the limit, and changes something of each kind.
const fast = `
runner:
  poll_interval: 50ms
  lanes: [default]
  chunk: {initial_rows: 10, min_rows: 1, max_rows: 50000}
database: {max_connections: 7}
retention: {events: 1m, interval: 1s}
schedules:
  - {name: tick, every: 1s, template: {type: push, category: popular_content, title: Tick, audience: {kind: everyone}}}
log: {format: json, level: debug}
`

// reloaded sends SIGHUP and waits for the text.
func (p *process) reloaded(t *testing.T, path, text, says string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	require.NoError(t, p.Process.Signal(syscall.SIGHUP))
	p.says(t, says)
}

// logged returns the fields of each log line with a message.
func (p *process) logged(t *testing.T, message string) (lines []map[string]any) {
	t.Helper()
	for line := range strings.Lines(p.stderr.String()) {
		var fields map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &fields), line)
		if fields["message"] == message {
			lines = append(lines, fields)
		}
	}
	return lines
}

// A job that runs gets its new load from the file, without a restart; a bad file
// changes nothing.
func TestProcess_HangupReloadsTheConfiguration(t *testing.T) {
	t.Parallel()
	db := bulk(t, 5_000)
	path := filepath.Join(t.TempDir(), "belfry.yaml")
	require.NoError(t, os.WriteFile(path, []byte(slow), 0o600))
	p := start(t, []string{"BELFRY_DATABASE_URL=" + db.DSN, "BELFRY_CONFIG=" + path, regardless}, "daemon")
	p.says(t, "daemon started")
	waitUntil(t, db.Pool, "SELECT chunks >= 2 FROM belfry.jobs WHERE id = 1")

	const refused = "configuration refused; nothing changed"
	p.reloaded(t, path, fast+"load: 5\nretenton: {}\n", refused)
	p.says(t, `retenton: unknown key; did you mean retention?`)
	require.Len(t, p.logged(t, refused), 2, "every problem is logged")
	require.Equal(t, job.Running, only(t, db).Status)

	p.reloaded(t, path, slow, "configuration reloaded")
	require.Equal(t, []any{}, p.logged(t, "configuration reloaded")[0]["keys"])

	_, err := db.Pool.Exec(t.Context(), `INSERT INTO belfry.events (at, subject, name, kind, actor) VALUES (now() - interval '1 hour', 'lane', 'old', 'paused', 'ann')`)
	require.NoError(t, err)
	const waits = "changed, and takes effect at the next start"
	p.reloaded(t, path, fast, waits)
	require.Equal(t, []any{"database.max_connections", "runner.lanes"}, p.logged(t, waits)[0]["keys"])
	changed := p.logged(t, "configuration reloaded")
	require.Equal(t, []any{"runner.chunk.max_rows", "runner.load.max_rows_per_second", "retention.events", "retention.interval", "schedules", "log.level"}, changed[1]["keys"])

	// At 50 rows a second this would take longer than the test waits.
	waitUntil(t, db.Pool, "SELECT status = 'PROCESSED' FROM belfry.jobs WHERE id = 1")
	p.says(t, `"level":"debug"`)
	waitUntil(t, db.Pool, "SELECT count(*) > 0 FROM belfry.jobs WHERE requested_by = 'schedule tick' AND status = 'PROCESSED'")
	waitUntil(t, db.Pool, "SELECT count(*) = 0 FROM belfry.events WHERE name = 'old'")
	p.terminate(t)
	require.Equal(t, codeDone, p.exit(t), p.stderr.String())
}

// The abort cache takes an abort that the database cannot take, the command says so,
// and the next run stops because of it.
func TestAbort_IsFlaggedWhenTheDatabaseIsDown(t *testing.T) {
	t.Parallel()
	redis := dbtest.StartRedis(t)
	db := bulk(t, 1_000)
	cache := "BELFRY_ABORT_CACHE=" + redis.URL
	const patient = "BELFRY_ABORT_TIMEOUT=10s" // the cache is there, however busy the machine is
	down := []string{"BELFRY_DATABASE_URL=postgres://ann:secret@127.0.0.1:1/app", cache, patient, "USER=ann"}

	r := command(t, down, "abort", "1", "--reason", "wrong link")
	require.Equal(t, codeUnavailable, r.code)
	require.Empty(t, r.stdout)
	require.Contains(t, r.stderr, "belfry: job 1 is flagged in the abort cache and stops before its next chunk; the database has not recorded the abort: ")
	require.Contains(t, r.stderr, "repeat `belfry abort 1` when the database is back")
	require.NotContains(t, r.stderr, "secret")

	up := []string{"BELFRY_DATABASE_URL=" + db.DSN, cache, patient, "USER=ann"}
	r = command(t, up, "run")
	require.Equal(t, codeAborted, r.code, r.stderr)
	require.Zero(t, count(t, db, "belfry.notifications"))
	r = command(t, up, "jobs", "events", "1")
	require.Contains(t, r.stdout, "wrong link")

	// Resuming removes the flag first.
	r = command(t, up, "resume", "1")
	require.Equal(t, codeDone, r.code, r.stderr)
	r = command(t, up, "run")
	require.Equal(t, codeDone, r.code, r.stderr)
	require.Equal(t, int64(1_000), count(t, db, "belfry.notifications"))

	// With neither, an abort is not an abort.
	require.NoError(t, redis.Stop())
	r = command(t, append(down, "BELFRY_ABORT_TIMEOUT=50ms"), "abort", "1")
	require.Equal(t, codeUnavailable, r.code)
	require.NotContains(t, r.stderr, "is flagged")
	require.NotContains(t, r.stderr, "secret")
}
