package judge_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/relay/judge"
	"github.com/belfryhq/belfry/outbox/sender"
)

func failedTooOften(s *judge.Streaks, job int64, r sender.Result, most int) bool {
	_, full := s.Add(job, r, most)
	return full
}

// What lengthens a streak, what ends it, and what leaves it as it is.
func TestStreaks_Count(t *testing.T) {
	t.Parallel()
	classes := map[rune]sender.Class{
		'A': sender.Accepted, 'r': sender.Pending, 'P': sender.Permanent, 'i': sender.InvalidAddress, 'R': sender.Retryable, 'U': sender.Unknown,
	}
	for answers, times := range map[string]int{
		"PP": 0, "PPP": 1, "PiP": 1, "iii": 1, "PPAP": 0, "PPrP": 0, "PPRP": 1, "PUPRP": 1, "PPAPPP": 1, "PPPPPP": 2, "PPPPP": 1, "RRRUUU": 0,
	} {
		var s judge.Streaks
		n := 0
		for _, answer := range answers {
			if failedTooOften(&s, 1, sender.Result{Class: classes[answer]}, 3) {
				n++
			}
			require.False(t, failedTooOften(&s, 2, sender.Result{Class: sender.Permanent}, 0), "never")
		}
		require.Equal(t, times, n, answers)
	}
}

// Streaks are remembered of a bounded number of jobs, and activities take no room.
func TestStreaks_AreBounded(t *testing.T) {
	t.Parallel()
	var s judge.Streaks
	failed := sender.Result{Class: sender.Permanent}
	full := func(job int64) bool { return failedTooOften(&s, job, failed, 2) }
	require.False(t, full(1))
	for activity := range int64(20_000) {
		require.False(t, full(-1-activity))
	}
	require.True(t, full(1))
	require.False(t, full(1))
	for job := range int64(10_000) {
		require.False(t, full(2+job))
	}
	require.False(t, full(1), "all are counted anew")
}

// sampleAfter is a sample of n messages after the first streak of failures.
func sampleAfter(t *testing.T, streaks *judge.Streaks, receipts bool, n int) *judge.Sample {
	t.Helper()
	for range 1000 {
		if streak, full := streaks.Add(1, sender.Result{Class: sender.Permanent}, 500); full {
			s := judge.NewSample(streak, receipts)
			claimed := make([]outbox.Claimed, n)
			for i := range claimed {
				claimed[i].Key = key(i)
			}
			s.Expect(claimed)
			return s
		}
	}
	require.FailNow(t, "no streak is full")
	return nil
}

func key(i int) outbox.Key { return outbox.Key{JobID: 1, ChannelID: int64(i)} }

// The failures of samples that decide nothing add up, until the sender accepts a message.
func TestSample_IsContinued(t *testing.T) {
	t.Parallel()
	var streaks judge.Streaks
	fail := func(s *judge.Sample, n int) {
		for i := range n {
			s.Observe(key(i), sender.InvalidAddress, true, false)
			s.Observe(key(i), sender.InvalidAddress, true, false) // once
		}
	}
	first := sampleAfter(t, &streaks, false, 1000)
	fail(first, 30)
	require.False(t, first.Fails(true))
	streaks.End(first)
	next := sampleAfter(t, &streaks, false, 1000)
	require.Equal(t, 550, next.Length)
	fail(next, 19)
	require.False(t, next.Fails(true))
	require.False(t, next.Done())
	fail(next, 20)
	require.True(t, next.Done())
	require.True(t, next.Fails(false))

	streaks.Add(1, sender.Result{Class: sender.Accepted}, 500)
	again := sampleAfter(t, &streaks, false, 1000)
	require.Equal(t, 500, again.Length)
	fail(again, 49)
	require.False(t, again.Fails(false))
	again.Observe(outbox.Key{JobID: 1, ChannelID: 5000}, sender.Accepted, false, false)
	fail(again, 60)
	require.False(t, again.Fails(true), "the sender has accepted one")
	streaks.End(again)
	require.Equal(t, 1000, sampleAfter(t, &streaks, false, 1).Length, "twice as many are allowed")
}

// A sample with as many deferred as failed messages decides nothing, nor one of which receipts are not known.
func TestSample_DecidesByAnswers(t *testing.T) {
	t.Parallel()
	var streaks judge.Streaks
	s := sampleAfter(t, &streaks, false, 100)
	for i := range 100 {
		s.Observe(key(i), map[bool]sender.Class{true: sender.Permanent, false: sender.Retryable}[i%2 == 0], i%2 == 0, false)
	}
	require.True(t, s.Done())
	require.False(t, s.Fails(true))

	streaks = judge.Streaks{}
	s = sampleAfter(t, &streaks, true, 100)
	for i := range 100 {
		s.Observe(key(i), sender.Pending, false, false)
	}
	require.True(t, s.Enough())
	require.True(t, s.Awaits())
	for i := range 50 {
		s.Observe(key(i), sender.Permanent, true, true)
	}
	require.False(t, s.Fails(true), "the others may be accepted")
	s.Observe(key(50), sender.Permanent, true, true)
	require.True(t, s.Fails(false))
	s.Observe(key(99), sender.Accepted, false, true)
	require.False(t, s.Fails(true))

	streaks = judge.Streaks{}
	s = sampleAfter(t, &streaks, false, 3)
	for i := range 3 {
		require.False(t, s.Fails(true))
		s.Observe(key(i), sender.Permanent, true, false)
	}
	require.False(t, s.Fails(false))
	require.True(t, s.Fails(true), "these are all that are left")
}
