package redisstream_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/redisstream"
)

const epoch = "6f1c9a52-0e6c-4f4e-9a9e-0d7f1c5b2a10"

// truth answers claims as PostgreSQL would, of messages that are all due: the first claim of one
// gets it.
type truth struct {
	mu      sync.Mutex
	claimed map[outbox.Key]string // by whom
	say     map[outbox.Key]outbox.Answer
	asked   int // copies
	gate    func()
}

func newTruth() *truth {
	return &truth{claimed: make(map[outbox.Key]string), say: make(map[outbox.Key]outbox.Answer)}
}

// as is what a worker claims with.
func (w *truth) as(worker string) outbox.Claim {
	return func(copies []outbox.Copy) ([]outbox.Answer, error) {
		w.mu.Lock()
		gate := w.gate
		w.mu.Unlock()
		if gate != nil {
			gate()
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.asked += len(copies)
		answers := make([]outbox.Answer, len(copies))
		for i, c := range copies {
			_, twice := w.claimed[c.Key]
			a, said := w.say[c.Key]
			switch {
			case said:
				answers[i] = a
			case twice:
				answers[i] = outbox.Answer{Verdict: outbox.CopyAnother}
			default:
				w.claimed[c.Key] = worker
				answers[i] = outbox.Answer{Verdict: outbox.CopyClaimed, Claimed: outbox.Claimed{Key: c.Key, LeaseID: 1, Lane: "a"}}
			}
		}
		return answers, nil
	}
}

// answer has every further claim of messages answered so.
func (w *truth) answer(keys []outbox.Key, a outbox.Answer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range keys {
		w.say[k] = a
	}
}

// forget has all messages due and unclaimed again.
func (w *truth) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.claimed)
}

func (w *truth) hold(gate func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gate = gate
}

// by counts the messages that each worker has claimed.
func (w *truth) by() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := make(map[string]int)
	for _, worker := range w.claimed {
		n[worker]++
	}
	return n
}

// pusher makes the pushes of the bulk queue, one after the other.
type pusher struct {
	to     outbox.Carrier
	number int64
}

// push pushes n messages of a new job, in pushes of up to a thousand.
func (p *pusher) push(t testing.TB, n int) (keys []outbox.Key) {
	t.Helper()
	for from := 0; from < n; from += 1000 {
		p.number++
		some := make([]outbox.Key, min(1000, n-from))
		for i := range some {
			some[i] = outbox.Key{JobID: p.number, ChannelID: int64(i + 1)}
		}
		answer, err := p.to.Push(t.Context(), outbox.PushGroup{Queue: outbox.Bulk, Epoch: epoch, First: 1, Number: p.number, Lane: "a", Keys: some})
		require.NoError(t, err)
		require.Equal(t, outbox.PushDone, answer)
		keys = append(keys, some...)
	}
	return keys
}

// keep runs Keep of a carrier until stop, or the test's end.
func keep(t testing.TB, c outbox.Carrier) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(background(t))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Keep(ctx)
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-ended
	})
	t.Cleanup(stop)
	return stop
}

// receive receives n messages, and no more at a time than that.
func receive(t testing.TB, from outbox.Carrier, n int) (got []outbox.Claimed) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for len(got) < n {
		claimed, err := from.Receive(ctx, &room{n - len(got)})
		require.NoError(t, err, "%d of %d came", len(got), n)
		got = append(got, claimed...)
	}
	return got
}

// receiveAll receives in the background until stop, whatever errors there are, and settles at
// once as sent.
func receiveAll(t testing.TB, c outbox.Carrier, room outbox.Credits) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(background(t))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			claimed, err := c.Receive(ctx, room)
			if len(claimed) > 0 {
				_ = c.Settled(background(t), sent(claimed)) // an error leaves them pending
			}
			if err != nil {
				rest(ctx, 50*time.Millisecond)
			}
		}
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-ended
	})
	t.Cleanup(stop)
	return stop
}

// rest waits a while, or until ctx ends.
func rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

func sent(claimed []outbox.Claimed) []outbox.Settled { return settled(claimed, outbox.Sent, 0) }

func settled(claimed []outbox.Claimed, to outbox.Status, wait time.Duration) []outbox.Settled {
	outcomes := make([]outbox.Settled, len(claimed))
	for i := range claimed {
		outcomes[i] = outbox.Settled{Key: claimed[i].Key, Status: to, Wait: wait}
	}
	return outcomes
}

// inside is what the bulk queue remembers.
func inside(t testing.TB, c outbox.Carrier) outbox.Inside {
	t.Helper()
	in, err := c.Inside(t.Context(), outbox.Bulk)
	require.NoError(t, err)
	return in
}

// many has queues hold as much as a test pushes.
func many(o *redisstream.Options) { o.MaxQueued = 1 << 20 }
