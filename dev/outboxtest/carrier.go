package outboxtest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/outbox"
)

func carrierChecks() []Check {
	return []Check{
		{"PushesOnce", carried(pushesOnce)},
		{"PushTellsAGap", carried(pushTellsAGap)},
		{"PushTellsFull", carried(pushTellsFull)},
		{"PushOfAnotherEpoch", carried(pushOfAnotherEpoch)},
		{"InsideTellsTheOldest", carried(insideTellsTheOldest)},
		{"LatestPushClaims", carried(latestPushClaims)},
		{"HeldLeavesTheCarrier", carried(heldLeavesTheCarrier)},
		{"ForgottenClaimComesAgain", carried(forgottenClaimComesAgain)},
		{"RecalledWhileQueued", carried(recalledWhileQueued)},
		{"QueuedAndNeverPushed", carried(queuedAndNeverPushed)},
		{"PushWithoutAnAnswer", carried(pushWithoutAnAnswer)},
		{"FullGoesOn", carried(fullGoesOn)},
		{"ForgottenIsPushedAgain", carried(forgottenIsPushedAgain)},
		{"LostCopiesAreSwept", carried(lostCopiesAreSwept)},
		{"TwoDispatchers", carried(twoDispatchers)},
	}
}

// carried runs a check of carriers only.
func carried(check func(t testing.TB, s *Subject, c outbox.Carrier)) func(t testing.TB, s *Subject) {
	return func(t testing.TB, s *Subject) {
		t.Helper()
		if s.Carrier != nil {
			check(t, s, s.carrier(t, s.Transport))
		}
	}
}

func (*Subject) carrier(t testing.TB, of outbox.Transport) outbox.Carrier {
	t.Helper()
	c, ok := of.(outbox.Carrier)
	require.True(t, ok, "%s is no carrier", of)
	return c
}

// dispatch runs a dispatcher until stop.
func (s *Subject) dispatch(t testing.TB) (stop func()) {
	t.Helper()
	return s.Carrier.Dispatch(t, s.carrier(t, s.Transport))
}

// push makes a push.
func push(t testing.TB, c outbox.Carrier, p outbox.PushGroup) outbox.PushAnswer {
	t.Helper()
	answer, err := c.Push(t.Context(), p)
	require.NoError(t, err)
	return answer
}

// inside returns the pushes of the bulk queue.
func inside(t testing.TB, c outbox.Carrier) outbox.Inside {
	t.Helper()
	in, err := c.Inside(t.Context(), outbox.Bulk)
	require.NoError(t, err)
	return in
}

func pushesOnce(t testing.TB, s *Subject, c outbox.Carrier) {
	t.Helper()
	p := s.Carrier.Queued(t, 5)
	for range 3 {
		require.Equal(t, outbox.PushDone, push(t, c, p))
	}
	require.Equal(t, 5, s.Carrier.Copies(t))
	require.Len(t, s.receive(t, s.Transport, plenty(), 5), 5)
	require.Equal(t, outbox.PushDone, push(t, c, p), "also when they have left")
	require.Zero(t, s.Carrier.Copies(t))
	s.nothing(t, plenty())
}

func pushTellsAGap(t testing.TB, s *Subject, c outbox.Carrier) {
	t.Helper()
	one, two, three := s.Carrier.Queued(t, 1), s.Carrier.Queued(t, 1), s.Carrier.Queued(t, 1)
	require.Equal(t, outbox.PushDone, push(t, c, one))
	require.Equal(t, outbox.PushGap, push(t, c, three))
	require.Equal(t, one.Number, inside(t, c).Last)
	two.Keys = nil // a push without remaining copies counts
	require.Equal(t, outbox.PushDone, push(t, c, two))
	require.Equal(t, outbox.PushDone, push(t, c, three))
	require.Equal(t, three.Number, inside(t, c).Last)
	require.Len(t, s.receive(t, s.Transport, plenty(), 2), 2)
}

func pushTellsFull(t testing.TB, s *Subject, c outbox.Carrier) {
	t.Helper()
	whole, more := s.Carrier.Queued(t, s.Carrier.Capacity), s.Carrier.Queued(t, 1)
	require.Equal(t, outbox.PushDone, push(t, c, whole))
	for range 2 {
		require.Equal(t, outbox.PushFull, push(t, c, more))
	}
	require.Equal(t, whole.Number, inside(t, c).Last, "it was not taken")
	s.settle(t, s.receive(t, s.Transport, plenty(), s.Carrier.Capacity), sent)
	require.Equal(t, outbox.PushDone, push(t, c, more))
	require.Len(t, s.receive(t, s.Transport, plenty(), 1), 1)
}

func pushOfAnotherEpoch(t testing.TB, s *Subject, c outbox.Carrier) {
	t.Helper()
	one, two := s.Carrier.Queued(t, 2), s.Carrier.Queued(t, 3)
	require.Empty(t, inside(t, c).Epoch)
	require.Equal(t, outbox.PushGap, push(t, c, two), "the first of an epoch is missing")
	require.Equal(t, outbox.PushDone, push(t, c, one))
	two.Epoch = "7d1f0c52-0e6c-4f4e-9a9e-0d7f1c5b2a10"
	require.Equal(t, outbox.PushGap, push(t, c, two), "the first of another epoch is missing")
	two.First = two.Number
	require.Equal(t, outbox.PushDone, push(t, c, two))
	require.Equal(t, outbox.PushDone, push(t, c, two))
	require.Equal(t, two.Epoch, inside(t, c).Epoch)
	require.Equal(t, two.Number, inside(t, c).Last)
	s.receive(t, s.Transport, plenty(), 3) // it may have dropped earlier messages
}

func insideTellsTheOldest(t testing.TB, s *Subject, c outbox.Carrier) {
	t.Helper()
	one, two := s.Carrier.Queued(t, 2), s.Carrier.Queued(t, 2)
	push(t, c, one)
	push(t, c, two)
	in := inside(t, c)
	require.Equal(t, outbox.Inside{Epoch: one.Epoch, Last: two.Number, Oldest: in.Oldest}, in)
	require.LessOrEqual(t, in.Oldest, one.Number)
	got := s.receive(t, s.Transport, plenty(), 4)
	require.LessOrEqual(t, inside(t, c).Oldest, one.Number, "what is claimed is not settled")
	s.settle(t, got, sent)
	require.Equal(t, outbox.Inside{Epoch: one.Epoch, Last: two.Number, Oldest: two.Number + 1}, inside(t, c))
}

// drops receives nothing until the carrier has no copies.
func (s *Subject) drops(t testing.TB, what string) {
	t.Helper()
	s.until(t, what+" are dropped", func() bool {
		s.nothing(t, plenty())
		return s.Carrier.Copies(t) == 0
	})
}

// Verdict "not queued (by that push)".
func latestPushClaims(t testing.TB, s *Subject, c outbox.Carrier) {
	t.Helper()
	old := s.Carrier.Queued(t, 5)
	later := s.Carrier.Requeued(t, old)
	push(t, c, old)
	s.drops(t, "copies that a later push has made useless")
	push(t, c, later)
	require.Len(t, s.receive(t, s.Transport, plenty(), 5), 5)
}

// Verdict "held".
func heldLeavesTheCarrier(t testing.TB, s *Subject, c outbox.Carrier) {
	t.Helper()
	p := s.Carrier.Queued(t, 5)
	push(t, c, p)
	release := s.Hold(t, p.Keys[0].JobID)
	s.drops(t, "held messages, which are in the way of others")
	release()
	defer s.dispatch(t)()
	require.Len(t, s.receive(t, s.Transport, plenty(), 5), 5)
}

// A crash of the server loses claims that were not durable yet. The messages are QUEUED, the relay cannot record them, and
// it has the only copies.
func forgottenClaimComesAgain(t testing.TB, s *Subject, c outbox.Carrier) {
	t.Helper()
	p := s.Carrier.Queued(t, 5)
	push(t, c, p)
	for range 3 { // a returned copy may be received before the return is complete
		got := s.receive(t, s.Transport, plenty(), 5)
		s.Carrier.Unclaim(t, p.Keys)
		var lost []outbox.Settled
		for k := range got {
			lost = append(lost, outbox.Settled{Key: k})
		}
		settled := make(chan error, 1)
		go func() { settled <- c.Settled(t.Context(), lost) }()
		again := s.receive(t, s.Transport, plenty(), 5)
		require.NoError(t, <-settled)
		s.settle(t, again, outbox.Release)
	}
	s.settle(t, s.receive(t, s.Transport, plenty(), 5), sent)
	s.drops(t, "copies of what is sent")
}

func recalledWhileQueued(t testing.TB, s *Subject, c outbox.Carrier) {
	t.Helper()
	p := s.Carrier.Queued(t, 5)
	push(t, c, p)
	s.Recall(t, p.Keys[:2])
	require.NotContains(t, s.receive(t, s.Transport, plenty(), 3), p.Keys[0])
	s.drops(t, "copies of what is recalled")
}

// A dispatcher died between its COMMIT and the hand-over.
func queuedAndNeverPushed(t testing.TB, s *Subject, c outbox.Carrier) {
	t.Helper()
	push(t, c, s.Carrier.Queued(t, 2))
	s.Carrier.Queued(t, 3)
	s.Carrier.Queued(t, 4)
	defer s.dispatch(t)()
	require.Len(t, s.receive(t, s.Transport, plenty(), 9), 9)
}

// The answer of a push was lost; the push was applied or not.
func pushWithoutAnAnswer(t testing.TB, s *Subject, c outbox.Carrier) {
	t.Helper()
	s.Bulk(t, "a", 30, 0)
	s.Activities(t, 5, 0)
	defer s.Carrier.Dispatch(t, &unanswered{Carrier: c})()
	require.Len(t, s.receive(t, s.Transport, plenty(), 35), 35)
	s.nothing(t, plenty())
}

// unanswered loses the first pushes, and the answers of the next ones.
type unanswered struct {
	outbox.Carrier
	mu sync.Mutex
	n  int
}

func (u *unanswered) Push(ctx context.Context, p outbox.PushGroup) (outbox.PushAnswer, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.n++
	if u.n <= 2 {
		return "", errors.New("connection refused")
	}
	answer, err := u.Carrier.Push(ctx, p)
	if u.n <= 4 {
		return "", errors.New("connection reset")
	}
	return answer, err
}

func fullGoesOn(t testing.TB, s *Subject, _ outbox.Carrier) {
	t.Helper()
	n := 3 * s.Carrier.Capacity
	s.Bulk(t, "a", n, 0)
	defer s.dispatch(t)()
	s.until(t, "nearly full", func() bool { return s.Carrier.Copies(t) > s.Carrier.Capacity/2 })
	likes := s.Activities(t, 3, 0)
	s.receive(t, s.Transport, grant(1000, 0), len(likes)) // activities do not wait for bulk credits
	for n > 0 {
		require.LessOrEqual(t, s.Carrier.Copies(t), s.Carrier.Capacity)
		got := s.receive(t, s.Transport, plenty(), 1)
		s.settle(t, got, sent)
		n -= len(got)
	}
}

func forgottenIsPushedAgain(t testing.TB, s *Subject, c outbox.Carrier) {
	t.Helper()
	s.Bulk(t, "a", 20, 0)
	s.Activities(t, 5, 0)
	stop := s.dispatch(t)
	s.until(t, "all is pushed", func() bool { return s.Carrier.Copies(t) == 25 })
	stop()
	epoch := inside(t, c).Epoch
	s.Carrier.Forget(t)
	require.Zero(t, s.Carrier.Copies(t))
	defer s.dispatch(t)()
	require.Len(t, s.receive(t, s.Transport, plenty(), 25), 25)
	require.NotEqual(t, epoch, inside(t, c).Epoch)
}

func lostCopiesAreSwept(t testing.TB, s *Subject, c outbox.Carrier) {
	t.Helper()
	p := s.Carrier.Queued(t, 5)
	push(t, c, p)
	s.Carrier.Lose(t, p.Keys[1:3])
	defer s.dispatch(t)()
	got := s.receive(t, s.Transport, plenty(), 3)
	s.settle(t, got, sent)
	again := s.receive(t, s.Transport, plenty(), 2)
	require.Contains(t, again, p.Keys[1])
	require.Contains(t, again, p.Keys[2])
}

func twoDispatchers(t testing.TB, s *Subject, _ outbox.Carrier) {
	t.Helper()
	var keys []outbox.Key
	for _, lane := range []string{"a", "b", "a"} {
		keys = append(keys, s.Bulk(t, lane, 60, 0)...)
	}
	stop := s.dispatch(t)
	defer s.Carrier.Dispatch(t, s.carrier(t, s.Other))()
	first := s.receive(t, s.Transport, plenty(), 60)
	stop()
	keys = append(keys, s.Activities(t, 30, 0)...)
	rest := s.receive(t, s.Other, plenty(), 210-len(first))
	for _, k := range keys {
		_, before := first[k]
		_, after := rest[k]
		require.NotEqual(t, before, after, "%v came twice, or never", k)
	}
	require.Equal(t, 210, s.Processing(t))
}

// until waits for a condition.
func (s *Subject) until(t testing.TB, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); !is(); <-tick.C {
		require.Less(t, time.Since(began), s.patience(), "never: %s", what)
	}
}
