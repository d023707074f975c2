package main

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/text"
)

// Two processes under one name, as of a copied unit file: one of them runs, the other names
// it and ends with 75, and doctor tells of both. On a machine that is too busy to let the
// first beat in time, it is the first that ends.
func TestLong_NamesTwoProcessesUnderOneName(t *testing.T) {
	t.Parallel()
	d := deliverable(t, newKept(t), 1)
	for kind, c := range map[string]struct {
		args []string
		key  string
	}{
		"runner": {[]string{"daemon", "--runner-name", "one", "--no-deliver"}, "runner.name"},
		"relay":  {[]string{"relay", "--relay-name", "one"}, "delivery.name"},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			first := start(t, d.environ(), c.args...)
			waitUntil(t, d.db.Pool, "SELECT count(*) = 1 FROM belfry.names WHERE name = 'one' AND kind = '"+kind+"'")
			second := start(t, d.environ(), c.args...)
			refused, lives := second, first
			select {
			case <-second.ended:
			case <-first.ended:
				refused, lives = first, second
			}
			require.Equal(t, codeHeld, refused.exit(t), refused.stderr.String())
			require.Regexp(t, `belfry: `+c.key+` "one" is in use by process `+text.Int(int64(lives.Process.Pid))+` on .+, which has run since 20.+: give each process its own name, or none, or stop that process`, refused.stderr.String())
			r := command(t, d.environ(), "doctor")
			require.Regexp(t, `(?m)^warning  names          `+c.key+` "one" belongs to process .+:`+text.Int(int64(lives.Process.Pid))+`, and process .+:`+text.Int(int64(refused.Process.Pid))+`, which is configured with the same name`, r.stdout)
			lives.terminate(t)
			require.Equal(t, codeDone, lives.exit(t))
			require.Zero(t, count(t, d.db, "belfry.names WHERE kind = '"+kind+"'"))
		})
	}
}

// kill -9 and a restart at once is no second process: the new one waits until the dead one
// has been silent, and works. Its end gives the name back, so that the next does not wait.
func TestProcess_RestartsUnderItsNameRightAfterACrash(t *testing.T) {
	t.Parallel()
	d := deliverable(t, dbtest.New(t), 10)
	environ := d.environ("BELFRY_RUNNER_NAME=one", "BELFRY_DELIVERY_NAME=one", "BELFRY_LOG_LEVEL=info")
	victim := start(t, environ, "daemon")
	waitUntil(t, d.db.Pool, "SELECT count(*) = 2 FROM belfry.names")
	require.NoError(t, victim.Process.Signal(syscall.SIGKILL))
	<-victim.ended
	d.exec(`UPDATE belfry.names SET beat_at = clock_timestamp()`) // in the very moment of its last beat
	heir := start(t, environ, "daemon")
	heir.says(t, "daemon started")
	d.exec(`SELECT belfry.send(1, 'activity', 'after the crash')`)
	waitUntil(t, d.db.Pool, "SELECT count(*) = 11 FROM belfry.messages WHERE status = 'SENT'")
	heir.terminate(t)
	require.Equal(t, codeDone, heir.exit(t), heir.stderr.String())
	require.Zero(t, count(t, d.db, "belfry.names"))
	r := command(t, environ, "run", "--quiet")
	require.Equal(t, codeDone, r.code, r.stderr)
	require.Regexp(t, `(?m)^ok       names          no name is configured twice$`, command(t, d.environ(), "doctor").stdout)
}
