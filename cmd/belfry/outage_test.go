package main

import (
	"context"
	"encoding/json"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/pgserver"
	"github.com/belfryhq/belfry/job"
)

// notices are the messages of a JSON log at a level, with their times.
func notices(t *testing.T, log, level string) (messages []string, at []time.Time) {
	t.Helper()
	for line := range strings.Lines(log) {
		var entry struct {
			Level   string    `json:"level"`
			Message string    `json:"message"`
			Time    time.Time `json:"time"`
		}
		require.NoError(t, json.Unmarshal([]byte(line), &entry), line)
		if entry.Level == level {
			messages, at = append(messages, entry.Message), append(at, entry.Time)
		}
	}
	return messages, at
}

// While PostgreSQL is away a daemon and the relay in it, whose loops all go on trying, say
// so with one voice: once when it goes, hardly more than once a minute, and once when it is
// back. Then they go on.
func TestProcess_DaemonSaysOnceThatTheDatabaseIsAwayAndOnceThatItIsBack(t *testing.T) {
	t.Parallel()
	server := dbtest.NewServer(t, true)
	d := deliverable(t, dbtest.NewOn(t, server), 50)
	p := start(t, d.environ("BELFRY_LOG_LEVEL=debug", "BELFRY_DELIVERY_LEASE=2m", "BELFRY_DELIVERY_STATEMENT_TIMEOUT=1s", "BELFRY_RUNNER_POLL_INTERVAL=50ms", "BELFRY_RUNNER_STATEMENT_TIMEOUT=5s"), "daemon")
	waitUntil(t, d.db.Pool, "SELECT count(*) = 0 FROM "+left)
	const tried = "the database does not answer; trying again"
	for _, mode := range []syscall.Signal{pgserver.Fast, pgserver.Immediate} {
		begin := len(p.stderr.String())
		log := func() string { return p.stderr.String()[begin:] }
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		require.NoError(t, server.Stop(ctx, mode))
		require.Eventually(t, func() bool { return strings.Count(log(), tried) >= 30 }, patience, 10*time.Millisecond, "every loop goes on trying")
		require.NoError(t, server.Start(ctx))
		cancel()
		d.db.Pool.Reset()
		_, err := job.NewStore(d.db.Pool).Enqueue(t.Context(), job.Spec{Type: "push", Category: "operator_notice", Title: "Hello again", Route: []string{"push", "sms"}})
		require.NoError(t, err)
		waitUntil(t, d.db.Pool, "SELECT count(*) = 0 FROM belfry.jobs WHERE status <> 'PROCESSED'")
		waitUntil(t, d.db.Pool, "SELECT count(*) = 0 FROM "+left)
		require.Eventually(t, func() bool { return strings.Contains(log(), "the database answers again") }, patience, 10*time.Millisecond)
	}
	p.terminate(t)
	require.Equal(t, codeDone, p.exit(t), p.stderr.String())
	warned, at := notices(t, p.stderr.String(), "warn")
	require.NotEmpty(t, warned)
	for i, message := range warned {
		require.Equal(t, tried, message)
		if i > 0 {
			require.GreaterOrEqual(t, at[i].Sub(at[i-1]), 59*time.Second)
		}
	}
	infos, _ := notices(t, p.stderr.String(), "info")
	require.Contains(t, infos, "the database answers again")
	require.LessOrEqual(t, strings.Count(strings.Join(infos, "\n"), "the database answers again"), len(warned))
}
