package redislist_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/redislist"
)

// Items that belfry has not written do not hide the ids behind them, however many there are, and leave
// the queue.
func TestReceive_RemovesForeignItems(t *testing.T) {
	t.Parallel()
	for name, item := range map[string]string{
		"a word for the job":      "000000000001/foo%d/1/default",
		"a job with a zero first": "000000000001/00%d/1/default",
		"a job of 20 digits":      "000000000001/9999999999999999%d/1/default",
		"a job of 19 digits":      "000000000001/999999999999999%d/1/default",
		"an activity":             "000000000001/-%d/1/default",
		"a word for the channel":  "000000000001/1/a%d/default",
		"no item at all":          "hello %d",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			c := s.broker(t, "", func(o *redislist.Options) { o.MaxQueued = 10_000 }).Carrier("r1", onlyJob(7))
			defer keep(t, c)()
			pushed(t, c, 1, 7, 20)
			items := make([]any, 1200)
			for i := range items {
				items[i] = fmt.Sprintf(item, i+1000)
			}
			require.NoError(t, s.client.LPush(t.Context(), bulk+"main", items...).Err())
			require.NoError(t, s.client.LPush(t.Context(), activities+"main", "000000000001/7/1/default").Err())
			for _, m := range receive(t, c, &credits{}, 20) {
				require.Equal(t, int64(7), m.Key.JobID)
			}
			require.Equal(t, 20, s.processing(t, "r1"))
			require.EqualValues(t, 1, s.client.LLen(t.Context(), activities+"dead").Val())
			require.Zero(t, s.copies(t))
		})
	}
}

// onlyJob claims the copies of one job; no other message is QUEUED.
func onlyJob(id int64) outbox.Claim {
	claim := claimer(outbox.CopyClaimed)
	return func(copies []outbox.Copy) ([]outbox.Answer, error) {
		answers, err := claim(copies)
		for i, c := range copies {
			if c.JobID != id {
				answers[i] = outbox.Answer{Verdict: outbox.CopyNotQueued}
			}
		}
		return answers, err
	}
}

// Foreign items that wait, or that a worker seems to have taken, break neither the status nor the
// return of a dead worker's ids.
func TestInside_ForeignItems(t *testing.T) {
	t.Parallel()
	s := start(t)
	b := s.broker(t, "", nil)
	b.Pace(soonTick, soonDead, neverAged)
	c := b.Carrier("r1", claimer(outbox.CopyClaimed))
	pushed(t, c, 1, 7, 3)
	for i, word := range []string{"hello", "a later word"} {
		far := redis.Z{Score: float64(time.Now().Add(time.Hour).UnixMilli() + int64(i)), Member: word}
		require.NoError(t, s.client.ZAdd(t.Context(), bulk+"waiting", far).Err())
	}
	in, err := c.Inside(t.Context(), outbox.Bulk)
	require.NoError(t, err)
	require.Equal(t, outbox.Inside{Epoch: "e", Last: 1, Oldest: 1}, in)
	require.NoError(t, s.client.HSet(t.Context(), bulk+"processing:gone", "000000000001/7/9/a", "when").Err())
	require.NoError(t, s.client.ZAdd(t.Context(), bulk+"workers", redis.Z{Score: 1, Member: "gone"}).Err())
	defer keep(t, c)()
	receive(t, c, &credits{}, 4)
	require.Zero(t, s.processing(t, "gone"))
}
