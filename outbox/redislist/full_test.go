package redislist_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/redislist"
)

// memory sets maxmemory to a share of what is in use, and returns what SET answers then.
func (s *server) memory(t testing.TB, share float64) string {
	t.Helper()
	_, text, _ := strings.Cut(s.client.Info(t.Context(), "memory").Val(), "used_memory:")
	text, _, _ = strings.Cut(text, "\r")
	used, err := strconv.ParseFloat(text, 64)
	require.NoError(t, err)
	require.NoError(t, s.client.ConfigSet(t.Context(), "maxmemory", strconv.Itoa(int(used*share))).Err())
	return s.Do(t, "SET", "filler", "x")
}

// Sentence 2: at 80 % of maxmemory pushes are full; when the memory is full, what is inside is
// taken, deferred, moved and removed all the same, and the worker shows that it lives.
func TestCarrier_AFullServerDrains(t *testing.T) {
	t.Parallel()
	s := start(t)
	b := s.broker(t, "", func(o *redislist.Options) { o.MaxQueued = 10_000 })
	c := b.Carrier("r1", claimer(outbox.CopyClaimed))
	for n := range int64(3) {
		require.Equal(t, outbox.PushDone, pushed(t, c, n+1, 7+n, 1000))
	}
	require.Equal(t, "+OK", s.memory(t, 1.2))
	require.Equal(t, outbox.PushFull, pushed(t, c, 4, 10, 10))
	queues, err := b.Queues(t.Context())
	require.NoError(t, err)
	require.True(t, queues[1].Full)
	require.Equal(t, outbox.Inside{Epoch: "e", Last: 3, Oldest: 1}, queues[1].Inside)

	require.Contains(t, s.memory(t, 0.5), "-OOM")
	require.ErrorContains(t, s.client.BLMove(t.Context(), bulk+"main", bulk+"main", "LEFT", "LEFT", time.Second).Err(), "OOM")
	defer keep(t, c)()
	for round := range 2 {
		var outcomes []outbox.Settled
		for i, m := range receive(t, c, &credits{}, 3000>>round) {
			o := outbox.Settled{Key: m.Key, Status: outbox.Sent}
			if round == 0 && i%2 == 0 {
				o.Status, o.Wait = outbox.Pending, 200*time.Millisecond
			} else if i%10 == 0 {
				o.Status = outbox.Dead
			}
			outcomes = append(outcomes, o)
		}
		require.NoError(t, c.Settled(t.Context(), outcomes))
		require.Contains(t, s.Do(t, "SET", "filler", "x"), "-OOM")
	}
	require.Zero(t, s.copies(t))
	require.Zero(t, s.processing(t, "r1"))
	require.Len(t, s.client.ZRange(t.Context(), bulk+"workers", 0, -1).Val(), 1)
	_, err = b.Check(t.Context())
	require.NoError(t, err, "it is full, and not unfit")

	// One that waits finds what comes when there is memory again.
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	got := make(chan int, 1)
	go func() {
		claimed, _ := c.Receive(ctx, &credits{})
		got <- len(claimed)
	}()
	require.Equal(t, outbox.PushFull, pushed(t, c, 4, 10, 10))
	require.Equal(t, "+OK", s.memory(t, 10))
	require.Equal(t, outbox.PushDone, pushed(t, c, 4, 10, 10))
	require.Equal(t, 10, <-got)
}

// Sentence 2, 19: a push fits into an empty queue, however small MaxQueued is.
func TestPush_FitsIntoAnEmptyQueue(t *testing.T) {
	t.Parallel()
	s := start(t)
	c := s.broker(t, "", func(o *redislist.Options) { o.MaxQueued = 1 }).Carrier("r1", claimer(outbox.CopyClaimed))
	require.Equal(t, outbox.PushDone, pushed(t, c, 1, 7, 1000))
	require.Equal(t, outbox.PushFull, pushed(t, c, 2, 8, 1))
	defer keep(t, c)()
	receive(t, c, &credits{}, 1000)
	require.Equal(t, outbox.PushDone, pushed(t, c, 2, 8, 1000))
	_, err := redislist.New(s.config(), redislist.Options{})
	require.ErrorContains(t, err, "delivery.max_queued: 0 is not allowed; allowed values: 1 or more")
}

// What operators see of each queue, and what is left when it was emptied.
func TestBroker_TellsWhatIsInside(t *testing.T) {
	t.Parallel()
	s := start(t)
	b := s.broker(t, "", nil)
	queues, err := b.Queues(t.Context())
	require.NoError(t, err)
	require.Equal(t, []outbox.QueueStatus{{Queue: outbox.Activities, Inside: outbox.Inside{Oldest: 1}}, {Queue: outbox.Bulk, Inside: outbox.Inside{Oldest: 1}}}, queues)

	c := b.Carrier("r1", claimer(outbox.CopyClaimed))
	stop := keep(t, c)
	pushed(t, c, 1, 7, 3)
	got := receive(t, c, &credits{}, 3)
	pushed(t, c, 2, 8, 5)
	require.NoError(t, c.Settled(t.Context(), []outbox.Settled{
		{Key: got[0].Key, Status: outbox.Dead}, {Key: got[1].Key, Status: outbox.Pending, Wait: time.Hour},
	}))
	queues, err = b.Queues(t.Context())
	require.NoError(t, err)
	require.Len(t, queues[1].Workers, 1)
	require.WithinDuration(t, time.Now(), queues[1].Workers[0].Seen, patience)
	queues[1].Workers[0].Seen = time.Time{}
	require.Equal(t, outbox.QueueStatus{
		Queue: outbox.Bulk, Inside: outbox.Inside{Epoch: "e", Last: 2, Oldest: 1}, Ready: 5, Later: 1, Taken: 1, Dead: 1,
		Workers: []outbox.WorkerStatus{{Name: "r1", Taken: 1}},
	}, queues[1])

	stop() // what it has and did not settle is another's to claim
	require.Equal(t, 7, s.copies(t))
	require.NoError(t, s.client.HSet(t.Context(), bulk+"processing:gone", "x", 1).Err())
	require.NoError(t, s.client.Set(t.Context(), "else", 1, 0).Err())
	require.NoError(t, b.Empty(t.Context()))
	require.Equal(t, []string{"else"}, s.client.Keys(t.Context(), "*").Val())
}

// Check does everything once, and leaves nothing. A user who may not is told what to allow.
func TestBroker_CheckTriesWhatTheUserMay(t *testing.T) {
	t.Parallel()
	s := start(t)
	warnings, err := s.broker(t, "", nil).Check(t.Context())
	require.NoError(t, err)
	require.Contains(t, strings.Join(warnings, "\n"), "maxmemory is not set")
	require.Empty(t, s.client.Keys(t.Context(), "*").Val())

	rights := []string{"~{belfry:*", "+@list", "+@hash", "+@sortedset", "+eval", "+evalsha", "+get", "+set", "+del", "+unlink", "+scan", "+time", "+info"}
	url := strings.Replace(s.URL, "//", "//bell:s3cret@", 1)
	s.Do(t, append([]string{"ACL", "SETUSER", "bell", "on", ">s3cret"}, rights...)...)
	b := s.broker(t, url, nil)
	_, err = b.Check(t.Context())
	require.NoError(t, err)
	c := b.Carrier("r1", claimer(outbox.CopyClaimed))
	defer keep(t, c)()
	pushed(t, c, 1, 7, 10)
	require.Len(t, receive(t, c, &credits{}, 10), 10)

	s.Do(t, "ACL", "SETUSER", "bell", "-eval") // the server knows the scripts, until it forgets them
	_, err = b.Check(t.Context())
	require.ErrorContains(t, err, "no permissions to run the 'eval' command")
	s.Do(t, "ACL", "SETUSER", "bell", "+eval", "-zadd")
	_, err = b.Check(t.Context())
	require.ErrorContains(t, err, "delivery.redis.url: the user lacks permissions")
	require.ErrorContains(t, err, "ACL SETUSER … ~{belfry:*")
	require.NotContains(t, err.Error(), "s3cret")
	require.Empty(t, s.client.Keys(t.Context(), "{belfry:check}*").Val())
	require.NoError(t, s.client.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err())
	_, err = b.Check(t.Context())
	require.ErrorContains(t, err, "allowed is noeviction")
	require.NotErrorIs(t, err, outbox.ErrAway)
	require.NoError(t, s.Stop())
	_, err = b.Check(t.Context())
	require.ErrorIs(t, err, outbox.ErrAway)
}

// Relays that start at the same time share the queue that each tries, and empty it for one another.
// None of them takes that for a right that it has not.
func TestLong_BrokerChecksBesideOthers(t *testing.T) {
	t.Parallel()
	s := start(t)
	b := s.broker(t, "", nil)
	done := make(chan struct{})
	var others errgroup.Group
	others.Go(func() error {
		for {
			select {
			case <-done:
				return nil
			default:
			}
			if err := s.client.Unlink(t.Context(), "{belfry:check}:main").Err(); err != nil {
				return err
			}
		}
	})
	for range 3 {
		_, err := b.Check(t.Context())
		require.NoError(t, err)
	}
	close(done)
	require.NoError(t, others.Wait())
}
