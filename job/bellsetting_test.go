package job_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/pgserver"
)

// Once a transaction that enqueued could not be prepared: it had notified. With the bell
// off it can, and what it enqueued is there when it is committed, and not before.
func TestFault_BellOffAllowsTwoPhaseCommit(t *testing.T) {
	t.Parallel()
	server := dbtest.NewServer(t, false)
	db := dbtest.NewOn(t, server)
	ctx := t.Context()
	_, err := db.Pool.Exec(ctx, `ALTER SYSTEM SET max_prepared_transactions = 5`)
	require.NoError(t, err)
	db.Pool.Reset()
	require.NoError(t, server.Stop(ctx, pgserver.Fast))
	require.NoError(t, server.Start(ctx))

	count := func() (n int) {
		require.NoError(t, db.Pool.QueryRow(ctx, `SELECT (SELECT count(*) FROM belfry.jobs) + (SELECT count(*) FROM belfry.messages)`).Scan(&n))
		return n
	}
	prepare := func(name, bell string) error {
		conn, err := db.Pool.Acquire(ctx)
		require.NoError(t, err)
		defer conn.Release()
		for _, sql := range []string{
			`BEGIN`, `SET LOCAL belfry.bell = ` + bell,
			`INSERT INTO belfry.jobs (type, category, title) VALUES ('inbox', 'operator_notice', 'x')`,
			`INSERT INTO belfry.activities (channel_id, title) VALUES (1, 'x')`,
		} {
			_, err := conn.Exec(ctx, sql)
			require.NoError(t, err, sql)
		}
		_, err = conn.Exec(ctx, `PREPARE TRANSACTION '`+name+`'`)
		return err
	}
	require.ErrorContains(t, prepare("loud", "on"), "cannot PREPARE a transaction that has executed LISTEN, UNLISTEN, or NOTIFY")
	require.Zero(t, count())
	require.NoError(t, prepare("one", "off"))
	require.NoError(t, prepare("two", "off"))
	require.Zero(t, count())
	var locks int // of what has others not wake, for as long as it is prepared
	require.NoError(t, db.Pool.QueryRow(ctx, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'`).Scan(&locks))
	require.Zero(t, locks)
	_, err = db.Pool.Exec(ctx, `COMMIT PREPARED 'one'`)
	require.NoError(t, err)
	_, err = db.Pool.Exec(ctx, `ROLLBACK PREPARED 'two'`)
	require.NoError(t, err)
	require.Equal(t, 2, count())
}

// Any login can fill the notification queue of the server, and then PostgreSQL rejects the COMMIT of each
// transaction that notifies. A halt could not be committed, and neither could a job.
func TestFault_FullNotificationQueueStopsNoTransaction(t *testing.T) {
	t.Parallel()
	server := dbtest.NewServer(t, false)
	db := dbtest.NewOn(t, server)
	ctx := t.Context()
	_, err := db.Pool.Exec(ctx, `ALTER SYSTEM SET max_notify_queue_pages = 64`)
	if refused := new(pgconn.PgError); errors.As(err, &refused) && refused.Code == "42704" {
		var version int
		require.NoError(t, db.Pool.QueryRow(ctx, `SELECT current_setting('server_version_num')::int / 10000`).Scan(&version))
		require.Less(t, version, 17)
		return // the queue has 8 GB; .ci/fault-sample names this test for a newer version
	}
	require.NoError(t, err)
	db.Pool.Reset()
	require.NoError(t, server.Stop(ctx, pgserver.Fast))
	require.NoError(t, server.Start(ctx))
	_, err = db.Pool.Exec(ctx, `INSERT INTO belfry.jobs (type, category, title) VALUES ('inbox', 'operator_notice', 'x'), ('inbox', 'operator_notice', 'y')`)
	require.NoError(t, err)

	weak := db.Role(t)
	idle, err := weak.Pool.Acquire(ctx)
	require.NoError(t, err)
	defer idle.Release()
	for _, sql := range []string{`LISTEN junk`, `BEGIN`, `SELECT 1`} {
		_, err := idle.Exec(ctx, sql)
		require.NoError(t, err)
	}
	for err == nil {
		_, err = weak.Pool.Exec(ctx, `SELECT pg_notify('junk', repeat('x', 7900))`)
	}
	require.ErrorContains(t, err, "SQLSTATE 54000")
	_, err = db.Pool.Exec(ctx, `NOTIFY junk`)
	require.ErrorContains(t, err, "SQLSTATE 54000")

	for _, sql := range []string{
		`SELECT belfry.halt()`, `SELECT belfry.unhalt()`, `SELECT belfry.abort(1)`, `SELECT belfry.resume(1)`,
		`SELECT belfry.pause_lane('default')`, `SELECT belfry.resume_lane('default')`,
		`INSERT INTO belfry.senders (name, paused_at, paused_by) VALUES ('fcm', now(), 'kim')`, `UPDATE belfry.senders SET paused_at = NULL, paused_by = NULL`,
		`SELECT belfry.set(2, '{"title": "z"}')`,
		`SELECT belfry.enqueue('inbox', 'operator_notice', 'x')`, `SELECT belfry.send(1, 'activity', 'x')`,
		`INSERT INTO belfry.schedules (name, cron, template) VALUES ('daily', '0 9 * * *', '{"type": "inbox", "category": "operator_notice", "title": "x"}')`,
		`SELECT belfry.adopt()`,
	} {
		_, err := db.Pool.Exec(ctx, sql)
		require.NoError(t, err, sql)
	}

	_, err = idle.Exec(ctx, `ROLLBACK`)
	require.NoError(t, err)
	var rings bool
	require.Eventually(t, func() bool {
		require.NoError(t, db.Pool.QueryRow(ctx, `SELECT belfry.rings()`).Scan(&rings))
		return rings
	}, time.Minute, 10*time.Millisecond, "notifications resume when the queue is read")
}

// belfry.bell may be set for a session, a transaction, a role or a database.
func TestBell_IsASetting(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	config, err := pgx.ParseConfig(b.db.DSN)
	require.NoError(t, err)
	heard := 0
	config.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) { heard++ }
	listener, err := pgx.ConnectConfig(t.Context(), config)
	require.NoError(t, err)
	defer func() { require.NoError(t, listener.Close(context.WithoutCancel(t.Context()))) }()
	_, err = listener.Exec(t.Context(), `LISTEN belfry_jobs`)
	require.NoError(t, err)
	rings := func() int {
		heard = 0
		_, err := listener.Exec(t.Context(), `SELECT 1`) // its answer comes after what was notified before
		require.NoError(t, err)
		return heard
	}
	insert := `INSERT INTO belfry.jobs (type, category, title) VALUES ('inbox', 'operator_notice', 'x')`
	b.exec(t, insert)
	require.Equal(t, 1, rings())
	for _, sql := range []string{`SET LOCAL belfry.bell = off; `, `SET LOCAL belfry.bell = 'off'; `} {
		b.exec(t, sql+insert)
		require.Zero(t, rings(), sql)
	}
	b.exec(t, `SET LOCAL belfry.bell = on; `+insert)
	require.Equal(t, 1, rings())

	quiet := b.db.Role(t, `GRANT USAGE ON SCHEMA belfry TO :role`, `GRANT INSERT ON belfry.jobs TO :role`, `ALTER ROLE :role SET belfry.bell = off`)
	_, err = quiet.Pool.Exec(t.Context(), insert)
	require.NoError(t, err)
	require.Zero(t, rings())

	_, err = b.db.Pool.Exec(t.Context(), `SET LOCAL belfry.bell = maybe; `+insert)
	require.ErrorContains(t, err, `belfry.bell: 'maybe' is not allowed; allowed values: on, off`)

	// What was enqueued in silence is found all the same.
	runner := b.runner(t, "r")
	b.runDue(t, runner)
	require.EqualValues(t, 0, one[int64](t, b, `SELECT count(*) FROM belfry.jobs WHERE status <> 'PROCESSED'`))
}
