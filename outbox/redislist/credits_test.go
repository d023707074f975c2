package redislist_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/redislist"
)

// credits are what a test grants: without end, but for one job.
type credits struct {
	without int64
	changed chan struct{}
}

func (*credits) Activities() int            { return 1000 }
func (*credits) Bulk() int                  { return 1000 }
func (*credits) Idle() bool                 { return true }
func (c *credits) Changed() <-chan struct{} { return c.changed }

func (c *credits) Job(id int64, _ string, _ int) int {
	if id == c.without {
		return 0
	}
	return 1000
}

// claimer answers what a claim says of every copy.
func claimer(v outbox.CopyVerdict) outbox.Claim {
	return func(copies []outbox.Copy) ([]outbox.Answer, error) {
		answers := make([]outbox.Answer, len(copies))
		for i, c := range copies {
			answers[i] = outbox.Answer{Verdict: v, Claimed: outbox.Claimed{Key: c.Key, LeaseID: 1}}
		}
		return answers, nil
	}
}

// keep runs what a carrier does beside Receive.
func keep(t testing.TB, c outbox.Carrier) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Keep(ctx)
	}()
	return func() {
		cancel()
		<-ended
	}
}

// pushed makes push n of bulk, of so many ids of a job.
func pushed(t testing.TB, c outbox.Carrier, n, job int64, ids int) outbox.PushAnswer {
	t.Helper()
	p := outbox.PushGroup{Queue: outbox.Bulk, Epoch: "e", First: 1, Number: n, Lane: "a/b"}
	for i := range ids {
		p.Keys = append(p.Keys, outbox.Key{JobID: job, ChannelID: int64(i + 1)})
	}
	answer, err := c.Push(t.Context(), p)
	require.NoError(t, err)
	return answer
}

// receive receives n messages.
func receive(t testing.TB, c outbox.Carrier, of outbox.Credits, n int) (got []outbox.Claimed) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for len(got) < n {
		claimed, err := c.Receive(ctx, of)
		require.NoError(t, err, "%d of %d came", len(got), n)
		got = append(got, claimed...)
	}
	return got
}

// Ids of a job without credit hide no others, however many there are; with credit they come.
func TestReceive_PassesJobsWithoutCredit(t *testing.T) {
	t.Parallel()
	s := start(t)
	b := s.broker(t, "", func(o *redislist.Options) { o.MaxQueued = 10_000 })
	b.Held(20*time.Millisecond, 200*time.Millisecond)
	c := b.Carrier("r1", claimer(outbox.CopyClaimed))
	defer keep(t, c)()
	for n := range int64(3) {
		pushed(t, c, n+1, 1, 1000)
	}
	pushed(t, c, 4, 2, 10)
	without := &credits{without: 1}
	for _, m := range receive(t, c, without, 10) {
		require.Equal(t, int64(2), m.JobID)
	}
	require.Len(t, receive(t, c, &credits{}, 3000), 3000)
	require.Zero(t, s.copies(t))
	require.Equal(t, 3010, s.processing(t, "r1"))
}

// An item that nobody here has written does not stay in the way.
func TestReceive_KeepsWhatItCannotReadForALook(t *testing.T) {
	t.Parallel()
	s := start(t)
	b := s.broker(t, "", nil)
	c := b.Carrier("r1", claimer(outbox.CopyClaimed))
	defer keep(t, c)()
	pushed(t, c, 1, 7, 3)
	require.NoError(t, s.client.LPush(t.Context(), bulk+"main", "nonsense", "1/2", "").Err())
	require.Len(t, receive(t, c, &credits{}, 3), 3)
	require.Equal(t, int64(3), s.client.LLen(t.Context(), bulk+"dead").Val())
}

// The claim decides what is DEAD: only what was recorded so is kept, the last thousand.
func TestSettled_KeepsDeadOnesForALook(t *testing.T) {
	t.Parallel()
	s := start(t)
	c := s.broker(t, "", func(o *redislist.Options) { o.MaxQueued = 10_000 }).Carrier("r1", claimer(outbox.CopyClaimed))
	defer keep(t, c)()
	var dead []outbox.Settled
	for n := range int64(2) {
		pushed(t, c, n+1, n+1, 600)
	}
	for _, m := range receive(t, c, &credits{}, 1200) {
		dead = append(dead, outbox.Settled{Key: m.Key, Status: outbox.Dead})
	}
	require.NoError(t, c.Settled(t.Context(), dead))
	require.Equal(t, int64(1000), s.client.LLen(t.Context(), bulk+"dead").Val())
	require.Zero(t, s.processing(t, "r1"))

	known := s.broker(t, "", nil).Carrier("r3", func(copies []outbox.Copy) ([]outbox.Answer, error) {
		answers, err := claimer(outbox.CopyFinished)(copies)
		for i := range answers {
			answers[i].Dead = i == 0
		}
		return answers, err
	})
	require.NoError(t, s.client.Del(t.Context(), bulk+"dead").Err())
	pushed(t, known, 3, 3, 10)
	s.drop(t, known, "r3")
	require.Equal(t, int64(1), s.client.LLen(t.Context(), bulk+"dead").Val())

	finished := s.broker(t, "", nil).Carrier("r2", claimer(outbox.CopyFinished))
	require.NoError(t, s.client.Del(t.Context(), bulk+"dead").Err())
	pushed(t, finished, 4, 4, 10)
	s.drop(t, finished, "r2")
	require.Zero(t, s.client.LLen(t.Context(), bulk+"dead").Val())
}

// drop receives as a worker until no copy is left, and nothing comes.
func (s *server) drop(t testing.TB, c outbox.Carrier, worker string) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() {
		_, err := c.Receive(ctx, &credits{})
		ended <- err
	}()
	require.Eventually(t, func() bool { return s.copies(t)+s.processing(t, worker) == 0 }, patience, time.Millisecond)
	stop()
	require.ErrorIs(t, <-ended, context.Canceled)
}
