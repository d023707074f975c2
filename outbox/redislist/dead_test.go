package redislist_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/outboxtest"
	"github.com/belfryhq/belfry/outbox"
)

// soon is a pace at which a worker is dead after a second and a half, in which one that lives
// shows it thirty times.
const (
	soonTick  = 50 * time.Millisecond
	soonDead  = 1500 * time.Millisecond
	neverAged = time.Hour
)

// dying is a subject whose worker r1 never shows that it lives, and r2, which does.
type dying struct {
	*outboxtest.Database
	*server
	subject *outboxtest.Subject
	dead    outbox.Carrier
	ledger  *outbox.Ledger // of the dead worker
}

func die(t testing.TB, claim func(*outbox.Ledger) outbox.Claim) *dying {
	t.Helper()
	s := start(t)
	b := s.broker(t, "", nil)
	b.Pace(soonTick, soonDead, neverAged)
	d := &dying{Database: setup(t, 100), server: s}
	d.subject = d.Carried(t, b, outboxtest.CarrierSubject{Capacity: capacity})
	d.ledger = outbox.NewLedger(d.DB.Pool, "dead", time.Hour)
	d.dead = b.Carrier("dead", claim(d.ledger))
	return d
}

func claims(l *outbox.Ledger) outbox.Claim {
	return func(copies []outbox.Copy) ([]outbox.Answer, error) {
		return l.ClaimCopies(context.Background(), copies)
	}
}

// queued makes a push of n messages and hands it over.
func (d *dying) queued(t testing.TB, n int) outbox.PushGroup {
	t.Helper()
	p := d.subject.Carrier.Queued(t, n)
	answer, err := d.dead.Push(t.Context(), p)
	require.NoError(t, err)
	require.Equal(t, outbox.PushDone, answer)
	return p
}

// rest is what the living worker receives and settles, all of n.
func (d *dying) rest(t testing.TB, n int) {
	t.Helper()
	alive, is := d.subject.Other.(outbox.Carrier)
	require.True(t, is)
	settle(t, d, alive, receive(t, alive, &credits{}, n))
	d.left(t, 0)
}

func settle(t testing.TB, d *dying, c outbox.Carrier, claimed []outbox.Claimed) {
	t.Helper()
	settlements := make([]outbox.Settlement, len(claimed))
	for i, m := range claimed {
		settlements[i] = outbox.Settlement{Claimed: m, To: outbox.Sent, NextAttempts: m.Attempts + 1, Sender: "fcm"}
	}
	require.NoError(t, c.Settled(t.Context(), d.subject.Settle(t, settlements)))
}

// left waits until so many copies are anywhere.
func (d *dying) left(t testing.TB, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		inside, err := d.dead.Inside(t.Context(), outbox.Bulk)
		return err == nil && d.copies(t)+d.processing(t, "dead")+d.processing(t, "r2") == n && (n > 0 || inside.Oldest == inside.Last+1)
	}, patience, 10*time.Millisecond)
}

// nothing has the living worker receive until no copy is left, of which it gets none.
func (d *dying) nothing(t testing.TB) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		got, _ := d.subject.Other.Receive(ctx, &credits{})
		if len(got) > 0 {
			t.Errorf("%d messages came again", len(got))
		}
	}()
	d.left(t, 0)
	stop()
	<-ended
}

// I8, I10: a worker dies between the move and the claim. What it took is another's when it has
// not shown itself for long.
func TestWorker_DiesBeforeItClaims(t *testing.T) {
	t.Parallel()
	taken, end := make(chan struct{}), make(chan struct{})
	d := die(t, func(*outbox.Ledger) outbox.Claim {
		return func([]outbox.Copy) ([]outbox.Answer, error) {
			close(taken)
			<-end
			return nil, context.Canceled
		}
	})
	d.queued(t, 10)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = d.dead.Receive(context.WithoutCancel(t.Context()), &credits{}) // dead, until the test ends
	}()
	defer func() { <-ended }()
	defer close(end)
	<-taken
	d.rest(t, 10)
}

// It dies after the claim: the lease keeps its messages, and then they come again, each with the
// crash that the lease counted.
func TestWorker_DiesAfterItClaimed(t *testing.T) {
	t.Parallel()
	d := die(t, claims)
	p := d.queued(t, 10)
	require.Len(t, receive(t, d.dead, &credits{}, 10), 10)
	d.nothing(t) // "another": dropped, and no copy is claimed while the lease holds
	require.Equal(t, 10, d.subject.Processing(t))
	d.Exec(t, `UPDATE belfry.leases SET expires_at = now() - interval '1 second'`)
	ledger := outbox.NewLedger(d.DB.Pool, "r2", time.Hour)
	lost, err := ledger.Lost(t.Context(), nil, nil, 10)
	require.NoError(t, err)
	require.Len(t, lost, 1)
	_, err = ledger.Recover(t.Context(), lost[0], nil)
	require.NoError(t, err)
	alive, is := d.subject.Other.(outbox.Carrier)
	require.True(t, is)
	defer d.Dispatch("r2", alive, capacity/4, time.Hour)()
	d.rest(t, len(p.Keys))
}

// It dies after the outcome was recorded: the copies are dropped when they come up.
func TestWorker_DiesBeforeItRemoves(t *testing.T) {
	t.Parallel()
	d := die(t, claims)
	d.queued(t, 10)
	claimed := receive(t, d.dead, &credits{}, 10)
	settlements := make([]outbox.Settlement, len(claimed))
	for i, m := range claimed {
		settlements[i] = outbox.Settlement{Claimed: m, To: outbox.Sent, NextAttempts: 1, Sender: "fcm"}
	}
	_, err := d.ledger.Settle(t.Context(), settlements, nil)
	require.NoError(t, err)
	d.nothing(t)
}

// A worker of the same name that starts again takes first what the one before it has left.
func TestWorker_StartsAgain(t *testing.T) {
	t.Parallel()
	s := start(t)
	b := s.broker(t, "", nil)
	before := b.Carrier("r1", func([]outbox.Copy) ([]outbox.Answer, error) { return nil, context.Canceled })
	pushed(t, before, 1, 7, 5)
	require.NoError(t, s.client.Eval(t.Context(), `for _, item in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do redis.call('HSET', KEYS[2], item, 1) end redis.call('DEL', KEYS[1]) return 1`,
		[]string{bulk + "main", bulk + "processing:r1"}).Err())
	pushed(t, before, 2, 8, 5)
	again := b.Carrier("r1", claimer(outbox.CopyClaimed))
	defer keep(t, again)()
	seen := map[int64]int{}
	for _, m := range receive(t, again, &credits{}, 10) {
		seen[m.JobID]++
	}
	require.Equal(t, map[int64]int{7: 5, 8: 5}, seen)
}

// Sentences 10 and 15: processing is found by the keys there are; what is in one of a worker that
// is not registered is returned to the tail, and not before it has had time to show itself.
func TestMonitor_FindsWhatNobodyRegistered(t *testing.T) {
	t.Parallel()
	s := start(t)
	b := s.broker(t, "", nil)
	b.Pace(soonTick, soonDead, neverAged)
	c := b.Carrier("r1", claimer(outbox.CopyClaimed))
	pushed(t, c, 1, 7, 2)
	began := time.Now()
	require.NoError(t, s.client.HSet(t.Context(), bulk+"processing:gone:1:{x}", "000000000001/9/9/a/b", began.UnixMilli()).Err())
	defer keep(t, c)()
	require.Eventually(t, func() bool { return s.copies(t) == 3 }, patience, time.Millisecond)
	require.GreaterOrEqual(t, time.Since(began), soonDead)
	require.Equal(t, "000000000001/9/9/a/b", s.client.LIndex(t.Context(), bulk+"main", -1).Val())
	require.Zero(t, s.client.Exists(t.Context(), bulk+"processing:gone:1:{x}").Val())
}

// Another client wrote a string where a dead worker had its ids: it is deleted, and stops no push before.
func TestMonitor_DeletesWhatIsNoProcessing(t *testing.T) {
	t.Parallel()
	s := start(t)
	b := s.broker(t, "", nil)
	b.Pace(soonTick, soonDead, neverAged)
	c := b.Carrier("r1", claimer(outbox.CopyClaimed))
	pushed(t, c, 1, 7, 1) // the first push of an epoch deletes all keys
	require.NoError(t, s.client.Set(t.Context(), bulk+"processing:gone", "x", 0).Err())
	require.NoError(t, s.client.ZAdd(t.Context(), bulk+"workers", redis.Z{Member: "gone", Score: float64(time.Now().UnixMilli())}).Err())
	pushed(t, c, 2, 8, 1)
	queues, err := b.Queues(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 2, queues[1].Ready)
	defer keep(t, c)()
	require.Eventually(t, func() bool {
		return s.client.Exists(t.Context(), bulk+"processing:gone").Val() == 0 && s.client.ZScore(t.Context(), bulk+"workers", "gone").Err() != nil
	}, patience, time.Millisecond)
	require.Equal(t, 2, s.copies(t))
}

// Sentence 10: one relay at a time looks through all keys, as long as it runs, and another does when
// that one has gone.
func TestLong_MonitorOneRelayLooksAllTheTime(t *testing.T) {
	t.Parallel()
	s := start(t)
	b := s.broker(t, "", nil)
	b.Pace(soonTick, soonDead, neverAged)
	b.Scan(soonTick)
	stops := make(map[string]func())
	for _, name := range []string{"r1", "r2"} {
		stops[name] = keep(t, b.Carrier(name, claimer(outbox.CopyClaimed)))
	}
	leaves := func(worker string) {
		require.NoError(t, s.client.HSet(t.Context(), bulk+"processing:"+worker, "000000000001/9/9/a/"+worker, time.Now().UnixMilli()).Err())
	}
	returned := func(n int) {
		require.Eventually(t, func() bool { return s.copies(t) == n }, patience, time.Millisecond)
	}
	for i, worker := range []string{"gone", "gone too"} { // one after the other has been looked for
		leaves(worker)
		returned(i + 1)
	}
	who := func() string { return s.client.Get(t.Context(), bulk+"monitor").Val() }
	first := who()
	require.Contains(t, stops, first)

	require.NoError(t, s.client.Set(t.Context(), bulk+"monitor", "another", 0).Err())
	leaves("is not looked for")
	began := time.Now()
	require.Eventually(t, func() bool { return time.Since(began) > 4*soonDead }, patience, soonTick)
	require.Equal(t, 2, s.copies(t), "neither is the one")
	require.Equal(t, "another", who())
	require.NoError(t, s.client.Del(t.Context(), bulk+"monitor").Err())
	returned(3)

	first = who()
	stops[first]()
	delete(stops, first)
	leaves("gone at last")
	returned(4)
	require.Contains(t, stops, who())
	for _, stop := range stops {
		stop()
	}
}

// Sentence 15: a live worker keeps what it has, unless it has had it for too long.
func TestLong_MonitorReturnsWhatIsStuck(t *testing.T) {
	t.Parallel()
	s := start(t)
	b := s.broker(t, "", nil)
	b.Pace(soonTick, soonDead, 4*soonDead)
	owner, monitor := b.Carrier("r1", claimer(outbox.CopyClaimed)), b.Carrier("r2", claimer(outbox.CopyClaimed))
	defer keep(t, monitor)()
	defer keep(t, owner)()
	began := time.Now()
	pushed(t, owner, 1, 7, 3)
	receive(t, owner, &credits{}, 3)
	require.Eventually(t, func() bool { return s.copies(t) == 3 }, patience, time.Millisecond)
	require.GreaterOrEqual(t, time.Since(began), 4*soonDead)
	require.Zero(t, s.processing(t, "r1"))
	require.NoError(t, owner.Settled(t.Context(), []outbox.Settled{{Key: outbox.Key{JobID: 7, ChannelID: 1}, Status: outbox.Sent}}))
	require.Equal(t, 3, s.copies(t), "what is elsewhere is another's")
}

// A new epoch forgets the copies of the one before, what workers have taken included: an item that
// came by both would be counted as one.
func TestPush_OfANewEpochForgetsTheOldOne(t *testing.T) {
	t.Parallel()
	s := start(t)
	c := s.broker(t, "", nil).Carrier("r1", claimer(outbox.CopyClaimed))
	defer keep(t, c)()
	pushed(t, c, 1, 7, 10)
	got := receive(t, c, &credits{}, 10)
	pushed(t, c, 2, 8, 10)
	answer, err := c.Push(t.Context(), outbox.PushGroup{Queue: outbox.Bulk, Epoch: "f", First: 1, Number: 1, Keys: []outbox.Key{got[0].Key}})
	require.NoError(t, err)
	require.Equal(t, outbox.PushDone, answer)
	require.Equal(t, 1, s.copies(t))
	require.Zero(t, s.processing(t, "r1"))
	in, err := c.Inside(t.Context(), outbox.Bulk)
	require.NoError(t, err)
	require.Equal(t, outbox.Inside{Epoch: "f", Last: 1, Oldest: 1}, in)
}

// What is deferred is due by the server's clock, whoever moves it, and at once after an outage.
func TestKeep_MovesWhatIsDue(t *testing.T) {
	t.Parallel()
	s := start(t)
	c := s.broker(t, "", nil).Carrier("r1", claimer(outbox.CopyClaimed))
	stop := keep(t, c)
	pushed(t, c, 1, 7, 3)
	var later []outbox.Settled
	for i, m := range receive(t, c, &credits{}, 3) {
		later = append(later, outbox.Settled{Key: m.Key, Status: outbox.Pending, Wait: time.Duration(i*300) * time.Millisecond})
	}
	began := time.Now()
	require.NoError(t, c.Settled(t.Context(), later))
	require.Len(t, receive(t, c, &credits{}, 3), 3)
	require.GreaterOrEqual(t, time.Since(began), 590*time.Millisecond)
	stop()
	now := time.Now().UnixMilli()
	for i := range 2500 { // due while nobody was there
		require.NoError(t, s.client.Do(t.Context(), "ZADD", bulk+"waiting", now-int64(i), "000000000001/8/"+strconv.Itoa(i)+"/a").Err())
	}
	again := s.broker(t, "", nil).Carrier("r2", claimer(outbox.CopyClaimed))
	defer keep(t, again)()
	require.Eventually(t, func() bool { return s.client.ZCard(t.Context(), bulk+"waiting").Val() == 0 }, patience, 10*time.Millisecond)
}

// Whoever moves what is due sleeps until the next is, and earlier work wakes it.
func TestKeep_WakesForEarlierWork(t *testing.T) {
	t.Parallel()
	s := start(t)
	b := s.broker(t, "", nil)
	b.Pace(time.Hour, time.Hour, neverAged)
	c := b.Carrier("r1", claimer(outbox.CopyClaimed))
	defer keep(t, c)()
	pushed(t, c, 1, 7, 3)
	got := receive(t, c, &credits{}, 3)
	require.Eventually(t, func() bool { return s.client.Exists(t.Context(), bulk+"monitor").Val() == 1 }, patience, time.Millisecond, "it has looked, and sleeps")
	for i, wait := range []time.Duration{time.Hour, time.Minute, 10 * time.Millisecond} {
		require.NoError(t, c.Settled(t.Context(), []outbox.Settled{{Key: got[i].Key, Status: outbox.Pending, Wait: wait}}))
	}
	require.Equal(t, got[2].Key, receive(t, c, &credits{}, 1)[0].Key)
}
