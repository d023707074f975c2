package redisstream_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/redisdb"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/redisstream"
)

// A stop does not wait out a take that is blocked, and what the take had brought is there for
// the others (sentence 8).
func TestReceive_StopUnblocks(t *testing.T) {
	t.Parallel()
	b, w := open(t, dbtest.StartRedis(t).URL, "stop", many), newTruth()
	b.Block(patience)
	c := b.Carrier("r1", w.as("r1"))
	keep(t, c)
	for range 3 {
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			_, err := c.Receive(ctx, &room{10})
			ended <- err
		}()
		eventually(t, "it is blocked", func() bool { return blocked(t, b) == 2 })
		stop()
		require.ErrorIs(t, <-ended, context.Canceled)
		eventually(t, "nothing is blocked", func() bool { return blocked(t, b) == 0 })
	}
	(&pusher{to: c}).push(t, 5)
	require.Len(t, receive(t, c, 5), 5)
}

// blocked counts the clients that wait.
func blocked(t testing.TB, b *redisstream.Broker) (n int) {
	t.Helper()
	info, err := b.Client().InfoMap(t.Context(), "clients").Result()
	require.NoError(t, err)
	n, err = strconv.Atoi(info["Clients"]["blocked_clients"])
	require.NoError(t, err)
	return n
}

// What was read when a stop came, or beside a batch after which nobody receives, goes back.
func TestReceive_WhatIsReadAndNotClaimedGoesBack(t *testing.T) {
	t.Parallel()
	b, w := open(t, dbtest.StartRedis(t).URL, "back", many), newTruth()
	c := b.Carrier("r1", w.as("r1"))
	keep(t, c)
	p := &pusher{to: c}
	p.push(t, 10)
	receive(t, c, 10)
	w.hold(func() { p.push(t, 20); w.hold(nil) }) // while a batch is claimed the next one is read
	p.push(t, 1)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	claimed, err := c.Receive(ctx, &room{1000})
	require.NoError(t, err)
	require.Len(t, claimed, 1)
	other := b.Carrier("r2", w.as("r2"))
	keep(t, other)
	require.Len(t, receive(t, other, 20), 20)
	require.Equal(t, map[string]int{"r1": 11, "r2": 20}, w.by())
}

// The group, or all of the server's memory, goes while a worker waits for entries: it is made
// anew from the beginning, and what is pushed next comes.
func TestReceive_GroupIsGone(t *testing.T) {
	t.Parallel()
	for how, command := range map[string][]any{
		"group": {"XGROUP", "DESTROY", "{gone:bulk}:stream", "belfry"},
		"all":   {"FLUSHALL"},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			b, w := open(t, dbtest.StartRedis(t).URL, "gone", many), newTruth()
			c := b.Carrier("r1", w.as("r1"))
			keep(t, c)
			p := &pusher{to: c}
			p.push(t, 5)
			had := receive(t, c, 5)
			stop := receiveAll(t, c, &room{100})
			eventually(t, "it waits", func() bool { return blocked(t, b) > 0 })
			require.NoError(t, b.Client().Do(t.Context(), command...).Err())
			require.NoError(t, c.Settled(t.Context(), settled(had, outbox.Pending, time.Hour)))
			if how == "all" {
				require.Equal(t, outbox.Inside{Last: 0, Oldest: 1}, inside(t, c))
				p.number = 0
			}
			p.push(t, 10)
			eventually(t, "what is pushed comes", func() bool { return w.by()["r1"] >= 10 })
			stop()
		})
	}
}

// At maxmemory pushes are full, and the queue drains by itself: what takes, settles, moves and
// shows life is not refused (sentence 2).
func TestCarrier_FullServerDrains(t *testing.T) {
	t.Parallel()
	server := dbtest.StartRedis(t, "--maxmemory", "6mb", "--maxmemory-policy", "noeviction")
	b, w := open(t, server.URL, "full", many), newTruth()
	b.Hurry(20*time.Millisecond, patience, patience)
	c := b.Carrier("r1", w.as("r1"))
	p := outbox.PushGroup{Queue: outbox.Bulk, Epoch: epoch, First: 1, Lane: strings.Repeat("long", 50)}
	for i := range 500 {
		p.Keys = append(p.Keys, outbox.Key{JobID: 1, ChannelID: int64(i + 1)})
	}
	answer := outbox.PushDone
	for p.Number = 1; answer == outbox.PushDone; p.Number++ {
		for i := range p.Keys {
			p.Keys[i].JobID = p.Number
		}
		var err error
		answer, err = c.Push(t.Context(), p)
		require.NoError(t, err)
	}
	require.Equal(t, outbox.PushFull, answer)
	p.Number--
	memory := func() int64 {
		info, err := b.Client().InfoMap(t.Context(), "memory").Result()
		require.NoError(t, err)
		n, err := strconv.ParseInt(info["Memory"]["used_memory"], 10, 64)
		require.NoError(t, err)
		return n
	}
	require.Greater(t, memory(), int64(6<<20)*3/4)
	require.Less(t, memory(), int64(6<<20), "there is room for others")
	// Somebody else fills the rest.
	for i := 0; ; i++ {
		if err := b.Client().Set(t.Context(), strconv.Itoa(i), make([]byte, 10_000), 0).Err(); err != nil {
			require.True(t, redisdb.Full(err), "%v", err)
			break
		}
	}
	list, err := b.Queues(t.Context())
	require.NoError(t, err)
	require.True(t, list[1].Full)
	answer, err = c.Push(t.Context(), p)
	require.NoError(t, err)
	require.Equal(t, outbox.PushFull, answer)
	keep(t, c)
	eventually(t, "it shows that it lives", func() bool { return b.Client().ZCard(t.Context(), b.Keys().Consumers).Val() == 1 })
	// Half of what comes is to be tried again, and is.
	n := int(p.Number-1) * 500
	got := receive(t, c, n)
	require.NoError(t, c.Settled(t.Context(), settled(got[:n/2], outbox.Pending, 0)))
	require.NoError(t, c.Settled(t.Context(), sent(got[n/2:])))
	w.forget()
	require.NoError(t, c.Settled(t.Context(), sent(receive(t, c, n/2))))
	require.Empty(t, entries(t, b))
	require.Equal(t, n/2, w.by()["r1"])
}

// A server that is away is said once, whoever notices, and that it is back (sentence 20).
func TestCarrier_AwayIsSaidOnce(t *testing.T) {
	t.Parallel()
	server, log := dbtest.StartRedis(t), &dbtest.Buffer{}
	b, w := open(t, server.URL, "away", many, func(o *redisstream.Options) { o.Log = zerolog.New(log) }), newTruth()
	b.Hurry(10*time.Millisecond, patience, patience)
	c := b.Carrier("r1", w.as("r1"))
	keep(t, c)
	stop := receiveAll(t, c, &room{10})
	p := &pusher{to: c}
	p.push(t, 10)
	eventually(t, "all is claimed", func() bool { return w.by()["r1"] == 10 })
	require.NoError(t, server.Stop())
	eventually(t, "it is noticed", func() bool { return log.String() != "" })
	for range 20 {
		_, err := c.Push(t.Context(), outbox.PushGroup{Queue: outbox.Bulk, Epoch: epoch, First: 1, Number: 2})
		require.Error(t, err)
		_, err = c.Inside(t.Context(), outbox.Bulk)
		require.Error(t, err)
	}
	require.NoError(t, server.Start(t.Context()))
	eventually(t, "it is noticed", func() bool { return redisstreamLines(log, "the carrier is back") == 1 })
	p.number = 0
	p.push(t, 20)
	eventually(t, "all is claimed", func() bool { return w.by()["r1"] == 20 })
	require.Equal(t, 1, redisstreamLines(log, "the carrier is away"))
	stop()
}

func TestNew_NamesTheKey(t *testing.T) {
	t.Parallel()
	c := redisdb.DefaultConfig()
	c.URL, c.KeyPrefix = "redis://127.0.0.1:1", "a{b}"
	good := redisstream.Options{MaxQueued: 1, Lease: time.Second, Log: zerolog.Nop()}
	_, err := redisstream.New(c, good)
	require.ErrorContains(t, err, "delivery.redis.key_prefix", "braces would move the hash tag (sentence 19)")
	c.KeyPrefix = "belfry"
	_, err = redisstream.New(c, redisstream.Options{Lease: time.Second})
	require.ErrorContains(t, err, "delivery.max_queued: 0 is not allowed")
	_, err = redisstream.New(c, redisstream.Options{MaxQueued: 1})
	require.ErrorContains(t, err, "delivery.lease")
}

// Sentence 19: all keys of a queue have its one hash tag, whatever a worker is called.
func TestBroker_OneHashTagPerQueue(t *testing.T) {
	t.Parallel()
	b, w := open(t, dbtest.StartRedis(t).URL, "tag", many), newTruth()
	c := b.Carrier("r{1}:bulk", w.as("r{1}"))
	stop := keep(t, c)
	(&pusher{to: c}).push(t, 5)
	got := receive(t, c, 5)
	require.NoError(t, c.Settled(t.Context(), settled(got[:2], outbox.Pending, time.Hour)))
	require.NoError(t, c.Settled(t.Context(), settled(got[2:4], outbox.Dead, 0)))
	eventually(t, "it shows that it lives", func() bool { return b.Client().ZCard(t.Context(), b.Keys().Consumers).Val() == 1 })
	for _, key := range b.Client().Keys(t.Context(), "*").Val() {
		require.Regexp(t, `^\{tag:(bulk|activities)\}:(stream|state|waiting|returned|consumers|dead)$`, key)
	}
	require.Len(t, b.Client().Keys(t.Context(), "{tag:bulk}:*").Val(), 6)
	stop()
	require.NoError(t, b.Empty(t.Context()))
	require.Empty(t, b.Client().Keys(t.Context(), "*").Val())
	_, err := b.Check(t.Context())
	require.NoError(t, err)
}
