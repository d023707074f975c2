package relay_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/relay"
	"github.com/belfryhq/belfry/outbox/sender"
)

// restful runs a relay that waits for hints for an hour, and waits until it does.
func (b *bundle) restful(t *testing.T, name string) *running {
	t.Helper()
	return b.restfulWith(t, name, &script{})
}

func (b *bundle) restfulWith(t *testing.T, name string, s *script) *running {
	t.Helper()
	c := config(name)
	c.Listen = true
	run := b.start(t, c, []relay.Sender{push(s)}, relay.WithRest(time.Hour))
	rests(t, run)
	return run
}

func rests(t *testing.T, run *running) {
	t.Helper()
	require.Eventually(t, run.Resting, patience, time.Millisecond)
}

// Between the passes before a rest, which are longer apart here than the test waits, an activity
// is found when it falls due.
func TestLong_RelayCalmRelayMissesNoDueTime(t *testing.T) {
	t.Parallel()
	b := setup(t, 6)
	b.exec(t, `INSERT INTO belfry.activities (channel_id, title, deliver_at) VALUES (1, 'later', clock_timestamp() + interval '8 seconds')`)
	c := config("r")
	c.Listen, c.PollInterval = true, 2*patience+10*time.Second
	b.start(t, c, []relay.Sender{push(&script{})})
	b.eventually(t, `SELECT count(*) = 1 FROM belfry.messages WHERE status = 'SENT'`)
}

// A pass that comes before an activity is due, as one may whose clock is not the database's, does
// not put the relay at ease.
func TestLong_RelayCalmRelayLooksAgainAtWhatItMissed(t *testing.T) {
	t.Parallel()
	b := setup(t, 6)
	b.exec(t, `INSERT INTO belfry.activities (channel_id, title, deliver_at) VALUES (1, 'later', clock_timestamp() + interval '8 seconds')`)
	c := config("r")
	c.Listen, c.PollInterval = true, 2*patience+10*time.Second
	var missed atomic.Int64
	b.start(t, c, []relay.Sender{push(&script{})}, relay.WithFailpoint(func(ctx context.Context, point string) error {
		if point != relay.PointClaim || missed.Load() > 0 {
			return nil
		}
		tag, err := b.DB.Pool.Exec(ctx, `UPDATE belfry.message_rows SET next_attempt_at = clock_timestamp() + interval '2 seconds' WHERE next_attempt_at <= clock_timestamp()`)
		missed.Add(tag.RowsAffected())
		return err
	}))
	b.eventually(t, `SELECT count(*) = 1 FROM belfry.messages WHERE status = 'SENT'`)
	require.EqualValues(t, 1, missed.Load())
}

// Whatever makes messages sendable wakes a relay that asks for nothing, and so does the
// time at which one is due that it knows of.
func TestLong_RelayRestingRelayMissesWork(t *testing.T) {
	t.Parallel()
	sent := func(t *testing.T, b *bundle, n int) {
		t.Helper()
		b.eventually(t, `SELECT count(*) = $1 FROM belfry.messages WHERE status = 'SENT'`, n)
	}
	for name, wakes := range map[string]func(t *testing.T, b *bundle){
		"activity": func(t *testing.T, b *bundle) {
			b.restful(t, "r")
			b.activity(t, 1)
			sent(t, b, 1)
			b.activity(t, 2) // and again, from whatever it does in between
			sent(t, b, 2)
		},
		"activity that is due later": func(t *testing.T, b *bundle) {
			run := b.restful(t, "r")
			b.exec(t, `INSERT INTO belfry.activities (channel_id, title, deliver_at) VALUES (1, 'later', now() + interval '2 seconds')`)
			sent(t, b, 1)
			rests(t, run)
		},
		"message that was deferred": func(t *testing.T, b *bundle) {
			id := b.job(t, "default", 1, 3)
			b.exec(t, `UPDATE belfry.message_rows SET lease_id = 0, next_attempt_at = now() + interval '3 seconds' WHERE job_id = $1`, id)
			b.restful(t, "r")
			sent(t, b, 3)
		},
		"chunk": func(t *testing.T, b *bundle) {
			b.restful(t, "r")
			who, err := channels.New(channels.DefaultConfig())
			require.NoError(t, err)
			runner, err := job.NewRunner(b.DB.Pool, job.DefaultConfig(), outbox.Types(who))
			require.NoError(t, err)
			_, err = job.NewStore(b.DB.Pool).Enqueue(t.Context(), job.Spec{Type: outbox.TypePush, Category: "operator_notice", Title: "told", Audience: channels.Everyone()})
			require.NoError(t, err)
			_, err = runner.RunDue(t.Context())
			require.NoError(t, err)
			sent(t, b, 6)
		},
		"sender that goes on": func(t *testing.T, b *bundle) {
			b.exec(t, `INSERT INTO belfry.senders (name, paused_at, paused_by) VALUES ('fcm', now(), 'ann')`)
			run := b.restful(t, "r")
			b.activity(t, 1)
			b.eventually(t, `SELECT count(*) = 1 FROM belfry.messages WHERE reason = 'sender_paused'`)
			b.exec(t, `UPDATE belfry.message_rows SET next_attempt_at = now() + interval '1 hour'`)
			rests(t, run)
			b.exec(t, `UPDATE belfry.message_rows SET next_attempt_at = now()`) // says nothing
			b.exec(t, `UPDATE belfry.senders SET paused_at = NULL, paused_by = NULL`)
			sent(t, b, 1)
		},
		"relay that leaves": func(t *testing.T, b *bundle) {
			other := b.restful(t, "other")
			b.restful(t, "r")
			b.exec(t, `ALTER TABLE belfry.activities DISABLE TRIGGER activities_enqueue, DISABLE TRIGGER activities_wake`)
			id := b.activity(t, 1)
			b.exec(t, `INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at) VALUES ($1, 1, now())`, id) // says nothing
			other.end(t)
			sent(t, b, 1)
		},
		"redrive": func(t *testing.T, b *bundle) {
			var well atomic.Bool
			run := b.restfulWith(t, "r", &script{answer: func(context.Context, sender.Delivery) sender.Result {
				if well.Load() {
					return sender.Result{Class: sender.Accepted}
				}
				return sender.Result{Class: sender.Permanent}
			}})
			b.job(t, "default", 1, 2)
			b.activity(t, 3) // the job says nothing
			b.eventually(t, `SELECT count(*) = 3 FROM belfry.messages WHERE status = 'DEAD'`)
			rests(t, run)
			well.Store(true)
			_, err := delivery.Redrive(t.Context(), b.DB.Pool, delivery.DeadFilter{}, delivery.DeadOptions{})
			require.NoError(t, err)
			sent(t, b, 3)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wakes(t, setup(t, 6))
		})
	}
}

// asked counts what a pool's connections send.
type asked struct {
	mu   sync.Mutex
	n    int
	next []time.Time // when the relay asked for the next message
	at   []int       // how many statements that was
}

func (a *asked) add(sql string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.n++
	if strings.Contains(sql, "min(n.next_attempt_at)") {
		a.next, a.at = append(a.next, time.Now()), append(a.at, a.n)
	}
}

func (a *asked) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	a.add(data.SQL)
	return ctx
}
func (*asked) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (*asked) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}
func (a *asked) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	a.add(data.SQL)
}
func (*asked) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// A relay with nothing to do asks less than twice a second.
func TestLong_RelayIdleRelayAsksOften(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	trace := &asked{}
	pc, err := pgxpool.ParseConfig(b.DB.DSN)
	require.NoError(t, err)
	pc.ConnConfig.Tracer = trace
	pool, err := pgxpool.NewWithConfig(t.Context(), pc)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	r, err := relay.New(pool, b.composer(t), relay.DefaultConfig(), []relay.Sender{push(&script{})})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	t.Cleanup(func() { stop(); require.NoError(t, <-ended) })
	require.Eventually(t, func() bool {
		trace.mu.Lock()
		defer trace.mu.Unlock()
		n := len(trace.next)
		if n < 3 {
			return false
		}
		took, statements := trace.next[n-1].Sub(trace.next[n-2]), trace.at[n-1]-trace.at[n-2]
		return took > 5*time.Second && float64(statements) < 2*took.Seconds()
	}, patience, 10*time.Millisecond)
}
