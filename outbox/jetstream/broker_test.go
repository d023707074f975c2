package jetstream_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/jetstream"
)

const epoch = "7d1f0c52-0e6c-4f4e-9a9e-0d7f1c5b2a10"

// keys are n keys of job 1.
func keys(n int) (list []outbox.Key) {
	for i := range n {
		list = append(list, outbox.Key{JobID: 1, ChannelID: int64(i + 1)})
	}
	return list
}

// nth is the nth push of an epoch that begins with the first.
func nth(number int64, keys []outbox.Key) outbox.PushGroup {
	return outbox.PushGroup{Queue: outbox.Bulk, Epoch: epoch, First: 1, Number: number, Lane: "a", Keys: keys}
}

// all claims whatever it is asked for.
func all(copies []outbox.Copy) (answers []outbox.Answer, err error) {
	for _, c := range copies {
		answers = append(answers, outbox.Answer{Verdict: outbox.CopyClaimed, Claimed: outbox.Claimed{Key: c.Key, LeaseID: 1, Lane: "a"}})
	}
	return answers, nil
}

// room are fixed credits.
type room struct{ n int }

func (r *room) Activities() int            { return r.n }
func (r *room) Bulk() int                  { return r.n }
func (r *room) Job(int64, string, int) int { return r.n }
func (*room) Idle() bool                   { return true }
func (*room) Changed() <-chan struct{}     { return nil }

// worker is a carrier that is kept until the test ends.
func (b *bundle) worker(t testing.TB, name string, claim outbox.Claim) outbox.Carrier {
	t.Helper()
	c := b.Carrier(name, claim)
	ctx, cancel := context.WithCancel(context.Background())
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

func push(t testing.TB, c outbox.Carrier, p outbox.PushGroup) {
	t.Helper()
	answer, err := c.Push(t.Context(), p)
	require.NoError(t, err)
	require.Equal(t, outbox.PushDone, answer)
}

// receive receives n copies, whatever fails meanwhile.
func receive(t testing.TB, c outbox.Carrier, n int) (got []outbox.Claimed) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for len(got) < n {
		claimed, _ := c.Receive(ctx, &room{n - len(got)})
		got = append(got, claimed...)
		require.NoError(t, ctx.Err(), "%d of %d came", len(got), n)
	}
	return got
}

func settle(t testing.TB, c outbox.Carrier, got []outbox.Claimed) {
	t.Helper()
	var outcomes []outbox.Settled
	for _, m := range got {
		outcomes = append(outcomes, outbox.Settled{Key: m.Key, Status: outbox.Sent})
	}
	require.NoError(t, c.Settled(t.Context(), outcomes))
}

func inside(t testing.TB, c outbox.Carrier) outbox.Inside {
	t.Helper()
	in, err := c.Inside(t.Context(), outbox.Bulk)
	require.NoError(t, err)
	return in
}

// CARRIERS.md 5: the window of duplicates swallows no push that is made again under its number,
// after its copies were acknowledged, purged, or lost with their stream.
func TestBroker_NothingSwallowsAPushThatIsMadeAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.StartNATS(t, 1))
	c := b.worker(t, "r1", all)
	push(t, c, nth(1, keys(10)))
	settle(t, c, receive(t, c, 10))
	require.Equal(t, outbox.Inside{Epoch: epoch, Last: 1, Oldest: 2}, inside(t, c))
	require.NoError(t, b.stream(t, outbox.Bulk).Purge(t.Context()))
	require.Empty(t, inside(t, c).Epoch, "a purge takes the count too")
	push(t, c, nth(1, keys(10)))
	require.Len(t, receive(t, c, 10), 10)
	b.forget(t)
	require.Empty(t, inside(t, c).Epoch)
	push(t, c, nth(1, keys(10)))
	require.Len(t, receive(t, c, 10), 10)
}

// Copies of an epoch before stand in front of those of the present one, which has made earlier
// pushes again: none of them is said to be gone.
func TestBroker_OldestBehindAnEpochBefore(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.StartNATS(t, 1))
	c := b.worker(t, "r1", all)
	push(t, c, nth(1, keys(10)))
	settle(t, c, receive(t, c, 10))
	push(t, c, nth(2, keys(10)))
	again := nth(1, keys(5))
	again.Epoch = "0b8f4a7e-54a5-4a0e-8c56-9d3a7e1f6c11"
	push(t, c, again)
	require.Equal(t, outbox.Inside{Epoch: again.Epoch, Last: 1, Oldest: 1}, inside(t, c))
}

// CARRIERS.md 17: a stream that is full is an answer, and drains by itself.
func TestBroker_MaxBytesIsBackPressure(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.StartNATS(t, 1), func(c *jetstream.Config, o *jetstream.Options) {
		c.MaxBytes, o.MaxQueued, c.MaxAckPending = 1<<20, 1_000_000, 1_000_000
	})
	c := b.worker(t, "r1", all)
	n, number := 0, int64(0)
	for {
		answer, err := c.Push(t.Context(), nth(number+1, keys(500)))
		require.NoError(t, err)
		if answer == outbox.PushFull {
			break
		}
		number, n = number+1, n+500
		require.Less(t, n, 20_000)
	}
	require.Equal(t, number, inside(t, c).Last, "nothing was taken")
	list, err := b.Queues(t.Context())
	require.NoError(t, err)
	require.True(t, list[1].Full)
	info, err := b.stream(t, outbox.Bulk).Info(t.Context())
	require.NoError(t, err)
	require.Less(t, float64(info.State.Bytes)/float64(n), 256.0, "bytes of a copy")
	settle(t, c, receive(t, c, 500))
	require.Equal(t, int64(2), inside(t, c).Oldest)
	push(t, c, nth(number+1, keys(500)))
}

// A push of more ids than a server stores as a whole is one push.
func TestBroker_PushLargerThanABatch(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.StartNATS(t, 1), func(_ *jetstream.Config, o *jetstream.Options) { o.MaxQueued = outbox.MaxBatch })
	c := b.worker(t, "r1", all)
	for range 2 {
		push(t, c, nth(1, keys(outbox.MaxBatch)))
	}
	answer, err := c.Push(t.Context(), nth(2, keys(outbox.MaxBatch)))
	require.NoError(t, err)
	require.Equal(t, outbox.PushFull, answer)
	require.Len(t, receive(t, c, outbox.MaxBatch), outbox.MaxBatch)
	require.Zero(t, b.ready(t))
}

// Two dispatchers that both believe to lead: one push of a number is taken, whatever each knows.
func TestBroker_OnePushOfANumberIsTaken(t *testing.T) {
	t.Parallel()
	servers := dbtest.StartNATS(t, 1)
	one := setup(t, servers)
	two := setup(t, servers, func(c *jetstream.Config, _ *jetstream.Options) { c.Prefix = one.config.Prefix })
	c, d := one.worker(t, "r1", all), two.worker(t, "r2", all)
	for n := int64(1); n <= 20; n++ {
		done := make(chan outbox.PushAnswer, 2)
		for _, by := range []outbox.Carrier{c, d} {
			go func() {
				answer, _ := by.Push(t.Context(), nth(n, keys(2)))
				done <- answer
			}()
		}
		answers := []outbox.PushAnswer{<-done, <-done}
		require.Contains(t, answers, outbox.PushDone)
		push(t, c, nth(n, keys(2)))
		push(t, d, nth(n, keys(2)))
		require.Equal(t, int(2*n), one.ready(t))
	}
}

// CARRIERS.md 16, 18: a consumer that is deleted underneath is made anew, and takes up what is
// not acknowledged; so is a stream.
func TestBroker_ConsumerDeletedUnderneath(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.StartNATS(t, 1))
	c := b.worker(t, "r1", all)
	push(t, c, nth(1, keys(10)))
	settle(t, c, receive(t, c, 4))
	require.Equal(t, int64(1), inside(t, c).Oldest)
	require.NoError(t, b.stream(t, outbox.Bulk).DeleteConsumer(t.Context(), b.consumer(t)))
	require.Len(t, receive(t, c, 6), 6)
	ids := b.stream(t, outbox.Bulk)
	consumer := b.consumer(t)
	go func() { // while somebody waits
		_ = ids.DeleteConsumer(t.Context(), consumer)
		_, _ = c.Push(t.Context(), nth(2, []outbox.Key{{JobID: 1, ChannelID: 11}}))
	}()
	for {
		got := receive(t, c, 1)
		if got[0].ChannelID == 11 {
			break // those that were not settled may come before
		}
	}
}

// A stream that is restored under another time of its making brings a consumer along that has
// belfry's copies and is nobody's any more.
func TestBroker_TakesOverFromAConsumerOfAnotherTime(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.StartNATS(t, 1))
	c := b.worker(t, "r1", all)
	push(t, c, nth(1, keys(10)))
	s := b.stream(t, outbox.Bulk)
	require.NoError(t, s.DeleteConsumer(t.Context(), b.consumer(t)))
	other, err := s.CreateConsumer(t.Context(), natsjs.ConsumerConfig{Durable: "relays_0", FilterSubject: b.config.Prefix + ".bulk.ids", AckPolicy: natsjs.AckExplicitPolicy})
	require.NoError(t, err)
	_, err = other.Fetch(5)
	require.NoError(t, err)
	require.Len(t, receive(t, c, 10), 10)
	require.NotEqual(t, "relays_0", b.consumer(t))
}

// CARRIERS.md 17: a stream that somebody has made otherwise is refused, with what differs.
func TestBroker_RefusesAStreamThatDiffers(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.StartNATS(t, 1))
	_, err := b.js.CreateStream(t.Context(), natsjs.StreamConfig{
		Name: b.Stream(outbox.Bulk), Subjects: []string{b.config.Prefix + ".bulk.>"}, MaxAge: time.Hour, Replicas: 1,
	})
	require.NoError(t, err)
	_, err = b.Check(t.Context())
	require.ErrorContains(t, err, b.Stream(outbox.Bulk))
	require.ErrorContains(t, err, "max_age is 1h0m0s and not 0s")
	require.ErrorContains(t, err, "retention is Limits and not WorkQueue")
	require.ErrorContains(t, err, "discard is DiscardOld and not DiscardNew")
	c := b.worker(t, "r1", all)
	_, err = c.Push(t.Context(), nth(1, keys(1)))
	require.ErrorContains(t, err, "max_age is 1h0m0s and not 0s")
}

// A consumer of somebody else takes ids that belfry never sees.
func TestBroker_CheckFindsForeignConsumers(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.StartNATS(t, 1))
	warnings, err := b.Check(t.Context())
	require.NoError(t, err)
	require.Empty(t, warnings)
	_, err = b.stream(t, outbox.Bulk).CreateConsumer(t.Context(), natsjs.ConsumerConfig{
		Durable: "theirs", AckPolicy: natsjs.AckExplicitPolicy, FilterSubject: b.config.Prefix + ".bulk.state",
	})
	require.NoError(t, err)
	warnings, err = b.Check(t.Context())
	require.NoError(t, err)
	require.Len(t, warnings, 1)
	require.Contains(t, warnings[0], "a consumer theirs that is not belfry's")
}

// What an operator sees of two workers, one of which holds copies.
func TestBroker_TellsWhatIsInside(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.StartNATS(t, 1))
	c := b.worker(t, "r1", all)
	b.worker(t, "r2", all)
	push(t, c, nth(1, keys(10)))
	got := receive(t, c, 4)
	b.until(t, "both answer", func(ctx context.Context) bool {
		list, err := b.Queues(ctx)
		require.NoError(t, err)
		q := list[1]
		if len(q.Workers) < 2 {
			return false
		}
		require.Equal(t, outbox.Bulk, q.Queue)
		require.Equal(t, outbox.Inside{Epoch: epoch, Last: 1, Oldest: 1}, q.Inside)
		require.Equal(t, []int64{6, 4, 0, 1000}, []int64{q.Ready, q.Taken, q.Later, q.Most})
		require.Equal(t, "r1", q.Workers[0].Name)
		require.Equal(t, int64(4), q.Workers[0].Taken)
		return true
	})
	require.NoError(t, c.Settled(t.Context(), []outbox.Settled{
		{Key: got[0].Key, Status: outbox.Pending, Wait: time.Minute}, // stays, and waits
		{Key: got[1].Key, Status: outbox.Pending, Wait: time.Hour},   // is pushed again then
		{Key: got[2].Key, Status: outbox.Dead},
		{Key: got[3].Key}, // nothing was recorded: comes again
	}))
	b.until(t, "the outcomes are heard", func(ctx context.Context) bool {
		list, err := b.Queues(ctx)
		require.NoError(t, err)
		return list[1].Taken == 0 && list[1].Later == 2 && list[1].Ready == 6
	})
	require.NoError(t, b.Empty(t.Context()))
	require.Equal(t, outbox.Inside{Oldest: 1}, inside(t, c))
	require.Zero(t, b.ready(t))
}

// What a message on our subjects says that somebody else has written stops nobody.
func TestBroker_DropsWhatItHasNotWritten(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.StartNATS(t, 1))
	c := b.worker(t, "r1", all)
	push(t, c, nth(1, keys(1)))
	_, err := b.js.Publish(t.Context(), b.config.Prefix+".bulk.ids", []byte("hello"))
	require.NoError(t, err)
	push(t, c, nth(2, keys(1)))
	require.Len(t, receive(t, c, 2), 2)
	require.Equal(t, 1, strings.Count(b.log.String(), "dropped an invalid copy"))
}

// CARRIERS.md 6: however often a copy is handed out and back, the server goes on with it: attempts
// are counted in PostgreSQL alone.
func TestBroker_HandsOutWithoutEnd(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.StartNATS(t, 1))
	var n int
	c := b.worker(t, "r1", func(copies []outbox.Copy) (answers []outbox.Answer, err error) {
		if n++; n < 30 {
			return []outbox.Answer{{Verdict: outbox.CopyLater, Wait: time.Millisecond}}, nil
		}
		return all(copies)
	})
	push(t, c, nth(1, keys(1)))
	require.Len(t, receive(t, c, 1), 1)
	require.Equal(t, 30, n)
}

// A server of before 2.12 is refused: it would take each message of a push by itself.
func TestBroker_RefusesAnOldServer(t *testing.T) {
	t.Parallel()
	for version, unfit := range map[string]bool{"2.9.10": true, "2.11.99": true, "2.12.0": false, "3.0.0": false, "new": true} {
		c := jetstream.DefaultConfig()
		c.URLs, c.Timeout = []string{"nats://" + greeter(t, version)}, 20*time.Second
		if !unfit {
			c.Timeout = 200 * time.Millisecond // it does not answer
		}
		b, err := jetstream.New(c, jetstream.Options{MaxQueued: capacity, Lease: time.Minute})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, b.Close()) })
		_, err = b.Check(t.Context())
		require.Error(t, err, "it has no streams")
		require.Equal(t, !unfit, errors.Is(err, outbox.ErrAway), "%s: %v", version, err)
		if unfit {
			require.ErrorContains(t, err, version)
		}
	}
}

// greeter is the address of a server that says its version and answers pings.
func greeter(t testing.TB, version string) string {
	t.Helper()
	return dbtest.Serve(t, func(conn net.Conn) {
		_, _ = fmt.Fprintf(conn, "INFO {\"server_id\":\"x\",\"version\":%q,\"headers\":true,\"max_payload\":1048576}\r\n", version)
		for lines := bufio.NewScanner(conn); lines.Scan(); {
			if lines.Text() == "PING" {
				_, _ = fmt.Fprint(conn, "PONG\r\n")
			}
		}
	})
}

// Over TLS the servers are who the authority says, and so is belfry.
func TestBroker_SpeaksTLS(t *testing.T) {
	t.Parallel()
	files := dbtest.NewCertificates(t)
	server := dbtest.StartNATS(t, 1, fmt.Sprintf("tls { cert_file: %q, key_file: %q, ca_file: %q, verify: true }", files.Cert, files.Key, files.CA))[0]
	check := func(tls jetstream.TLSConfig, patience time.Duration) error {
		c := jetstream.DefaultConfig()
		c.URLs, c.Replicas, c.TLS, c.Timeout = []string{server.URL}, 1, tls, 20*time.Second
		b, err := jetstream.New(c, jetstream.Options{MaxQueued: capacity, Lease: time.Minute})
		require.NoError(t, err)
		defer func() { require.NoError(t, b.Close()) }()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err = b.Check(ctx)
		return err
	}
	require.NoError(t, check(jetstream.TLSConfig{CA: files.CA, Cert: files.Cert, Key: files.Key}, patience))
	for wait := 100 * time.Millisecond; ; wait *= 2 { // it tries until the time is over
		err := check(jetstream.TLSConfig{}, wait)
		require.Error(t, err)
		if strings.Contains(err.Error(), "certificate signed by unknown authority") {
			break
		}
		require.Less(t, wait, patience, "%v", err)
	}
	require.Error(t, check(jetstream.TLSConfig{CA: files.CA}, 100*time.Millisecond), "without a certificate of its own")
}
