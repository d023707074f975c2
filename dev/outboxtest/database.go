package outboxtest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/relay"
)

// patience is the timeout of waits.
const patience = time.Minute

// Database is a belfry database with the plain SQL that tests need.
type Database struct {
	DB *dbtest.DB
}

// NewDatabase creates n channels with the ids 1 to n in db, with addresses for push and sms.
func NewDatabase(t testing.TB, db *dbtest.DB, n int) *Database {
	t.Helper()
	d := &Database{DB: db}
	d.Exec(t, `INSERT INTO belfry.channels (id, external_id, platform, addresses)
		SELECT g, 'u-' || g, CASE WHEN g % 2 = 0 THEN 'android' ELSE 'ios' END, jsonb_build_object('push', 'token-' || g, 'sms', '+82' || g)
		  FROM generate_series(1, $1::bigint) g`, n)
	return d
}

// Exec executes a statement.
func (d *Database) Exec(t require.TestingT, sql string, args ...any) {
	_, err := d.DB.Pool.Exec(context.Background(), sql, args...)
	require.NoError(t, err)
}

// Eventually waits until the query returns true. It polls at increasing intervals.
func (d *Database) Eventually(t require.TestingT, sql string, args ...any) {
	wait := 2 * time.Millisecond
	tick := time.NewTicker(wait)
	defer tick.Stop()
	for began := time.Now(); !One[bool](t, d, sql, args...); <-tick.C {
		require.Less(t, time.Since(began), patience, "never true: %s", sql)
		wait = min(wait*3/2, 30*time.Millisecond)
		tick.Reset(wait)
	}
}

// One reads a single value.
func One[T any](t require.TestingT, d *Database, sql string, args ...any) (v T) {
	require.NoError(t, d.DB.Pool.QueryRow(context.Background(), sql, args...).Scan(&v))
	return v
}

// Job creates a finished job with messages to the channels from to to, due after a delay, with the route push or the given
// one.
func (d *Database) Job(t require.TestingT, lane string, from, to int, in time.Duration, route ...string) int64 {
	if len(route) == 0 {
		route = []string{"push"}
	}
	d.Exec(t, `INSERT INTO belfry.lanes (name) VALUES ($1) ON CONFLICT DO NOTHING`, lane)
	id := One[int64](t, d,
		`INSERT INTO belfry.jobs (type, category, title, body, lane, route)
			VALUES ('push', 'operator_notice', 'told', 'all', $1, $2) RETURNING id`, lane, route)
	d.Exec(t, `UPDATE belfry.jobs SET status = 'RUNNING', fence = 1, runner = 'r', heartbeat_at = now(), started_at = now() WHERE id = $1`, id)
	d.Exec(t, `UPDATE belfry.jobs SET bound = $2::text, "cursor" = $2::text, chunks = 1,
		 channels_read = $3, channels_matched = $3, rows_written = $3 WHERE id = $1`, id, fmt.Sprint(to), to-from+1)
	d.Exec(t, `INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at) SELECT $1, g, now() + $4
		FROM generate_series($2::bigint, $3::bigint) g`, id, from, to, in)
	dbtest.Recount(t, d.DB.Pool) // before the job is at rest: a relay that runs may find it delivered otherwise
	d.Exec(t, `UPDATE belfry.jobs SET status = 'PROCESSED' WHERE id = $1`, id)
	return id
}

// Activity creates an activity's message to one channel, due after a delay, and returns its id.
func (d *Database) Activity(t require.TestingT, channel int, in time.Duration) int64 {
	return One[int64](t, d,
		`INSERT INTO belfry.activities (channel_id, title, deliver_at) VALUES ($1, 'a like', now() + $2) RETURNING id`, channel, in)
}

// Delivered waits until all messages of jobs are SENT and the jobs are marked. It fails only if there is no progress, so
// that slow machines pass.
func (d *Database) Delivered(t require.TestingT) {
	sent, since := int64(-1), time.Now()
	tick := time.NewTicker(30 * time.Millisecond)
	defer tick.Stop()
	for One[bool](t, d, `SELECT EXISTS (SELECT FROM belfry.messages WHERE status <> 'SENT')`) {
		now := One[int64](t, d, `SELECT count(*) FROM belfry.messages WHERE status = 'SENT'`)
		if now > sent {
			sent, since = now, time.Now()
		}
		require.Less(t, time.Since(since), patience, "stuck: %d messages are SENT", sent)
		<-tick.C
	}
	d.Eventually(t, `SELECT NOT EXISTS (SELECT FROM belfry.jobs WHERE delivered_at IS NULL)`)
}

// Subject returns a subject with transports for the relays r1 and r2. It requires at least 200 channels.
func (d *Database) Subject(t testing.TB, transport func(name string) outbox.Transport) *Subject {
	t.Helper()
	ledger := outbox.NewLedger(d.DB.Pool, "r1", time.Hour)
	return &Subject{
		Transport: transport("r1"), Other: transport("r2"),
		Bulk: func(t testing.TB, lane string, n int, in time.Duration) (keys []outbox.Key) {
			t.Helper()
			id := d.Job(t, lane, 1, n, in)
			for i := range n {
				keys = append(keys, outbox.Key{JobID: id, ChannelID: int64(i + 1)})
			}
			return keys
		},
		Activities: func(t testing.TB, n int, in time.Duration) (keys []outbox.Key) {
			t.Helper()
			for i := range n {
				keys = append(keys, outbox.Key{JobID: d.Activity(t, i+1, in), ChannelID: int64(i + 1)})
			}
			return keys
		},
		Strand: func(t testing.TB, keys []outbox.Key) func() {
			t.Helper()
			for _, k := range keys { // as if they were returned: a first claim takes messages without their locks
				d.Exec(t, `SELECT belfry.own_claimed($1, $2 - 1, 1) WHERE $1 > 0`, k.JobID, k.ChannelID)
				d.Exec(t, `UPDATE belfry.message_rows SET lease_id = 0
					WHERE job_id = $1 AND channel_id = $2 AND status = 'PENDING'`, k.JobID, k.ChannelID)
			}
			tx, err := d.DB.Pool.Begin(t.Context())
			require.NoError(t, err)
			for _, k := range keys {
				_, err = tx.Exec(t.Context(), `SELECT FROM belfry.messages WHERE job_id = $1 AND channel_id = $2 FOR UPDATE`, k.JobID, k.ChannelID)
				require.NoError(t, err)
			}
			return func() { require.NoError(t, tx.Rollback(t.Context())) }
		},
		Settle: func(t testing.TB, settlements []outbox.Settlement) (outcomes []outbox.Settled) {
			t.Helper()
			statuses, err := ledger.Settle(t.Context(), settlements, nil)
			require.NoError(t, err)
			for i, s := range settlements {
				outcomes = append(outcomes, outbox.Settled{Key: s.Key, Status: statuses[i], Reason: s.Reason, Wait: s.Wait})
			}
			return outcomes
		},
		Processing: func(t testing.TB) int {
			t.Helper()
			return One[int](t, d, `SELECT count(*) FROM belfry.messages WHERE status = 'PROCESSING'`)
		},
		Hold: func(t testing.TB, job int64) func() {
			t.Helper()
			d.Exec(t, `SELECT belfry.abort($1, 'kim', 'wrong text')`, job)
			return func() { d.Exec(t, `SELECT belfry.resume($1, 'kim', 'the text was right')`, job) }
		},
		Recall: func(t testing.TB, keys []outbox.Key) {
			t.Helper()
			for _, k := range keys {
				require.Eventually(t, func() bool {
					var gone int64
					require.NoError(t, pgx.BeginFunc(t.Context(), d.DB.Pool, func(tx pgx.Tx) error {
						if _, err := tx.Exec(t.Context(), `SELECT belfry.own_claimed($1, $2 - 1, 1) WHERE $1 > 0`, k.JobID, k.ChannelID); err != nil {
							return err
						}
						tag, err := tx.Exec(t.Context(), `UPDATE belfry.message_rows SET status = 'CANCELLED', reason = 'recalled'
							WHERE job_id = $1 AND channel_id = $2 AND status IN ('PENDING', 'QUEUED')`, k.JobID, k.ChannelID)
						gone = tag.RowsAffected()
						return err
					}))
					return gone == 1
				}, time.Minute, time.Millisecond)
			}
		},
	}
}

// Carried returns a subject with two relays on a carrier. The caller sets Copies, Capacity, Forget and Lose in own; the
// database and dispatchers implement the rest.
func (d *Database) Carried(t testing.TB, b outbox.Broker, own CarrierSubject) *Subject {
	t.Helper()
	s := d.Subject(t, func(name string) outbox.Transport { return d.Carrier(t, b, name) })
	dispatchers := 0
	own.Dispatch = func(_ testing.TB, to outbox.Carrier) func() {
		dispatchers++
		return d.Dispatch(fmt.Sprintf("r%d", dispatchers), to, own.Capacity/4, 500*time.Millisecond)
	}
	own.Queued = func(t testing.TB, n int) outbox.PushGroup {
		t.Helper()
		return d.queued(t, d.Job(t, "a", 1, n, 0))
	}
	own.Requeued = func(t testing.TB, p outbox.PushGroup) outbox.PushGroup {
		t.Helper()
		d.Exec(t, `UPDATE belfry.pushes SET channel_ids = '{}', tids = '{}' WHERE number = $1`, p.Number)
		d.Exec(t, `UPDATE belfry.message_rows SET status = 'PENDING', lease_id = 0 WHERE job_id = $1`, p.Keys[0].JobID)
		return d.queued(t, p.Keys[0].JobID)
	}
	own.Unclaim = func(t testing.TB, keys []outbox.Key) {
		t.Helper()
		for _, k := range keys {
			d.Exec(t, `WITH claimed AS (SELECT m.job_id, m.channel_id, m.lease_id, r.ctid AS tid, r.status
				  FROM belfry.messages m JOIN belfry.message_rows r USING (job_id, channel_id)
				 WHERE job_id = $1 AND channel_id = $2), ended AS (
				DELETE FROM belfry.leases WHERE id IN (SELECT lease_id FROM claimed)), unchanged AS (
				UPDATE belfry.pushes p SET channel_ids = p.channel_ids || c.channel_id, tids = p.tids || c.tid FROM claimed c
				 WHERE c.status = 'PENDING' AND (p.queue, p.number) = (SELECT n.queue, n.number FROM belfry.pushes n
				       WHERE n.job_id = c.job_id AND n.last_channel >= c.channel_id ORDER BY n.last_channel LIMIT 1))
				UPDATE belfry.message_rows m SET status = 'QUEUED', lease_id = NULL FROM claimed c WHERE m.job_id = c.job_id
				AND m.channel_id = c.channel_id AND c.status = 'PROCESSING'`, k.JobID, k.ChannelID)
		}
	}
	s.Carrier = &own
	return s
}

// Carrier returns the carrier of the named relay and runs its Keep until the test ends.
func (d *Database) Carrier(t testing.TB, b outbox.Broker, name string) outbox.Carrier {
	t.Helper()
	ledger := outbox.NewLedger(d.DB.Pool, name, time.Hour)
	c := b.Carrier(name, func(copies []outbox.Copy) ([]outbox.Answer, error) {
		return ledger.ClaimCopies(context.Background(), copies)
	})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Keep(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return c
}

// Dispatch runs a named dispatcher, whose pushes have up to batch ids, until stop.
func (d *Database) Dispatch(name string, to outbox.Carrier, batch int, requeueAfter time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	c := relay.DefaultConfig()
	c.Name, c.Batch, c.PollInterval = name, batch, 20*time.Millisecond
	go func() {
		defer close(ended)
		relay.Dispatch(ctx, relay.DispatchOptions{
			Ledger: outbox.NewLedger(d.DB.Pool, name, time.Hour), To: to, RequeueAfter: requeueAfter,
			Config: func() relay.Config { return c },
		})
	}()
	return func() {
		cancel()
		<-ended
	}
}

// queued queues all messages of a job by the next push, like a dispatcher that dies afterwards.
func (d *Database) queued(t testing.TB, job int64) outbox.PushGroup {
	t.Helper()
	ledger := outbox.NewLedger(d.DB.Pool, "dead", time.Hour)
	queues, err := ledger.Lead(t.Context(), "any", time.Hour)
	require.NoError(t, err)
	require.Len(t, queues, 2)
	bulk := queues[1]
	keys, number, _, err := ledger.QueueJob(t.Context(), bulk, job, outbox.Position{}, outbox.MaxBatch, outbox.AnyTry)
	require.NoError(t, err)
	require.NoError(t, ledger.StopLeading(t.Context()))
	return outbox.PushGroup{Queue: outbox.Bulk, Epoch: bulk.Epoch, First: bulk.First, Number: number, Lane: "a", Keys: keys}
}
