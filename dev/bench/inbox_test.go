package bench

import (
	"cmp"
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/inbox"
	"github.com/belfryhq/belfry/outbox/relay"
	"github.com/belfryhq/belfry/outbox/sender"
)

// BenchmarkInbox measures the notification centre.
func BenchmarkInbox(b *testing.B) {
	e := open(b, cmp.Or(*channelCount, size[int64](1_000_000, 4000)), true)
	e.run("values", (*env).values)
	e.run("single", (*env).single)
	e.run("reads", (*env).reads) // the last: it fills the database with notifications
}

// values compares a push job with content for single recipients with one without.
func (e *env) values() {
	spec := everyone(outbox.TypePush)
	spec.Title = "bench {{value.points}}"
	speeds := sideBySide(
		func() float64 {
			r := e.runJob(spec, job.DefaultConfig(), queries.valuesInsert)
			require.Equal(e, e.active, r.job.RowsWritten)
			return r.speed()
		},
		func() float64 { return e.runEveryone(outbox.TypePush, job.DefaultConfig()).speed() })
	e.report(speeds[0]/speeds[1], "to-plain", atLeast(0.7))
}

// answerTime is the time in which the provider of single answers: 50 calls at once send 5,000 messages a second.
const answerTime = 10 * time.Millisecond

// likes is a provider that accepts all messages after answerTime, and records the times of calls for activities.
type likes struct{ called sync.Map } // ids of activities to times

// MaxBatch implements sender.Sender.
func (*likes) MaxBatch() int { return 1 }

// Send implements sender.Sender.
func (l *likes) Send(ctx context.Context, batch []sender.Delivery) []sender.Result {
	now, results := time.Now(), make([]sender.Result, len(batch))
	for i, d := range batch {
		if d.JobID < 0 {
			l.called.Store(d.JobID, now)
		}
		results[i] = sender.Result{Class: sender.Accepted}
	}
	if lifecycle.Pause(ctx, answerTime) != nil {
		results[0] = sender.Result{Class: sender.Unknown, Code: "stopped"}
	}
	return results
}

// single measures single notifications while a job to everyone is walked and delivered: from their commit to the call
// of the provider.
func (e *env) single() {
	e.clear()
	provider := &likes{}
	delivering := newRelay(e.connect(e.dsn, nil), e.store, provider, relay.DefaultSenderConfig().Concurrency, nil)
	running, stop := e.start(delivering.Run)
	like := func() (id, channel int64) {
		e.read(queries.likeNotify, pgx.StrictNamedArgs{"channel": 1 + rand.Int64N(e.size*9/10)}, &id, &channel)
		return id, channel
	}
	calledAt := func(id int64) time.Time {
		for {
			if at, is := provider.called.Load(id); is {
				return at.(time.Time)
			}
			require.NoError(e, lifecycle.Pause(running, time.Millisecond))
		}
	}
	first, _ := like()
	calledAt(first) // the relay has started
	e.enqueue(everyone(outbox.TypePush))
	var walked atomic.Bool
	walking := make(chan struct{})
	go func() {
		defer close(walking)
		e.runDue(e.Context(), job.DefaultConfig())
		walked.Store(true)
	}()
	store, committed := inbox.NewStore(e.pool), make(map[int64]time.Time)
	for !walked.Load() {
		id, channel := like()
		committed[id] = time.Now()
		page, _, err := store.Page(e.Context(), channel, inbox.Page{Limit: 1})
		require.NoError(e, err)
		require.Equal(e, -id, page[0].ID, "a notification is visible at once")
		require.NoError(e, lifecycle.Pause(running, 20*time.Millisecond))
	}
	<-walking
	var took []float64
	for id, at := range committed {
		took = append(took, milliseconds(calledAt(id).Sub(at)))
	}
	stop()
	e.report(percentile(took, 50), "call-p50-ms")
	e.report(percentile(took, 99), "call-p99-ms", atMost(100))
}

// reads measures the first page and the count of random channels with 20 notifications each.
func (e *env) reads() {
	e.clear()
	e.do(queries.jobsEmpty)
	e.writeNotifications(size[int64](20, 2))
	store := inbox.NewStore(e.pool)
	e.report(e.readP95(func(channel int64) error {
		_, _, err := store.Page(e.Context(), channel, inbox.Page{Limit: 20})
		return err
	}), "page-p95-ms", atMost(5))
	e.report(e.readP95(func(channel int64) error {
		_, err := store.Counts(e.Context(), channel)
		return err
	}), "count-p95-ms", atMost(5))
}

// readP95 returns the duration in ms of a read for random channels.
func (e *env) readP95(read func(channel int64) error) float64 {
	took := make([]float64, 0, 4000)
	for range cap(took) {
		channel, began := 1+rand.Int64N(e.size), time.Now()
		require.NoError(e, read(channel))
		took = append(took, milliseconds(time.Since(began)))
	}
	return percentile(took, 95)
}
