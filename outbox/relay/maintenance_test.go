package relay_test

import (
	"bytes"
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/dev/outboxtest"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/relay"
	"github.com/belfryhq/belfry/outbox/sender"
)

// A dozen leases that the database will not let go of, and that expired first, hold up
// none of the others.
func TestLong_RelayLeaseThatCannotBeRecoveredBlocksTheOthers(t *testing.T) {
	t.Parallel()
	b := setup(t, 14)
	id := b.job(t, "default", 1, 14)
	b.exec(t, `UPDATE belfry.message_rows SET lease_id = 0, next_attempt_at = now() - channel_id * interval '1 second'`)
	dying := outbox.NewLedger(b.DB.Pool, "dying", time.Hour)
	for range 14 { // those of high channels first
		claimed, _, err := dying.ClaimJob(t.Context(), id, outbox.Position{}, 1, outbox.AnyTry)
		require.NoError(t, err)
		require.Len(t, claimed, 1)
	}
	b.exec(t, `UPDATE belfry.leases l SET expires_at = now() - (100 - m.channel_id) * interval '1 second' FROM belfry.messages m WHERE m.lease_id = l.id`)
	b.exec(t, `CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '22000'; END$$`)
	b.exec(t, `CREATE TRIGGER refuse BEFORE UPDATE ON belfry.message_rows FOR EACH ROW WHEN (OLD.channel_id <= 12 AND NEW.status = 'PENDING') EXECUTE FUNCTION public.refuse()`)
	run := b.start(t, config("r"), []relay.Sender{push(&script{})})
	b.eventually(t, `SELECT count(*) = 2 FROM belfry.messages WHERE channel_id > 12 AND status = 'SENT'`)
	b.exec(t, `DROP TRIGGER refuse ON belfry.message_rows`)
	run.end(t)
	b.drain(t, config("r2"), push(&script{}))
}

// awaiting makes messages that one sender has accepted so long ago and whose receipts are
// due.
func (b *bundle) awaiting(t *testing.T, n int, sender, age string, route ...string) {
	t.Helper()
	id := b.job(t, "default", 1, n, route...)
	b.exec(t, `UPDATE belfry.message_rows SET status = 'PROCESSING', lease_id = 1, attempts = 1 WHERE job_id = $1`, id)
	b.exec(t, `UPDATE belfry.message_rows SET lease_id = NULL, receipt = 'r-' || channel_id, next_attempt_at = now() WHERE job_id = $1`, id)
	b.exec(t, `INSERT INTO belfry.attempts (job_id, channel_id, step, attempt, medium, sender, outcome, at)
		SELECT job_id, channel_id, 0, 1, 'push', $2, 'accepted', now() - $3::interval FROM belfry.messages WHERE job_id = $1`, id, sender, age)
}

// I13: while outcomes cannot be recorded, no more receipts are asked for than there is
// room for.
func TestRelay_ReceiptsFillTheMemory(t *testing.T) {
	t.Parallel()
	b := setup(t, 300)
	b.awaiting(t, 300, "fcm", "1 second")
	var asked, rounds atomic.Int64
	opened := make(chan struct{})
	provider := &patient{results: func(string) sender.Result {
		asked.Add(1)
		return sender.Result{Class: sender.Accepted}
	}}
	c := config("r")
	c.Batch, c.MaxInFlight = 10, 20
	run := b.start(t, c, []relay.Sender{{SenderConfig: settings("fcm", "push"), Client: provider}}, relay.WithFailpoint(func(ctx context.Context, point string) error {
		switch point {
		case relay.PointMaintenance:
			rounds.Add(1)
		case relay.PointSettle:
			select {
			case <-opened:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	}))
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); rounds.Load() < 12 || asked.Load() == 0; <-tick.C {
		require.Less(t, time.Since(began), patience)
	}
	require.LessOrEqual(t, asked.Load(), int64(3*20), "in the batch, and with each of two that record it")
	close(opened)
	b.eventually(t, `SELECT count(*) = 300 FROM belfry.messages WHERE status = 'SENT'`)
	run.end(t)
}

// A receipt goes to the relay that has the sender, though one that looks in the same rhythm
// was there before.
func TestRelay_ReceiptIsTakenByARelayThatCannotAsk(t *testing.T) {
	t.Parallel()
	b := setup(t, 20)
	b.awaiting(t, 20, "kakao", "1 second")
	c := config("a")
	c.Receipts = relay.ReceiptConfig{Interval: time.Hour, Limit: 2 * time.Hour}
	b.drain(t, c, push(&script{})) // looks once
	require.True(t, one[bool](t, b, `SELECT bool_and(next_attempt_at <= now()) FROM belfry.messages`))
	c.Name = "b"
	b.drain(t, c, relay.Sender{SenderConfig: settings("kakao", "push"), Client: &patient{results: func(string) sender.Result {
		return sender.Result{Class: sender.Accepted}
	}}})
	require.Equal(t, map[string]int{"SENT": 20}, b.statuses(t))
}

// A relay without the sender leaves a message that awaits its receipt to those that can
// ask, until they have not come to it twice, and for two more looks than they have.
func TestRelay_ForeignReceiptIsCalledUnconfirmed(t *testing.T) {
	t.Parallel()
	b := setup(t, 3)
	b.awaiting(t, 3, "kakao", "5 seconds")
	c := config("r")
	c.Receipts = relay.ReceiptConfig{Interval: time.Hour, Limit: time.Second}
	b.exec(t, `UPDATE belfry.message_rows SET next_attempt_at = now() - interval '3 hours'`)
	run := b.start(t, c, []relay.Sender{push(&script{})})
	b.eventually(t, `SELECT bool_and(next_attempt_at > now() + interval '30 minutes') FROM belfry.messages`)
	run.end(t)
	require.Equal(t, map[string]int{"PROCESSING": 3}, b.statuses(t))
	b.exec(t, `UPDATE belfry.attempts SET at = now() - interval '3 hours'`)
	b.exec(t, `UPDATE belfry.message_rows SET next_attempt_at = now() - interval '3 hours'`)
	c.Name = "r2"
	b.start(t, c, []relay.Sender{push(&script{})})
	b.eventually(t, `SELECT count(*) = 3 FROM belfry.messages WHERE status = 'SENT'`)
}

// Where transactions are serializable by default, those that must be tried again are no
// cause for a warning.
func TestRelay_SerializationFailuresFillTheLog(t *testing.T) {
	t.Parallel()
	for code, quiet := range map[string]bool{"40001": true, "57P01": false} {
		b := setup(t, 1)
		var out bytes.Buffer
		var hits atomic.Int64
		log := zerolog.New(zerolog.SyncWriter(&out)).Level(zerolog.WarnLevel)
		run := b.start(t, config("r"), nil, relay.WithLogger(log), relay.WithFailpoint(func(_ context.Context, point string) error {
			if point != relay.PointClaim && point != relay.PointMaintenance {
				return nil
			}
			hits.Add(1)
			return &pgconn.PgError{Code: code}
		}))
		require.Eventually(t, func() bool { return hits.Load() > 8 }, patience, time.Millisecond)
		run.end(t)
		require.Equal(t, quiet, out.Len() == 0, out.String())
	}
}

// A statement that takes too long is not a database that cannot be reached.
func TestLong_RelaySlowStatementIsCalledUnreachable(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	c, to := config("r"), push(&script{})
	var log dbtest.Buffer
	run := b.start(t, c, []relay.Sender{to}, relay.WithLogger(zerolog.New(&log)))
	b.eventually(t, `SELECT EXISTS (SELECT FROM belfry.relays)`)
	c.StatementTimeout = 100 * time.Millisecond // once it has started, however long that took
	require.NoError(t, run.Reload(c, []relay.SenderConfig{to.SenderConfig}))
	tx, err := b.DB.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(context.WithoutCancel(t.Context()))) }()
	_, err = tx.Exec(t.Context(), `LOCK TABLE belfry.message_rows IN ACCESS EXCLUSIVE MODE`)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "claim messages of activities") }, patience, time.Millisecond)
	// The second where the statement was still to be prepared on that connection: what is
	// tried again then is logged at debug.
	require.Regexp(t, `statement took longer than delivery\.statement_timeout \(|the database did not answer in time`, log.String())
	require.NotContains(t, log.String(), "unreachable")
}

// A database that is slow when a relay starts, as behind a pooler that is full, is waited
// for; one that refuses ends the relay.
func TestRelay_WaitsForASlowDatabaseAtItsStart(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	b.job(t, "default", 1, 1)
	tx, err := b.DB.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), `LOCK TABLE belfry.senders IN ACCESS EXCLUSIVE MODE`)
	require.NoError(t, err)
	c := config("r")
	c.StatementTimeout = time.Second
	var log dbtest.Buffer
	b.start(t, c, []relay.Sender{push(&script{})}, relay.WithLogger(zerolog.New(&log)))
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "the relay has not started yet") }, patience, time.Millisecond)
	require.NotContains(t, log.String(), "relay started")
	require.NoError(t, tx.Rollback(t.Context()))
	b.eventually(t, `SELECT status = 'SENT' FROM belfry.messages`)

	b.exec(t, `DROP TABLE belfry.senders CASCADE`)
	r := b.relay(t, config("s"), []relay.Sender{push(&script{})})
	require.ErrorContains(t, r.Run(t.Context()), "start relay s: ")
}

// A drain, as of a command that cron starts, does not wait without end.
func TestRelay_DrainGivesUpOnASlowDatabase(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	b.job(t, "default", 1, 1)
	tx, err := b.DB.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), `LOCK TABLE belfry.senders IN ACCESS EXCLUSIVE MODE`)
	require.NoError(t, err)
	c := config("r")
	c.Lease, c.StatementTimeout = time.Second, 100*time.Millisecond
	r := b.relay(t, c, []relay.Sender{push(&script{})})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	stats, err := r.Drain(ctx)
	require.ErrorIs(t, err, relay.ErrSlowStart)
	require.NoError(t, ctx.Err())
	require.Zero(t, stats.Sent)
	require.NoError(t, tx.Rollback(t.Context()))
	b.eventually(t, `SELECT status = 'PENDING' FROM belfry.messages`)
}

// A role whose transactions are read-only by default delivers all the same, on the pool of
// a program that changes nothing about it.
func TestRelay_DeliversWhereTransactionsAreReadOnlyByDefault(t *testing.T) {
	t.Parallel()
	b := setup(t, 20)
	pool, err := pgxpool.New(t.Context(), b.DB.DSN+"&default_transaction_read_only=on")
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	_, err = pool.Exec(t.Context(), `UPDATE belfry.jobs SET priority = 1`)
	require.ErrorContains(t, err, "read-only transaction")
	b.job(t, "default", 1, 20)
	b.activity(t, 3)
	db := *b.DB
	db.Pool = pool
	who := &bundle{&outboxtest.Database{DB: &db}}
	r, err := relay.New(pool, who.composer(t), config("r1"), []relay.Sender{push(&script{})})
	require.NoError(t, err)
	stats, err := r.Drain(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 21, stats.Sent)
	require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.relays`), "it has deregistered")
}

// A heartbeat that the stop meets on the server takes effect there, whatever its relay does:
// the relay deregisters after it, and is not in belfry.relays any more.
func TestRelay_HeartbeatAfterTheDeregistration(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	gate, err := b.DB.Pool.Acquire(t.Context())
	require.NoError(t, err)
	t.Cleanup(gate.Release)
	_, err = gate.Exec(t.Context(), `SELECT pg_advisory_lock(42)`)
	require.NoError(t, err)
	run := b.start(t, config("r"), []relay.Sender{push(&script{})})
	b.eventually(t, `SELECT EXISTS (SELECT FROM belfry.relays)`)
	b.exec(t, `CREATE FUNCTION public.held() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM pg_advisory_xact_lock_shared(42); RETURN NEW; END$$`)
	b.exec(t, `CREATE TRIGGER held BEFORE INSERT ON belfry.relays FOR EACH ROW EXECUTE FUNCTION public.held()`)
	const waits = `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`
	b.eventually(t, waits)
	run.stop()
	select {
	case err := <-run.ended:
		require.Fail(t, "the relay has ended before its heartbeat", "%v", err)
	case <-time.After(time.Second): // as long as anything that it does not wait for takes
	}
	_, err = gate.Exec(t.Context(), `SELECT pg_advisory_unlock(42)`)
	require.NoError(t, err)
	run.end(t)
	require.False(t, one[bool](t, b, waits))
	require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.relays`))
}
