package redisstream_test

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/redisstream"
)

// An answer that is lost on its way strands nothing: what the server had delivered is read as
// the worker's own, without anybody's waiting for it to be idle (sentences 3, 4).
func TestReceive_AnswerOfATakeIsLost(t *testing.T) {
	t.Parallel()
	server := dbtest.StartRedis(t)
	proxy := dbtest.StartProxy(t, server.Addr)
	for round := range 3 {
		w := newTruth()
		c := open(t, "redis://"+proxy.Addr, fmt.Sprint("lost", round), many).Carrier("r1", w.as("r1"))
		(&pusher{to: c}).push(t, 50)
		var dropped atomic.Int64
		proxy.Lose(func(request []byte) dbtest.Fault {
			if bytes.Contains(bytes.ToLower(request), []byte("xreadgroup")) && bytes.Contains(request, []byte("\r\n>\r\n")) && dropped.Add(1) == 1 {
				return dbtest.DropReply
			}
			return dbtest.Pass
		})
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		for n := 0; n < 50; {
			claimed, _ := c.Receive(ctx, &room{n: 1000})
			require.NoError(t, ctx.Err(), "round %d: %d of 50 came", round, n)
			require.NoError(t, c.Settled(t.Context(), sent(claimed)))
			n += len(claimed)
		}
		cancel()
		require.Positive(t, dropped.Load())
		require.Equal(t, 50, w.asked, "none was delivered to it twice")
		proxy.Lose(nil)
		keep(t, c)()
	}
}

// The connection is cut before, and after, each kind of command: everything is settled once.
func TestLong_CarrierConnectionCutAtEachCommand(t *testing.T) {
	t.Parallel()
	server := dbtest.StartRedis(t)
	for _, command := range []string{"xreadgroup", "evalsha", "client"} {
		for how, fault := range map[string]dbtest.Fault{"cut": dbtest.Cut, "dropped": dbtest.DropReply} {
			t.Run(command+" "+how, func(t *testing.T) {
				t.Parallel()
				proxy := dbtest.StartProxy(t, server.Addr)
				w := newTruth()
				b := open(t, "redis://"+proxy.Addr, command+"-"+how, many)
				b.Hurry(50*time.Millisecond, patience, patience)
				c := b.Carrier("r1", w.as("r1"))
				keep(t, c)
				var n atomic.Int64
				proxy.Lose(func(request []byte) dbtest.Fault {
					if bytes.Contains(bytes.ToLower(request), []byte(command)) && n.Add(1)%5 == 0 && n.Load() < 100 {
						return fault
					}
					return dbtest.Pass
				})
				stop := receiveAll(t, c, &room{20})
				p := outbox.PushGroup{Queue: outbox.Bulk, Epoch: epoch, First: 1, Lane: "a"}
				for p.Number = 1; p.Number <= 20; {
					p.Keys = nil
					for i := range 10 {
						p.Keys = append(p.Keys, outbox.Key{JobID: p.Number, ChannelID: int64(i + 1)})
					}
					answer, err := c.Push(t.Context(), p)
					if err == nil {
						require.Equal(t, outbox.PushDone, answer, "push %d", p.Number)
						p.Number++
					}
				}
				eventually(t, "all is claimed", func() bool { return w.by()["r1"] == 200 })
				// What was claimed and its settling lost is claimed once more, as finished.
				eventually(t, "all has left", func() bool {
					in, err := c.Inside(t.Context(), outbox.Bulk)
					return err == nil && in.Last == 20 && in.Oldest == 21
				})
				stop()
			})
		}
	}
}

// A worker that is started again under its name goes on with what it had taken out.
func TestReceive_OwnEntriesFirstAtTheStart(t *testing.T) {
	t.Parallel()
	b, w := open(t, dbtest.StartRedis(t).URL, "own", many), newTruth()
	first := b.Carrier("r1", w.as("r1"))
	keys := (&pusher{to: first}).push(t, 30)
	require.NoError(t, b.Client().XGroupCreate(t.Context(), b.Keys().Stream, "belfry", "0").Err())
	require.NoError(t, b.Client().XReadGroup(t.Context(), &redis.XReadGroupArgs{
		Group: "belfry", Consumer: "r1", Streams: []string{b.Keys().Stream, ">"}, Count: 10, Block: -1,
	}).Err())
	again := b.Carrier("r1", w.as("r1"))
	keep(t, again)
	got := receive(t, again, 10)
	for i := range got {
		require.Contains(t, keys[:10], got[i].Key)
	}
	require.NoError(t, again.Settled(t.Context(), sent(append(got, receive(t, again, 20)...))))
	require.Empty(t, pending(t, b))
}

// An entry that somebody deletes or trims while it is taken out, or before, is no entry any
// more: it is acknowledged, and Inside does not count it (sentence 12).
func TestReceive_EntriesThatAreDeleted(t *testing.T) {
	t.Parallel()
	for how, remove := range map[string]func(t *testing.T, b *redisstream.Broker, ids []string){
		"deleted": func(t *testing.T, b *redisstream.Broker, ids []string) {
			t.Helper()
			require.NoError(t, b.Client().XDel(t.Context(), b.Keys().Stream, ids...).Err())
		},
		"trimmed": func(t *testing.T, b *redisstream.Broker, _ []string) {
			t.Helper()
			require.NoError(t, b.Client().XTrimMaxLen(t.Context(), b.Keys().Stream, 0).Err())
		},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			b, w := open(t, dbtest.StartRedis(t).URL, "gone", many), newTruth()
			b.Hurry(20*time.Millisecond, patience, 100*time.Millisecond)
			dead := b.Carrier("dead", w.as("dead"))
			p := &pusher{to: dead}
			p.push(t, 20)
			require.NoError(t, b.Client().XGroupCreate(t.Context(), b.Keys().Stream, "belfry", "0").Err())
			for _, consumer := range []string{"dead", "r1"} { // 8 each, and 4 that nobody has taken out
				require.NoError(t, b.Client().XReadGroup(t.Context(), &redis.XReadGroupArgs{
					Group: "belfry", Consumer: consumer, Streams: []string{b.Keys().Stream, ">"}, Count: 8, Block: -1,
				}).Err())
			}
			var ids []string
			for id := range entries(t, b) {
				ids = append(ids, id)
			}
			remove(t, b, ids)
			p.push(t, 5)
			c := b.Carrier("r1", w.as("r1"))
			keep(t, c)
			require.NoError(t, c.Settled(t.Context(), sent(receive(t, c, 5))))
			stop := receiveAll(t, c, &room{10})
			eventually(t, "nothing is pending", func() bool { return len(pending(t, b)) == 0 })
			require.Equal(t, outbox.Inside{Epoch: epoch, Last: 2, Oldest: 3}, inside(t, c))
			stop()
		})
	}
}

// Only what all have dealt with is trimmed, whatever was acknowledged above it (sentence 13).
func TestInside_TrimsBelowTheLowestPending(t *testing.T) {
	t.Parallel()
	b, w := open(t, dbtest.StartRedis(t).URL, "trim", many), newTruth()
	c := b.Carrier("r1", w.as("r1"))
	p := &pusher{to: c}
	for range 4 {
		p.push(t, 5)
	}
	keep(t, c)
	ctx, stream := t.Context(), b.Keys().Stream
	receive(t, c, 15)
	var ids []string
	for _, e := range pending(t, b) {
		ids = append(ids, e.ID)
	}
	// Somebody acknowledges entries and leaves them there, as a failover may.
	require.NoError(t, b.Client().XAck(ctx, stream, "belfry", append(ids[:6:6], ids[8:]...)...).Err())
	require.Equal(t, outbox.Inside{Epoch: epoch, Last: 4, Oldest: 2}, inside(t, c))
	require.EqualValues(t, 14, b.Client().XLen(ctx, stream).Val(), "six were below the lowest pending one")
	require.NoError(t, b.Client().XAck(ctx, stream, "belfry", ids[6:8]...).Err())
	require.Equal(t, outbox.Inside{Epoch: epoch, Last: 4, Oldest: 4}, inside(t, c))
	require.EqualValues(t, 5, b.Client().XLen(ctx, stream).Val(), "with nothing pending, what is not delivered stays")

	// The group falls back to an earlier last-delivered id: nothing is trimmed of what it delivers again.
	last := receive(t, c, 5)
	ids = nil
	for _, e := range pending(t, b) {
		ids = append(ids, e.ID)
	}
	require.NoError(t, b.Client().XAck(ctx, stream, "belfry", ids[:4]...).Err())
	require.NoError(t, b.Client().XGroupSetID(ctx, stream, "belfry", ids[1]).Err())
	require.Equal(t, outbox.Inside{Epoch: epoch, Last: 4, Oldest: 4}, inside(t, c))
	require.EqualValues(t, 3, b.Client().XLen(ctx, stream).Val())
	require.NoError(t, c.Settled(ctx, sent(last)))
}

// What is claimed and was deferred has its push as before, wherever it is.
func TestInside_CountsWhatHasWaited(t *testing.T) {
	t.Parallel()
	b, w := open(t, dbtest.StartRedis(t).URL, "waited", many), newTruth()
	c := b.Carrier("r1", w.as("r1"))
	p := &pusher{to: c}
	first := p.push(t, 1)
	got := receive(t, c, 1)
	p.push(t, 3)
	require.NoError(t, c.Settled(t.Context(), sent(receive(t, c, 3))))
	require.EqualValues(t, 1, inside(t, c).Oldest, "claimed")
	require.NoError(t, c.Settled(t.Context(), settled(got, outbox.Pending, time.Hour)))
	require.EqualValues(t, 1, inside(t, c).Oldest, "waits")
	require.NoError(t, b.Client().ZAdd(t.Context(), b.Keys().Waiting, redis.Z{Score: 1, Member: redisstream.Text(first[0], 1, "a")}).Err())
	keep(t, c)
	eventually(t, "it is moved", func() bool { return len(entries(t, b)) == 1 })
	require.EqualValues(t, 1, inside(t, c).Oldest, "is in the stream again")
	lose(t, b, first)
	require.EqualValues(t, 3, inside(t, c).Oldest, "somebody has deleted it")
}
