package relay_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/relay"
	"github.com/belfryhq/belfry/outbox/sender"
)

// watcher notes what an observer is told.
type watcher struct {
	mu       sync.Mutex
	recorded map[string]int
	results  map[string]int
	rebuilt  map[outbox.Queue]int
}

func newWatcher() *watcher {
	return &watcher{recorded: make(map[string]int), results: make(map[string]int), rebuilt: make(map[outbox.Queue]int)}
}

func (w *watcher) Called(name string, results []sender.Result, took time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range results {
		w.results[fmt.Sprintf("%s %s %t", name, r.Class, took > 0)]++
	}
}

func (w *watcher) Recorded(o outbox.Recording, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.recorded[strings.Join(strings.Fields(fmt.Sprintf("%s %s %s", o.Recorded, o.Medium, o.Reason)), " ")] += n
}

func (w *watcher) Rebuilt(q outbox.Queue) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rebuilt[q]++
}

func (*watcher) Beat([]outbox.SenderWork) {}

// said are copies of what it was told.
func (w *watcher) said() (recorded, results map[string]int, rebuilt map[outbox.Queue]int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.recorded), maps.Clone(w.results), maps.Clone(w.rebuilt)
}

// An observer hears of each call and of each outcome, once, by the medium of the last call.
func TestRelay_ObserverHearsOfCallsAndOutcomes(t *testing.T) {
	t.Parallel()
	b := setup(t, 6)
	b.exec(t, `SELECT belfry.opt_out(6, medium => '*')`)
	b.job(t, "default", 1, 6, "push", "sms")
	answers := map[string]sender.Class{"2 push": sender.Permanent, "3 push": sender.Permanent, "3 sms": sender.Permanent, "4 push": sender.Retryable}
	say := func(_ context.Context, d sender.Delivery) sender.Result {
		class := answers[fmt.Sprintf("%d %s", d.ChannelID, d.Medium)]
		if class == "" || d.ChannelID == 4 && d.Attempt == 2 {
			class = sender.Accepted
		}
		return sender.Result{Class: class, Code: "c"}
	}
	w := newWatcher()
	run := b.start(t, config("r"), []relay.Sender{push(&script{answer: say}), sms(&script{answer: say})}, relay.WithObserver(w))
	b.eventually(t, `SELECT NOT EXISTS (SELECT FROM belfry.messages WHERE status IN ('PENDING', 'PROCESSING'))`)
	run.end(t)
	recorded, results, rebuilt := w.said()
	stats, sum := run.Stats(), 0
	for _, n := range recorded {
		sum += n
	}
	require.EqualValues(t, stats.Sent+stats.Awaiting+stats.Retried+stats.FailedOver+stats.Deferred+stats.Returned+stats.Dead+stats.Refused+stats.Cancelled+stats.Lost, sum)
	require.Equal(t, map[string]int{
		"sent push": 3, "sent sms": 1, "retried push": 1, "failed_over push": 2, "dead sms permanent": 1, "refused": 1,
	}, withoutPuttingBack(recorded))
	push, text := stats.Senders[0].Name, stats.Senders[1].Name
	require.Equal(t, map[string]int{
		push + " accepted true": 3, push + " permanent true": 2, push + " retryable true": 1,
		text + " accepted true": 1, text + " permanent true": 1,
	}, results)
	require.Empty(t, rebuilt)
}

// reading is a composer that has made many transactions.
type reading struct{ relay.Composer }

func (reading) Transactions() int64 { return 1_000_000 }

// A relay says how many transactions it makes, its composer's among them: a run takes them off
// what it sees of others.
func TestRelay_SaysHowManyTransactionsItMakes(t *testing.T) {
	t.Parallel()
	b := setup(t, 90)
	b.job(t, "default", 1, 90, "push")
	c := config("r")
	c.Batch = 3
	r, err := relay.New(b.DB.Pool, reading{b.composer(t)}, c, []relay.Sender{push(&script{})})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	// Thirty batches are a claim and a hand-over, a look and a settlement, these for several at once.
	b.eventually(t, `SELECT EXISTS (SELECT FROM belfry.relays WHERE transactions BETWEEN 1000050 AND 1001000)`)
	stop()
	require.NoError(t, <-ended)
}

// withoutPuttingBack leaves out what a busy machine adds: a message that waited too long in a
// queue is deferred.
func withoutPuttingBack(recorded map[string]int) map[string]int {
	maps.DeleteFunc(recorded, func(key string, _ int) bool {
		return strings.HasPrefix(key, string(outbox.RecordedDeferred)) || strings.HasPrefix(key, string(outbox.RecordedReturned))
	})
	return recorded
}
