package jetstream_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/dev/outboxtest"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/jetstream"
)

// CARRIERS.md 1, 7: a server that comes back with an older state, as after a power failure, says
// how much it knows, and takes what is missing under its old numbers.
func TestBroker_LostTailShows(t *testing.T) {
	t.Parallel()
	server := dbtest.StartNATS(t, 1)
	b := setup(t, server)
	c := b.worker(t, "r1", all)
	for n := range int64(5) {
		push(t, c, nth(n+1, keys(10)))
	}
	older := t.TempDir()
	require.NoError(t, server[0].Stop())
	require.NoError(t, os.CopyFS(older, os.DirFS(server[0].Store)))
	require.NoError(t, server[0].Start(t.Context()))
	b.until(t, "it is back", func(ctx context.Context) bool {
		answer, err := c.Push(ctx, nth(6, keys(10)))
		return err == nil && answer == outbox.PushDone
	})
	push(t, c, nth(7, keys(10)))
	require.NoError(t, server[0].Stop())
	require.NoError(t, os.RemoveAll(server[0].Store))
	require.NoError(t, os.CopyFS(server[0].Store, os.DirFS(older)))
	require.NoError(t, server[0].Start(t.Context()))
	var answer outbox.PushAnswer
	b.until(t, "it is back", func(ctx context.Context) (ok bool) {
		var err error
		answer, err = c.Push(ctx, nth(8, keys(10)))
		return err == nil
	})
	require.Equal(t, outbox.PushGap, answer)
	require.Equal(t, outbox.Inside{Epoch: epoch, Last: 5, Oldest: 1}, inside(t, c))
	for n := int64(6); n <= 8; n++ {
		push(t, c, nth(n, keys(10)))
	}
	require.Equal(t, 80, b.ready(t))
}

// A stream that was lost and made anew counts from 1 again. What a worker still holds of the one
// before is settled, renewed and given back there alone: the copies of other messages that have
// its numbers now stay, also those that were taken out and handed back.
func TestBroker_SettlesNothingOfAnotherStream(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.StartNATS(t, 1))
	c := b.worker(t, "r1", all)
	push(t, c, nth(1, keys(30)))
	got := receive(t, c, 30)
	b.forget(t)
	var others []outbox.Key
	for _, k := range keys(30) {
		others = append(others, outbox.Key{JobID: 2, ChannelID: k.ChannelID})
	}
	ready := time.Now().Add(time.Second)
	d := b.worker(t, "r2", func(copies []outbox.Copy) ([]outbox.Answer, error) {
		answers, err := all(copies)
		for i := range answers {
			require.Equal(t, int64(2), copies[i].JobID)
			if time.Now().Before(ready) { // each is taken out and handed back
				answers[i] = outbox.Answer{Verdict: outbox.CopyLater, Wait: time.Until(ready)}
			}
		}
		return answers, err
	})
	push(t, d, nth(1, others))
	back := waiting(t, d, 30)
	b.until(t, "all are taken out", func(context.Context) bool { return b.ready(t) == 0 })
	settle(t, c, got[:10])
	require.NoError(t, c.Settled(t.Context(), []outbox.Settled{{Key: got[10].Key, Status: outbox.Dead}, {Key: got[11].Key, Status: outbox.Pending, Wait: 50 * time.Second}}))
	require.Equal(t, int64(1), inside(t, c).Oldest, "and it knows that the acknowledgements are heard")
	b.until(t, "all come again", func(context.Context) bool { return len(back) == 1 })
}

// CARRIERS.md 16: what is in flight is renewed for as long as its worker lives.
func TestFault_RenewsWhatIsInFlight(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.StartNATS(t, 1), func(_ *jetstream.Config, o *jetstream.Options) { o.Lease = 10 * time.Second })
	c, d := b.worker(t, "r1", all), b.worker(t, "r2", all)
	push(t, c, nth(1, keys(10)))
	got := receive(t, c, 10)
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	again, _ := d.Receive(ctx, &room{10})
	require.Empty(t, again)
	settle(t, c, got)
	require.Equal(t, int64(2), inside(t, c).Oldest)
}

// What comes to a worker that has stopped to receive is another's at once.
func TestBroker_StopKeepsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.StartNATS(t, 1), func(_ *jetstream.Config, o *jetstream.Options) { o.Lease = time.Hour })
	c, d := b.worker(t, "r1", all), b.worker(t, "r2", all)
	require.Zero(t, b.ready(t)) // the stream is made
	for n := range int64(3) {
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			_, err := c.Receive(ctx, &room{10})
			ended <- err
		}()
		b.until(t, "it waits", func(ctx context.Context) bool {
			info, err := b.js.Consumer(ctx, b.Stream(outbox.Bulk), b.consumer(t))
			return err == nil && info.CachedInfo().NumWaiting > 0
		})
		stop()
		require.ErrorIs(t, <-ended, context.Canceled)
		push(t, d, nth(n+1, keys(5)))
		settle(t, d, receive(t, d, 5))
	}
}

// CARRIERS.md 18: a consumer that has copies and hands out none, as one that somebody has paused,
// is said once and looked for again.
func TestBroker_SilentConsumerIsSaidOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.StartNATS(t, 1))
	b.Hurry(200 * time.Millisecond)
	c := b.worker(t, "r1", all)
	push(t, c, nth(1, keys(10)))
	s := b.stream(t, outbox.Bulk)
	_, err := s.PauseConsumer(t.Context(), b.consumer(t), time.Now().Add(time.Hour))
	require.NoError(t, err)
	got := waiting(t, c, 10)
	b.until(t, "it is said", func(context.Context) bool {
		return strings.Contains(b.log.String(), "copies are ready but none arrives")
	})
	began := time.Now()
	b.until(t, "several pulls are over", func(context.Context) bool { return time.Since(began) > 2*time.Second })
	_, err = s.ResumeConsumer(t.Context(), b.consumer(t))
	require.NoError(t, err)
	require.Equal(t, 10, <-got)
	require.Equal(t, 1, strings.Count(b.log.String(), "copies are ready but none arrives"))
}

// CARRIERS.md 18: a pull that its server has forgotten is made anew when two of the server's signs
// of life are missing, however long it was to wait.
func TestBroker_PullThatIsForgotten(t *testing.T) {
	t.Parallel()
	server := dbtest.StartNATS(t, 1)
	b := setup(t, server)
	b.Wait(time.Hour, 500*time.Millisecond)
	c := b.worker(t, "r1", all)
	push(t, c, nth(1, keys(1)))
	settle(t, c, receive(t, c, 1))
	got := waiting(t, c, 10)
	b.until(t, "it waits", func(ctx context.Context) bool {
		info, err := b.js.Consumer(ctx, b.Stream(outbox.Bulk), b.consumer(t))
		return err == nil && info.CachedInfo().NumWaiting > 0
	})
	require.NoError(t, server[0].Stop())
	require.NoError(t, server[0].Start(t.Context()))
	b.until(t, "it is back", func(ctx context.Context) bool {
		answer, err := c.Push(ctx, nth(2, keys(10)))
		return err == nil && answer == outbox.PushDone
	})
	require.Equal(t, 10, <-got)
}

// CARRIERS.md 18: a server that is away for longer than the library tries is found when it is back.
func TestFault_ServerIsAwayForLong(t *testing.T) {
	t.Parallel()
	server := dbtest.StartNATS(t, 1)
	b := setup(t, server, func(c *jetstream.Config, _ *jetstream.Options) { c.Timeout = time.Second })
	c := b.worker(t, "r1", all)
	push(t, c, nth(1, keys(10)))
	require.NoError(t, server[0].Stop())
	began := time.Now()
	b.until(t, "sixty attempts would be over", func(context.Context) bool { return time.Since(began) > 30*time.Second })
	require.NoError(t, server[0].Start(t.Context()))
	b.until(t, "it is back", func(ctx context.Context) bool {
		answer, err := c.Push(ctx, nth(2, keys(10)))
		return err == nil && answer == outbox.PushDone
	})
	require.Len(t, receive(t, c, 20), 20)
}

// waiting receives n copies in a goroutine of its own, whatever fails meanwhile.
func waiting(t testing.TB, c outbox.Carrier, n int) <-chan int {
	t.Helper()
	got := make(chan int, 1)
	go func() {
		m := 0
		for m < n && t.Context().Err() == nil {
			claimed, _ := c.Receive(t.Context(), &room{n - m})
			m += len(claimed)
		}
		got <- m
	}()
	return got
}

// CARRIERS.md 18, 20: a server that is away is said once, and once that it is back; who waits
// goes on by itself.
func TestLong_BrokerSaysOnceThatItIsAway(t *testing.T) {
	t.Parallel()
	server := dbtest.StartNATS(t, 1)
	b := setup(t, server, func(c *jetstream.Config, _ *jetstream.Options) { c.Timeout = time.Second })
	c := b.worker(t, "r1", all)
	push(t, c, nth(1, keys(10)))
	require.Len(t, receive(t, c, 10), 10)
	got := waiting(t, c, 10)
	require.NoError(t, server[0].Stop())
	for range 3 {
		_, err := c.Push(t.Context(), nth(2, keys(10)))
		require.Error(t, err)
		_, err = c.Inside(t.Context(), outbox.Bulk)
		require.Error(t, err)
	}
	_, err := b.Check(t.Context())
	require.ErrorIs(t, err, outbox.ErrAway)
	require.Equal(t, 1, strings.Count(b.log.String(), "the carrier is away"))
	require.NoError(t, server[0].Start(t.Context()))
	b.until(t, "it is back", func(ctx context.Context) bool {
		answer, err := c.Push(ctx, nth(2, keys(10)))
		return err == nil && answer == outbox.PushDone
	})
	require.Equal(t, 10, <-got)
	require.Equal(t, 1, strings.Count(b.log.String(), "the carrier is away"))
	require.Equal(t, 1, strings.Count(b.log.String(), "the carrier is back"))
}

// CARRIERS.md 20: a connection that is cut at any command, before the server has it or after it
// did it, costs nothing but a repetition.
func TestFault_ConnectionCutAtEachCommand(t *testing.T) {
	t.Parallel()
	const n = 200
	server := dbtest.StartNATS(t, 1)
	for name, command := range map[string]string{
		"ids": ".bulk.ids ", "count": ".bulk.state ", "pull": "CONSUMER.MSG.NEXT.", "acknowledge": "$JS.ACK.",
		"inside": "STREAM.MSG.GET.", "stream": "STREAM.INFO.", "consumer": "CONSUMER.CREATE.",
	} {
		for how, fault := range map[string]dbtest.Fault{"cut": dbtest.Cut, "answer lost": dbtest.DropReply} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				proxy := dbtest.StartProxy(t, strings.TrimPrefix(server[0].URL, "nats://"))
				b := setup(t, server, impatient, func(c *jetstream.Config, _ *jetstream.Options) { c.URLs = []string{"nats://" + proxy.Addr} })
				var met, lost atomic.Int64
				proxy.Lose(func(request []byte) dbtest.Fault {
					if bytes.Contains(request, []byte(command)) && met.Add(1)%2 == 1 && lost.Add(1) <= 2 {
						return fault
					}
					return dbtest.Pass
				})
				d, s := outboxtest.NewDatabase(t, dbtest.Reused(t, 4), n), &calls{}
				d.Job(t, "a", 1, n, 0)
				b.start(t, d, "r1", s)
				d.Delivered(t)
				s.once(t, n)
				require.Positive(t, lost.Load())
			})
		}
	}
}

// A relay goes on by itself when a server lets it in again, however it was shut out: by a password that was
// changed and changed back, or by an error after which nats.go never connects again.
func TestBroker_GoesOnAfterARefusal(t *testing.T) {
	t.Parallel()
	for _, it := range []struct {
		setting, logged string // by the server
		times           int
		tells           string // by belfry; the other outage is too short
	}{
		{`authorization { user: other, password: other }`, "authentication error", 4, "nats: authorization violation"},
		{`max_control_line: 8`, "maximum control line exceeded", 1, ""},
	} {
		t.Run(it.logged, func(t *testing.T) {
			t.Parallel()
			server := dbtest.StartNATS(t, 1)
			b := setup(t, server, impatient)
			c := b.worker(t, "r1", all)
			push(t, c, nth(1, keys(10)))
			require.NoError(t, server[0].Reload(it.setting))
			b.until(t, "the server refuses", func(ctx context.Context) bool {
				_, _ = c.Push(ctx, nth(2, keys(10))) // it fails
				log, err := os.ReadFile(filepath.Join(filepath.Dir(server[0].Store), "server.log"))
				require.NoError(t, err)
				return bytes.Count(log, []byte(it.logged)) >= it.times
			})
			require.NoError(t, server[0].Reload())
			b.until(t, "it goes on", func(ctx context.Context) bool {
				answer, err := c.Push(ctx, nth(2, keys(10)))
				return err == nil && answer == outbox.PushDone
			})
			b.until(t, "the relay answers roll calls again", func(ctx context.Context) bool {
				list, err := b.Queues(ctx)
				return err == nil && len(list[0].Workers) == 1
			})
			require.Len(t, receive(t, c, 20), 20)
			require.Contains(t, b.log.String(), it.tells)
		})
	}
}
