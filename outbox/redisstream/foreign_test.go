package redisstream_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/outbox"
)

// Members of waiting that belfry has not written are removed, and keep no copy from its move: each is
// added to the stream once.
func TestMove_RemovesForeignMembers(t *testing.T) {
	t.Parallel()
	b, w := open(t, dbtest.StartRedis(t).URL, "strange", many), newTruth()
	b.Hurry(10*time.Millisecond, patience, patience)
	c := b.Carrier("r1", w.as("r1"))
	keep(t, c)
	(&pusher{to: c}).push(t, 10)
	require.NoError(t, c.Settled(t.Context(), settled(receive(t, c, 10), outbox.Pending, 100*time.Millisecond)))
	for i, member := range []string{"hostile", "1 2", "1 2 x a", fmt.Sprintf("1 2 %0400d a", 1), "\n"} {
		for _, at := range []float64{1, float64(time.Now().UnixMilli() + int64(60*i))} { // before, between and after
			require.NoError(t, b.Client().ZAdd(t.Context(), b.Keys().Waiting, redis.Z{Score: at, Member: fmt.Sprint(member, at)}).Err())
		}
	}
	w.forget()
	require.NoError(t, c.Settled(t.Context(), sent(receive(t, c, 10))))
	eventually(t, "nothing waits", func() bool { return b.Client().ZCard(t.Context(), b.Keys().Waiting).Val() == 0 })
	info, err := b.Client().XInfoStream(t.Context(), b.Keys().Stream).Result()
	require.NoError(t, err)
	require.EqualValues(t, 20, info.EntriesAdded, "ten were pushed, and moved once")
	require.Equal(t, 20, w.asked)
}

// Entries that belfry has not written do not hide the pushes behind them, and are removed.
func TestInside_PassesForeignEntries(t *testing.T) {
	t.Parallel()
	b, w := open(t, dbtest.StartRedis(t).URL, "strange", many), newTruth()
	c := b.Carrier("r1", w.as("r1"))
	add := func(values ...any) {
		require.NoError(t, b.Client().XAdd(t.Context(), &redis.XAddArgs{Stream: b.Keys().Stream, Values: values}).Err())
	}
	p := &pusher{to: c}
	p.push(t, 1)
	require.NoError(t, c.Settled(t.Context(), sent(receive(t, c, 1))))
	for i := range 10 {
		add("c", fmt.Sprint("hostile", i))
		add("other", "1", "c", "2")
	}
	require.EqualValues(t, 2, inside(t, c).Oldest)
	p.push(t, 1)
	p.push(t, 1)
	require.EqualValues(t, 2, inside(t, c).Oldest)
	for i := range 1000 {
		add("c", fmt.Sprint("hostile", i))
	}
	require.EqualValues(t, 2, inside(t, c).Oldest)
	stop := receiveAll(t, c, &room{10})
	eventually(t, "all has left", func() bool {
		return len(pending(t, b)) == 0 && b.Client().XLen(t.Context(), b.Keys().Stream).Val() == 0
	})
	stop()
	for i := range 1000 {
		add("c", fmt.Sprint("hostile", i))
	}
	p.push(t, 1)
	require.EqualValues(t, 1, inside(t, c).Oldest, "too many to know")
}
