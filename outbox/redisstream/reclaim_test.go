package redisstream_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/redisdb"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/redisstream"
)

// abandon has a consumer take out all that is in the bulk queue, and die.
func abandon(t testing.TB, b *redisstream.Broker, consumer string) (ids []string) {
	t.Helper()
	ctx, stream := t.Context(), b.Keys().Stream
	err := b.Client().XGroupCreate(ctx, stream, "belfry", "0").Err()
	if err != nil {
		require.ErrorContains(t, err, "BUSYGROUP")
	}
	for {
		answer, err := b.Client().XReadGroup(ctx, &redis.XReadGroupArgs{
			Group: "belfry", Consumer: consumer, Streams: []string{stream, ">"}, Count: 1000, Block: -1,
		}).Result()
		if err != nil {
			require.ErrorIs(t, err, redis.Nil)
			return ids
		}
		for _, m := range answer[0].Messages {
			ids = append(ids, m.ID)
		}
	}
}

// age has entries look as if they had been idle for an hour, after some deliveries.
func age(t testing.TB, b *redisstream.Broker, consumer string, deliveries int, ids ...string) {
	t.Helper()
	ageTo(t, b, time.Hour, consumer, deliveries, ids...)
}

// ageTo has them look as if they had been idle for so long.
func ageTo(t testing.TB, b *redisstream.Broker, idle time.Duration, consumer string, deliveries int, ids ...string) {
	t.Helper()
	for some := range slices.Chunk(ids, 1000) {
		args := []any{"XCLAIM", b.Keys().Stream, "belfry", consumer, 0}
		for _, id := range some {
			args = append(args, id)
		}
		args = append(args, "IDLE", idle.Milliseconds(), "RETRYCOUNT", deliveries, "JUSTID")
		require.NoError(t, b.Client().Do(t.Context(), args...).Err())
	}
}

// spread has three consumers whose ticks are 100 ms apart take over 30,000 idle entries, and
// returns how many each got.
func spread(t *testing.T, rule func(name string, alive []string) []string) (got [3]int) {
	t.Helper()
	const n = 30_000
	b, w := open(t, dbtest.StartRedis(t).URL, "spread", many), newTruth()
	b.Hurry(patience, 10*patience, time.Hour/2)
	var consumers [3]outbox.Carrier
	for i := range consumers {
		consumers[i] = b.Carrier(fmt.Sprint("r", i), w.as(fmt.Sprint("r", i)))
	}
	(&pusher{to: consumers[0]}).push(t, n)
	ids := abandon(t, b, "dead")
	require.Len(t, ids, n)
	age(t, b, "dead", 1, ids...)
	for i := range consumers { // all three live before the first looks
		_, err := b.Heartbeat(t.Context(), fmt.Sprint("r", i))
		require.NoError(t, err)
	}
	left := func() int {
		p, err := b.Client().XPending(t.Context(), b.Keys().Stream, "belfry").Result()
		require.NoError(t, err)
		return int(p.Consumers["dead"])
	}
	var all sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	over := make(chan struct{})
	for i, c := range consumers {
		all.Go(func() {
			rest(ctx, time.Duration(i)*100*time.Millisecond)
			for ctx.Err() == nil {
				name := fmt.Sprint("r", i)
				alive, err := b.Heartbeat(ctx, name)
				if err == nil {
					_, err = redisstream.Reclaim(ctx, c, rule(name, alive))
				}
				if err != nil {
					t.Errorf("%v", err)
					return
				}
				select {
				case <-over:
					return
				default:
					rest(ctx, 300*time.Millisecond)
				}
			}
		})
	}
	eventually(t, "all are taken over", func() bool { return left() == 0 || t.Failed() })
	close(over)
	all.Wait()
	p, err := b.Client().XPending(t.Context(), b.Keys().Stream, "belfry").Result()
	require.NoError(t, err)
	for i := range got {
		got[i] = int(p.Consumers[fmt.Sprint("r", i)])
	}
	require.Equal(t, n, got[0]+got[1]+got[2])
	return got
}

// Of 30,000 entries that are taken over each of three consumers gets a third, within a tenth of
// it, although the first of them polls 100 ms before the next.
func TestLong_ReclaimSpreadsOverLiveConsumers(t *testing.T) {
	t.Parallel()
	got := spread(t, func(_ string, alive []string) []string { return alive })
	t.Logf("rendezvous hashing: %v", got)
	for i, n := range got {
		require.InDelta(t, 10_000, n, 1000, "consumer %d", i)
	}
	naive := spread(t, func(name string, _ []string) []string { return []string{name} })
	t.Logf("whoever polls first: %v", naive)
}

func TestAssignee_IsStable(t *testing.T) {
	t.Parallel()
	names := []string{"a", "b", "c", "d"}
	moved, again := 0, 0
	for i := range 4000 {
		id := fmt.Sprintf("17%d-%d", i, i%7)
		was := redisstream.Assignee(id, 1, names)
		reversed := slices.Clone(names)
		slices.Reverse(reversed)
		require.Equal(t, was, redisstream.Assignee(id, 1, reversed), "whatever the order")
		without := redisstream.Assignee(id, 1, names[:3])
		if was != "d" {
			require.Equal(t, was, without, "a consumer that goes leaves the others what they have")
		} else {
			moved++
		}
		if redisstream.Assignee(id, 2, names) != was {
			again++
		}
	}
	require.InDelta(t, 1000, moved, 200)
	require.InDelta(t, 3000, again, 200, "what one does not get done is another's next, as a rule")
	require.Empty(t, redisstream.Assignee("1-1", 1, nil))
}

// While consumers disagree about who lives, and each believes that all is its own, each entry
// is one consumer's: it is not idle any more for the next.
func TestReclaim_OneWinsWhereConsumersDisagree(t *testing.T) {
	t.Parallel()
	b, w := open(t, dbtest.StartRedis(t).URL, "disagree", many), newTruth()
	one, two := b.Carrier("r1", w.as("r1")), b.Carrier("r2", w.as("r2"))
	(&pusher{to: one}).push(t, 2000)
	b.Hurry(patience, patience, time.Hour/2)
	age(t, b, "dead", 1, abandon(t, b, "dead")...)
	var got [2]int
	var both sync.WaitGroup
	for i, c := range []outbox.Carrier{one, two} {
		both.Go(func() {
			n, err := redisstream.Reclaim(t.Context(), c, []string{fmt.Sprint("r", i+1)})
			if err != nil {
				t.Errorf("%v", err)
			}
			got[i] = n
		})
	}
	both.Wait()
	require.Equal(t, 2000, got[0]+got[1])
}

// What others take over has been idle for longer than a lease, whatever the lease is, and there is
// always one (sentence 14): an entry whose message is claimed is another's no sooner than the message.
func TestReclaim_NotBeforeTheLeaseIsOver(t *testing.T) {
	t.Parallel()
	url := dbtest.StartRedis(t).URL
	for _, lease := range []time.Duration{time.Second, time.Minute, time.Hour} {
		b, w := open(t, url, lease.String(), many, func(o *redisstream.Options) { o.Lease = 100 * lease }), newTruth()
		c := b.Carrier("r1", w.as("r1"))
		(&pusher{to: c}).push(t, 5)
		ids := abandon(t, b, "slow")
		for _, at := range []struct {
			idle time.Duration
			got  int
		}{{99 * lease, 0}, {100*lease + lease/10, 0}, {200 * lease, 5}} {
			ageTo(t, b, at.idle, "slow", 1, ids...)
			got, err := redisstream.Reclaim(t.Context(), c, []string{"r1"})
			require.NoError(t, err)
			require.Equal(t, at.got, got, "idle for %s under a lease of %s", at.idle, 100*lease)
		}
	}
	for _, lease := range []time.Duration{0, -time.Second} {
		_, err := redisstream.New(redisdb.DefaultConfig(), redisstream.Options{MaxQueued: 1, Lease: lease})
		require.ErrorContains(t, err, "delivery.lease: "+lease.String()+" is not allowed")
	}
}

// What is deleted is not asked to be claimed, page by page: servers before 7.0 answer that with an
// entry that is none and keep its id, later ones drop it, and both know the commands that
// are left (sentence 12). It is not pending any more.
func TestReclaim_ClaimsNothingThatIsDeleted(t *testing.T) {
	t.Parallel()
	const n = 1200 // three pages
	b, w := open(t, dbtest.StartRedis(t).URL, "deleted", many, func(o *redisstream.Options) { o.Lease = time.Minute }), newTruth()
	c := b.Carrier("r1", w.as("r1"))
	(&pusher{to: c}).push(t, n)
	ids := abandon(t, b, "dead")
	require.Len(t, ids, n)
	age(t, b, "dead", 1, ids...)
	require.NoError(t, b.Client().XDel(t.Context(), b.Keys().Stream, ids[:n/2]...).Err())
	require.NoError(t, b.Client().ConfigResetStat(t.Context()).Err())
	got, err := redisstream.Reclaim(t.Context(), c, []string{"r1"})
	require.NoError(t, err)
	require.Equal(t, n/2, got)
	left := pending(t, b)
	require.Len(t, left, n/2)
	for i, e := range left {
		require.Equal(t, []any{ids[n/2+i], "r1", int64(2)}, []any{e.ID, e.Consumer, e.RetryCount})
	}
	made := b.Client().Info(t.Context(), "commandstats").Val()
	require.Contains(t, made, fmt.Sprintf("cmdstat_xclaim:calls=%d,", n/2))
	require.Contains(t, made, fmt.Sprintf("cmdstat_xack:calls=%d,", n/2))
	require.NotContains(t, made, "xautoclaim")
}

// I8, I10: what a worker has taken out that dies is another's when it has been idle for longer
// than a lease, and is called for once.
func TestKeep_TakesOverWhatADeadWorkerHas(t *testing.T) {
	t.Parallel()
	b, w := open(t, dbtest.StartRedis(t).URL, "over", many), newTruth()
	b.Hurry(20*time.Millisecond, patience, 200*time.Millisecond)
	first := b.Carrier("r1", w.as("r1"))
	keys := (&pusher{to: first}).push(t, 300)
	abandon(t, b, "dead")
	for _, name := range []string{"r1", "r2"} {
		c := first
		if name == "r2" {
			c = b.Carrier(name, w.as(name))
		}
		keep(t, c)
		receiveAll(t, c, &room{1000})
	}
	eventually(t, "all is claimed", func() bool { by := w.by(); return by["r1"]+by["r2"] == len(keys) })
	eventually(t, "all has left", func() bool { return len(entries(t, b)) == 0 && copies(t, b) == 0 })
	require.NotEmpty(t, w.by()["r1"])
	require.NotEmpty(t, w.by()["r2"])
}

// A worker that was stopped past its heartbeat and goes on does no harm: what it had was taken
// over, and its consumer, which had nothing pending, is there again when it reads.
func TestKeep_WorkerThatWasStoppedForLong(t *testing.T) {
	t.Parallel()
	b, w := open(t, dbtest.StartRedis(t).URL, "stopped", many), newTruth()
	b.Hurry(20*time.Millisecond, 300*time.Millisecond, 500*time.Millisecond)
	slow := b.Carrier("slow", w.as("slow")) // without Keep: it shows no sign of life
	p := &pusher{to: slow}
	p.push(t, 10)
	had := receive(t, slow, 10)
	c := b.Carrier("r2", w.as("r2"))
	keep(t, c)
	stop := receiveAll(t, c, &room{100})
	eventually(t, "what it has is taken over", func() bool { return len(pending(t, b)) == 0 })
	eventually(t, "its consumer is deleted", func() bool {
		list, err := b.Client().XInfoConsumers(t.Context(), b.Keys().Stream, "belfry").Result()
		require.NoError(t, err)
		return !slices.ContainsFunc(list, func(i redis.XInfoConsumer) bool { return i.Name == "slow" })
	})
	stop()
	require.Equal(t, map[string]int{"slow": 10}, w.by(), "the claim decides")
	require.NoError(t, slow.Settled(t.Context(), settled(had[:5], outbox.Pending, 0)))
	require.NoError(t, slow.Settled(t.Context(), sent(had[5:])))
	eventually(t, "what is to be tried again is inside", func() bool { return len(entries(t, b)) == 5 })
	w.forget()
	keep(t, slow)
	require.Len(t, receive(t, slow, 5), 5)
}

// A consumer is deleted in the step that sees that nothing is pending for it and that it shows no
// sign of life (sentence 11).
func TestBeat_DeletesOnlyConsumersWithNothing(t *testing.T) {
	t.Parallel()
	b, w := open(t, dbtest.StartRedis(t).URL, "consumers", many), newTruth()
	b.Hurry(patience, 200*time.Millisecond, patience)
	c := b.Carrier("r1", w.as("r1"))
	ctx := t.Context()
	(&pusher{to: c}).push(t, 3)
	abandon(t, b, "dead, with something")
	for _, name := range []string{"dead", "alive"} {
		require.NoError(t, b.Client().XGroupCreateConsumer(ctx, b.Keys().Stream, "belfry", name).Err())
	}
	names := func() string {
		list, err := b.Client().XInfoConsumers(ctx, b.Keys().Stream, "belfry").Result()
		require.NoError(t, err)
		var names []string
		for _, i := range list {
			names = append(names, i.Name)
		}
		slices.Sort(names)
		return strings.Join(names, " | ")
	}
	alive, err := b.Heartbeat(ctx, "alive")
	require.NoError(t, err)
	require.Equal(t, []string{"alive"}, alive)
	require.Equal(t, "alive | dead, with something", names())
	require.Len(t, pending(t, b), 3)
	eventually(t, "a sign of life is over", func() bool {
		alive, err := b.Heartbeat(ctx, "r1")
		require.NoError(t, err)
		return len(alive) == 1
	})
	require.Equal(t, "dead, with something", names())

	b.Hurry(patience, patience, patience) // r1 must live until the next statement, on a busy machine too
	_, err = b.Heartbeat(ctx, "r1")
	require.NoError(t, err)
	list, err := b.Queues(ctx)
	require.NoError(t, err)
	for i := range list[1].Workers {
		list[1].Workers[i].Seen = list[1].Workers[i].Seen.Truncate(24 * 365 * time.Hour)
	}
	require.EqualValues(t, 3, list[1].Taken)
	require.Len(t, list[1].Workers, 2)
	require.Equal(t, outbox.WorkerStatus{Name: "dead, with something", Taken: 3}, list[1].Workers[1])
}

// A worker that stops in order is nobody's business any more, and what it had not claimed is
// there for the others at once.
func TestKeep_LeavesNothingBehind(t *testing.T) {
	t.Parallel()
	b, w := open(t, dbtest.StartRedis(t).URL, "leaves", many), newTruth()
	c := b.Carrier("r1", w.as("r1"))
	(&pusher{to: c}).push(t, 10)
	stop := keep(t, c)
	got := receive(t, c, 4)
	abandon(t, b, "r1") // it took them out, and did not hear of it
	eventually(t, "it lives", func() bool { return b.Client().ZCard(t.Context(), b.Keys().Consumers).Val() == 1 })
	require.NoError(t, c.Settled(t.Context(), sent(got)))
	stop()
	require.Empty(t, pending(t, b))
	require.Zero(t, b.Client().ZCard(t.Context(), b.Keys().Consumers).Val())
	require.Equal(t, 6, copies(t, b))
	other := b.Carrier("r2", w.as("r2"))
	keep(t, other)
	require.Len(t, receive(t, other, 6), 6)
}

// What was delivered often is PostgreSQL's to judge: only what is DEAD there goes to dead
// (sentence 6).
func TestReclaim_OnlyWhatIsDeadGoesToDead(t *testing.T) {
	t.Parallel()
	b, w := open(t, dbtest.StartRedis(t).URL, "dead", many), newTruth()
	b.Hurry(20*time.Millisecond, patience, 100*time.Millisecond)
	c := b.Carrier("r1", w.as("r1"))
	keys := (&pusher{to: c}).push(t, 9)
	ids := abandon(t, b, "dead")
	age(t, b, "dead", 100, ids[:6]...)
	w.answer(keys[:3], outbox.Answer{Verdict: outbox.CopyFinished, Dead: true})
	w.answer(keys[3:5], outbox.Answer{Verdict: outbox.CopyFinished})
	keep(t, c)
	got := receive(t, c, 4)
	require.NoError(t, c.Settled(t.Context(), settled(got[:1], outbox.Dead, 0)))
	require.NoError(t, c.Settled(t.Context(), sent(got[1:])))
	eventually(t, "nothing is pending", func() bool { return len(pending(t, b)) == 0 })
	var dead []string
	for _, m := range b.Client().XRange(t.Context(), b.Keys().Dead, "-", "+").Val() {
		dead = append(dead, m.Values["c"].(string))
	}
	want := []string{redisstream.Text(got[0].Key, 1, "a")}
	for _, k := range keys[:3] {
		want = append(want, redisstream.Text(k, 1, "a"))
	}
	require.ElementsMatch(t, want, dead)
	list, err := b.Queues(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 4, list[1].Dead)
}

// What a worker has claimed and not settled when it stops stays pending: its consumer is deleted
// only with nothing (sentence 11), and another takes that over, as one more delivery.
func TestKeep_LeavesWhatIsInFlightPending(t *testing.T) {
	t.Parallel()
	b, w := open(t, dbtest.StartRedis(t).URL, "flies", many), newTruth()
	b.Hurry(patience, 10*patience, 50*time.Millisecond)
	c := b.Carrier("r1", w.as("r1"))
	(&pusher{to: c}).push(t, 5)
	stop := keep(t, c)
	receive(t, c, 5)
	stop()
	left := pending(t, b)
	require.Len(t, left, 5, "they would be nobody's, and wait for the sweep")
	other := b.Carrier("r2", w.as("r2"))
	eventually(t, "they are taken over", func() bool {
		_, err := redisstream.Reclaim(t.Context(), other, []string{"r2"})
		require.NoError(t, err)
		p, err := b.Client().XPending(t.Context(), b.Keys().Stream, "belfry").Result()
		require.NoError(t, err)
		return p.Consumers["r2"] == 5
	})
	for i, e := range pending(t, b) {
		require.Equal(t, left[i].RetryCount+1, e.RetryCount, "JUSTID alone counts none, and who is chosen next goes by it (sentence 12)")
	}
}
