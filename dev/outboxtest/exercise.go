package outboxtest

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/outbox"
)

// Check is a named test of a transport.
type Check struct {
	Name string
	Run  func(t testing.TB, s *Subject)
}

// Exercise runs every check, each on a new Subject from open.
func Exercise(t *testing.T, open func(t testing.TB) *Subject) {
	t.Helper()
	exercise(t, open, Checks())
}

// Sample runs a few of the checks for fast test runs: a message is sent once, held and recalled messages are not sent, and
// the messages of a stopped relay are received again.
func Sample(t *testing.T, open func(t testing.TB) *Subject) {
	t.Helper()
	var list []Check
	for _, c := range Checks() {
		switch c.Name {
		case "EachMessageOnce", "HeldWaits", "RecalledNeverComes", "ReleasedComesAgain":
			list = append(list, c)
		}
	}
	require.Len(t, list, 4)
	exercise(t, open, list)
}

func exercise(t *testing.T, open func(t testing.TB) *Subject, checks []Check) {
	t.Helper()
	for _, c := range checks {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			c.Run(t, open(t))
		})
	}
}

// Checks returns the checks of Exercise: first those of every transport, which carriers pass with a dispatcher, then those
// of carriers only.
func Checks() []Check {
	return append([]Check{
		{"EachMessageOnce", dispatched(eachOnce)},
		{"TwoRelays", dispatched(twoRelays)},
		{"CreditsBound", dispatched(creditsBound)},
		{"CreditsOfAJob", dispatched(creditsOfAJob)},
		{"NothingWithoutCredits", dispatched(nothingWithoutCredits)},
		{"StopDropsNothing", dispatched(stopDropsNothing)},
		{"WaitsForMessages", dispatched(waitsForMessages)},
		{"NotBeforeItIsDue", dispatched(notBeforeItIsDue)},
		{"DeferredComesWhenDue", dispatched(deferredComesWhenDue)},
		{"ReleasedComesAgain", dispatched(releasedComesAgain)},
		{"FinalNeverComesAgain", dispatched(finalNeverComesAgain)},
		{"StuckIsFound", dispatched(stuckIsFound)},
		{"HeldWaits", dispatched(heldWaits)},
		{"RecalledNeverComes", dispatched(recalledNeverComes)},
	}, carrierChecks()...)
}

// dispatched runs a check, for carriers with a dispatcher.
func dispatched(check func(t testing.TB, s *Subject)) func(t testing.TB, s *Subject) {
	return func(t testing.TB, s *Subject) {
		t.Helper()
		if s.Carrier != nil {
			defer s.dispatch(t)()
		}
		check(t, s)
	}
}

func eachOnce(t testing.TB, s *Subject) {
	t.Helper()
	a, b := s.Bulk(t, "a", 30, 0), s.Bulk(t, "b", 20, 0)
	likes := s.Activities(t, 10, 0)
	got := s.receive(t, s.Transport, plenty(), 60)
	for lane, keys := range map[string][]outbox.Key{"a": a, "b": b, "": likes} {
		for _, k := range keys {
			require.Contains(t, got, k)
			require.Equal(t, lane, got[k].Lane)
		}
	}
	s.nothing(t, plenty())
	require.Equal(t, 60, s.Processing(t))
}

func twoRelays(t testing.TB, s *Subject) {
	t.Helper()
	s.Bulk(t, "a", 200, 0)
	s.Activities(t, 50, 0)
	ctx, cancel := context.WithTimeout(t.Context(), s.patience())
	defer cancel()
	var mu sync.Mutex
	var both sync.WaitGroup
	got := make(map[outbox.Key]int)
	for _, from := range []outbox.Transport{s.Transport, s.Other} {
		both.Go(func() {
			for ctx.Err() == nil {
				claimed, _ := from.Receive(ctx, grant(7, 11))
				mu.Lock()
				for _, m := range claimed {
					got[m.Key]++
				}
				if len(got) == 250 {
					cancel()
				}
				mu.Unlock()
			}
		})
	}
	both.Wait()
	require.Len(t, got, 250)
	require.Equal(t, 1, slices.Max(slices.Collect(maps.Values(got))), "times that one message was received")
}

func creditsBound(t testing.TB, s *Subject) {
	t.Helper()
	s.Bulk(t, "a", 30, 0)
	s.Bulk(t, "b", 30, 0)
	s.Activities(t, 30, 0)
	ctx, cancel := context.WithTimeout(t.Context(), s.patience())
	defer cancel()
	for came := 0; came < 90; {
		claimed, err := s.Transport.Receive(ctx, grant(3, 5))
		require.NoError(t, err)
		activities := 0
		for _, m := range claimed {
			if m.JobID < 0 {
				activities++
			}
		}
		require.LessOrEqual(t, activities, 3)
		require.LessOrEqual(t, len(claimed)-activities, 5)
		came += len(claimed)
		require.Equal(t, came, s.Processing(t), "what is claimed is received")
	}
}

func creditsOfAJob(t testing.TB, s *Subject) {
	t.Helper()
	full, free := s.Bulk(t, "a", 20, 0), s.Bulk(t, "a", 20, 0)
	c := plenty()
	c.jobs[full[0].JobID] = 0
	got := s.receive(t, s.Transport, c, 20)
	for _, k := range free {
		require.Contains(t, got, k)
	}
	s.nothing(t, c)
	require.Equal(t, 20, s.Processing(t))
}

func nothingWithoutCredits(t testing.TB, s *Subject) {
	t.Helper()
	s.Bulk(t, "a", 5, 0)
	s.Activities(t, 5, 0)
	c := grant(0, 0)
	s.nothing(t, c)
	require.Zero(t, s.Processing(t))
	asked := make(chan struct{})
	c.asked = sync.OnceFunc(func() { close(asked) })
	go func() {
		<-asked // it has begun to wait, or is about to
		c.set(10, 10)
	}()
	require.Len(t, s.receive(t, s.Transport, c, 10), 10)
}

func stopDropsNothing(t testing.TB, s *Subject) {
	t.Helper()
	s.Bulk(t, "a", 200, 0)
	got := 0
	for n := 0; got < 200; n++ {
		require.Less(t, n, 10_000, "stops, and %d of 200 messages came", got)
		ctx, stop := context.WithCancel(t.Context())
		c := grant(10, 10)
		timer := time.AfterFunc(time.Duration(n%20)*200*time.Microsecond, stop)
		if n%2 == 0 {
			c.asked = stop // in the middle
		}
		for ctx.Err() == nil {
			claimed, _ := s.Transport.Receive(ctx, c)
			got += len(claimed)
		}
		timer.Stop()
		stop()
		require.Equal(t, s.Processing(t), got, "claimed and not received at a stop")
	}
}

func waitsForMessages(t testing.TB, s *Subject) {
	t.Helper()
	s.nothing(t, plenty())
	c, asked, written := plenty(), make(chan struct{}), make(chan struct{})
	c.asked = sync.OnceFunc(func() { close(asked) })
	go func() {
		defer close(written)
		<-asked // it has begun to wait, or is about to
		s.Bulk(t, "a", 5, 0)
		c.wake() // the hint
	}()
	require.Len(t, s.receive(t, s.Transport, c, 5), 5)
	<-written // messages may be received before Bulk returns
}

func notBeforeItIsDue(t testing.TB, s *Subject) {
	t.Helper()
	const in = 700 * time.Millisecond
	began := time.Now()
	s.Bulk(t, "a", 5, in)
	s.Activities(t, 5, in)
	for _, m := range s.receive(t, s.Transport, plenty(), 10) {
		require.GreaterOrEqual(t, m.at.Sub(began), in)
	}
}

func deferredComesWhenDue(t testing.TB, s *Subject) {
	t.Helper()
	const wait = 400 * time.Millisecond
	s.Bulk(t, "a", 5, 0)
	s.Activities(t, 5, 0)
	first := s.receive(t, s.Transport, plenty(), 10)
	began := time.Now()
	s.settle(t, first, func(c outbox.Claimed) outbox.Settlement {
		return outbox.Settlement{Claimed: c, To: outbox.Pending, Reason: outbox.ReasonRetry, NextAttempts: 1, Wait: wait}
	})
	for k, m := range s.receive(t, s.Transport, plenty(), 10) {
		require.GreaterOrEqual(t, m.at.Sub(began), wait)
		require.Equal(t, 1, m.Attempts)
		require.NotEqual(t, first[k].LeaseID, m.LeaseID, "another claim")
	}
}

func releasedComesAgain(t testing.TB, s *Subject) {
	t.Helper()
	s.Bulk(t, "a", 5, 0)
	s.Activities(t, 5, 0)
	s.settle(t, s.receive(t, s.Transport, plenty(), 10), outbox.Release)
	require.Len(t, s.receive(t, s.Transport, plenty(), 10), 10)
}

func finalNeverComesAgain(t testing.TB, s *Subject) {
	t.Helper()
	keys := s.Bulk(t, "a", 5, 0)
	s.Activities(t, 5, 0)
	s.settle(t, s.receive(t, s.Transport, plenty(), 10), sent)
	require.NoError(t, s.Transport.Settled(t.Context(),
		[]outbox.Settled{{Key: outbox.Key{JobID: 1 << 40, ChannelID: 1}, Status: outbox.Sent}}))
	s.nothing(t, plenty())
	require.Zero(t, s.Processing(t))
	require.NotContains(t, s.receive(t, s.Transport, plenty(), len(s.Bulk(t, "a", 1, 0))), keys[0])
}

func stuckIsFound(t testing.TB, s *Subject) {
	t.Helper()
	keys := s.Bulk(t, "a", 10, 0)
	free := s.Strand(t, keys[2:4])
	got := s.receive(t, s.Transport, plenty(), 8)
	require.NotContains(t, got, keys[2])
	free()
	require.Contains(t, s.receive(t, s.Transport, plenty(), 2), keys[2])
}

func heldWaits(t testing.TB, s *Subject) {
	t.Helper()
	held := s.Bulk(t, "a", 5, 0)
	release := s.Hold(t, held[0].JobID)
	free := s.Bulk(t, "b", 3, 0)
	got := s.receive(t, s.Transport, plenty(), 3)
	for _, k := range free {
		require.Contains(t, got, k)
	}
	s.nothing(t, plenty())
	release()
	require.Len(t, s.receive(t, s.Transport, plenty(), 5), 5)
}

func recalledNeverComes(t testing.TB, s *Subject) {
	t.Helper()
	keys := s.Bulk(t, "a", 5, 0)
	s.Recall(t, keys[1:3])
	got := s.receive(t, s.Transport, plenty(), 3)
	require.NotContains(t, got, keys[1])
	require.NotContains(t, got, keys[2])
	s.nothing(t, plenty())
}
