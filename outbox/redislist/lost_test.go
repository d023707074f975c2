package redislist_test

import (
	"bytes"
	"context"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/dev/outboxtest"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/redislist"
)

// load makes the server know a script, and returns how a request names it.
func (s *server) load(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(name + ".lua")
	require.NoError(t, err)
	script := redis.NewScript(string(text))
	require.NoError(t, script.Load(t.Context(), s.client).Err())
	return []byte(script.Hash())
}

// lossy is a proxy before the server that loses the first of the requests that hold a text, n times.
func (s *server) lossy(t testing.TB, text []byte, fault dbtest.Fault, n int64) (url string, lost *atomic.Int64) {
	t.Helper()
	proxy := dbtest.StartProxy(t, s.Addr)
	lost = &atomic.Int64{}
	proxy.Lose(func(request []byte) dbtest.Fault {
		if bytes.Contains(request, text) && lost.Add(1) <= n {
			return fault
		}
		return dbtest.Pass
	})
	return "redis://" + proxy.Addr, lost
}

// Sentences 3 and 4: what was taken by a call whose answer was lost is found by the next one,
// and taken once: with retries of the client's own two takes would have been made.
func TestReceive_FindsWhatALostAnswerHasTaken(t *testing.T) {
	t.Parallel()
	s := start(t)
	url, lost := s.lossy(t, s.load(t, "take"), dbtest.DropReply, 1)
	c := s.broker(t, url, nil).Carrier("r1", claimer(outbox.CopyClaimed))
	pushed(t, s.broker(t, "", nil).Carrier("r0", nil), 1, 7, 10)
	pushed(t, s.broker(t, "", nil).Carrier("r0", nil), 2, 8, 10)
	var err error
	var got []outbox.Claimed
	for err == nil { // the first one may be about activities, of which there are none
		var some []outbox.Claimed
		some, err = c.Receive(t.Context(), &credits{})
		got = append(got, some...)
	}
	require.Empty(t, got)
	require.Equal(t, int64(1), lost.Load(), "the client has not tried again")
	require.Len(t, receive(t, c, &credits{}, 20), 20)
	require.Equal(t, 20, s.processing(t, "r1"))
	require.Zero(t, s.copies(t))
}

// Sentence 4: an id that arrives in processing behind the worker's back, by a request that a dead
// connection still delivered, is found before the worker waits again.
func TestReceive_FindsWhatItDoesNotKnowOf(t *testing.T) {
	t.Parallel()
	s := start(t)
	c := s.broker(t, "", nil).Carrier("r1", claimer(outbox.CopyClaimed))
	defer keep(t, c)()
	pushed(t, c, 1, 7, 2)
	receive(t, c, &credits{}, 2)
	got := make(chan []outbox.Claimed, 1)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	go func() {
		claimed, _ := c.Receive(ctx, &credits{})
		got <- claimed
	}()
	require.NoError(t, s.client.HSet(t.Context(), bulk+"processing:r1", "000000000001/7/9/a/b", time.Now().UnixMilli()).Err())
	claimed := <-got
	require.Len(t, claimed, 1)
	require.Equal(t, outbox.Key{JobID: 7, ChannelID: 9}, claimed[0].Key)
}

// delivered has two relays receive and settle n messages of a database while what comes between
// them and the server is lost, and proves that each was received once and no copy is left.
func delivered(t testing.TB, d *outboxtest.Database, s *server, b *redislist.Broker, n int) {
	t.Helper()
	d.Job(t, "a", 1, n/2, 0)
	d.Job(t, "b", n/2+1, n, 0)
	subject := d.Carried(t, b, outboxtest.CarrierSubject{Capacity: capacity})
	carrier, is := subject.Transport.(outbox.Carrier)
	require.True(t, is)
	stop := d.Dispatch("r1", carrier, capacity/4, 500*time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	var both sync.WaitGroup
	var received atomic.Int64
	var mu sync.Mutex // a Ledger is one relay's, and settles for both here
	for _, from := range []outbox.Transport{subject.Transport, subject.Other} {
		both.Go(func() {
			for ctx.Err() == nil && int(received.Load()) < n {
				short, done := context.WithTimeout(ctx, 500*time.Millisecond)
				claimed, _ := from.Receive(short, &credits{})
				done()
				if len(claimed) == 0 {
					continue
				}
				settlements := make([]outbox.Settlement, len(claimed))
				for i, m := range claimed {
					settlements[i] = outbox.Settlement{Claimed: m, To: outbox.Sent, NextAttempts: m.Attempts + 1, Sender: "fcm"}
				}
				mu.Lock()
				outcomes := subject.Settle(t, settlements)
				mu.Unlock()
				received.Add(int64(len(claimed)))
				_ = from.Settled(ctx, outcomes) // it is repeated
			}
		})
	}
	both.Wait()
	stop()
	require.EqualValues(t, n, received.Load(), "a claim is made once")
	require.Equal(t, n, outboxtest.One[int](t, d, `SELECT count(*) FROM belfry.messages WHERE status = 'SENT'`))
	require.Eventually(t, func() bool { return s.processing(t, "r1")+s.processing(t, "r2") == 0 }, patience, 10*time.Millisecond)
}

// Sentence 3, conformance "connection cut at each command": whichever command's connection is
// cut, before the server gets it or before its answer comes, everything is received once.
func TestLong_CarrierAConnectionCutAtEachCommand(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"push", "take", "settle", "keep", "return", "status", "hkeys", "blmove"} {
		for name, fault := range map[string]dbtest.Fault{"before": dbtest.Cut, "after": dbtest.DropReply} {
			t.Run(command+" "+name, func(t *testing.T) {
				t.Parallel()
				s := start(t)
				text := []byte(command)
				for _, script := range []string{"push", "take", "settle", "keep", "return", "status"} {
					if hash := s.load(t, script); script == command {
						text = hash
					}
				}
				url, lost := s.lossy(t, text, fault, 3)
				delivered(t, setup(t, 100), s, s.broker(t, url, nil), 100)
				require.Eventually(t, func() bool { return lost.Load() > 0 }, patience, 10*time.Millisecond)
			})
		}
	}
}

// Sentence 20: however many workers fail, one line says that the carrier is away, and one that
// it is back.
func TestCarrier_SaysOnceThatItIsAway(t *testing.T) {
	t.Parallel()
	s, log := start(t), &dbtest.Buffer{}
	b := s.broker(t, "", func(o *redislist.Options) { o.Log = zerolog.New(log) })
	one, two := b.Carrier("r1", claimer(outbox.CopyClaimed)), b.Carrier("r2", claimer(outbox.CopyClaimed))
	defer keep(t, one)()
	defer keep(t, two)()
	pushed(t, one, 1, 7, 1)
	receive(t, two, &credits{}, 1)
	require.NoError(t, s.Stop())
	require.Eventually(t, func() bool { return bytes.Contains([]byte(log.String()), []byte("the carrier is away")) }, patience, 10*time.Millisecond)
	_, err := one.Receive(t.Context(), &credits{})
	require.Error(t, err)
	_, err = one.Push(t.Context(), outbox.PushGroup{Queue: outbox.Bulk, Epoch: "e", First: 1, Number: 2})
	require.Error(t, err)
	require.Error(t, two.Settled(t.Context(), []outbox.Settled{{Key: outbox.Key{JobID: 7, ChannelID: 1}, Status: outbox.Sent}}))
	require.NoError(t, s.Start(t.Context()))
	require.Eventually(t, func() bool { return bytes.Contains([]byte(log.String()), []byte("the carrier is back")) }, patience, 10*time.Millisecond)
	require.Eventually(t, func() bool {
		in, err := one.Inside(t.Context(), outbox.Bulk)
		return err == nil && in == outbox.Inside{Oldest: 1}
	}, patience, 10*time.Millisecond, "it has forgotten all")
	require.Equal(t, 1, bytes.Count([]byte(log.String()), []byte("away")))
	require.Equal(t, 1, bytes.Count([]byte(log.String()), []byte("back")))
}

// Sentence 8: a stop does not wait for the call that waits, and that call takes nothing.
func TestReceive_StopTakesNothing(t *testing.T) {
	t.Parallel()
	s := start(t)
	c := s.broker(t, "", nil).Carrier("r1", claimer(outbox.CopyClaimed))
	stop := keep(t, c)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := c.Receive(ctx, &credits{})
		ended <- err
	}()
	require.Eventually(t, func() bool { // it waits
		return bytes.Contains([]byte(s.client.ClientList(t.Context()).Val()), []byte("cmd=blmove"))
	}, patience, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	pushed(t, c, 1, 7, 3)
	stop()
	require.Equal(t, 3, s.copies(t))
	require.Zero(t, s.client.Exists(t.Context(), bulk+"processing:r1").Val())
	require.Empty(t, s.client.ZRange(t.Context(), bulk+"workers", 0, -1).Val(), "and it takes back that it lives")
}
