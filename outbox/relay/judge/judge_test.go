package judge_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/relay/judge"
	"github.com/belfryhq/belfry/outbox/sender"
)

func failedTooOften(s *judge.Streaks, job int64, r sender.Result, most int) bool {
	_, full := s.Add(outbox.Key{JobID: job}, r, most)
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
		if streak, full := streaks.Add(key(-1), sender.Result{Class: sender.Permanent}, 500); full {
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
			s.Observe(key(i), sender.Result{Class: sender.InvalidAddress}, true, false)
			s.Observe(key(i), sender.Result{Class: sender.InvalidAddress}, true, false) // once
		}
	}
	first := sampleAfter(t, &streaks, false, 1000)
	fail(first, 30)
	first.Exhaust()
	require.Equal(t, judge.Continue, first.Verdict())
	streaks.End(first)
	next := sampleAfter(t, &streaks, false, 1000)
	require.Equal(t, 550, next.Length)
	fail(next, 19)
	require.Equal(t, judge.Continue, next.Verdict())
	require.False(t, next.Done())
	fail(next, 20)
	require.True(t, next.Done())
	require.Equal(t, judge.Fail, next.Verdict())

	streaks.Add(key(-1), sender.Result{Class: sender.Accepted}, 500)
	again := sampleAfter(t, &streaks, false, 1000)
	require.Equal(t, 500, again.Length)
	fail(again, 49)
	require.Equal(t, judge.Continue, again.Verdict())
	again.Observe(key(5000), sender.Result{Class: sender.Accepted}, false, false)
	fail(again, 60)
	require.Equal(t, judge.Continue, again.Verdict(), "the sender has accepted one")
	streaks.End(again)
	require.Equal(t, 1000, sampleAfter(t, &streaks, false, 1).Length, "twice as many are allowed")
}

// A sample with as many deferred as failed messages decides nothing, nor one of which receipts are not known.
func TestSample_DecidesByAnswers(t *testing.T) {
	t.Parallel()
	var streaks judge.Streaks
	s := sampleAfter(t, &streaks, false, 100)
	for i := range 100 {
		s.Observe(key(i), sender.Result{Class: map[bool]sender.Class{true: sender.Permanent, false: sender.Retryable}[i%2 == 0]}, i%2 == 0, false)
	}
	require.True(t, s.Done())
	s.Exhaust()
	require.Equal(t, judge.Continue, s.Verdict())

	streaks = judge.Streaks{}
	s = sampleAfter(t, &streaks, true, 100)
	for i := range 100 {
		s.Observe(key(i), sender.Result{Class: sender.Pending}, false, false)
	}
	require.True(t, s.Enough())
	require.True(t, s.Awaits())
	for i := range 50 {
		s.Observe(key(i), sender.Result{Class: sender.Permanent}, true, true)
	}
	s.Exhaust()
	require.Equal(t, judge.Continue, s.Verdict(), "the others may be accepted")
	s.Observe(key(50), sender.Result{Class: sender.Permanent}, true, true)
	require.Equal(t, judge.Fail, s.Verdict())
	s.Observe(key(99), sender.Result{Class: sender.Accepted}, false, true)
	require.Equal(t, judge.Continue, s.Verdict())

	streaks = judge.Streaks{}
	s = sampleAfter(t, &streaks, false, 3)
	for i := range 3 {
		require.Equal(t, judge.Continue, s.Verdict())
		s.Observe(key(i), sender.Result{Class: sender.Permanent}, true, false)
	}
	require.Equal(t, judge.Continue, s.Verdict())
	s.Exhaust()
	require.Equal(t, judge.Fail, s.Verdict(), "these are all that are left")
}

// While the job is written, a sample contains only its oldest addresses. So a failing one holds the job, and the next one
// contains ten times as many messages, or all.
func TestSample_HoldsAJobDuringItsWalk(t *testing.T) {
	t.Parallel()
	var streaks judge.Streaks
	s := sampleAfter(t, &streaks, false, 50)
	fail := func(n int) {
		for i := range n {
			s.Observe(key(i), sender.Result{Class: sender.InvalidAddress}, true, false)
		}
	}
	s.Begin(outbox.Walk{Written: 600, Continues: true})
	fail(49)
	require.Equal(t, judge.Continue, s.Verdict(), "not decided")
	fail(50)
	require.Equal(t, judge.Hold, s.Verdict())
	require.False(t, s.Renew(outbox.Walk{Written: 5999, Continues: true}))
	require.Equal(t, judge.Hold, s.Verdict())
	require.True(t, s.Renew(outbox.Walk{Written: 6000, Continues: true}))
	require.Equal(t, judge.Continue, s.Verdict(), "the score begins again")
	require.False(t, s.Done())

	s.Begin(outbox.Walk{Written: 6000, Continues: true})
	s.Exhaust()
	require.Equal(t, judge.Hold, s.Verdict(), "no message waits, and so none can be tried yet")
	require.True(t, s.Renew(outbox.Walk{Written: 7000}), "all is written")
	s.Expect([]outbox.Claimed{{Key: key(0)}, {Key: key(1)}})
	s.Begin(outbox.Walk{Written: 7000})
	fail(2)
	require.Equal(t, judge.Continue, s.Verdict(), "the earlier sample was exhausted, not this one")
	s.Exhaust()
	require.Equal(t, judge.Fail, s.Verdict())
	s.Begin(outbox.Walk{Written: 7000, Exempt: true})
	require.Equal(t, judge.Continue, s.Verdict(), "resumed by an operator before the sample")

	require.True(t, s.Renew(outbox.Walk{}))
	s.Begin(outbox.Walk{Written: 600, Continues: true})
	s.Exhaust()
	require.Equal(t, judge.Hold, s.Verdict())
	require.False(t, s.Renew(outbox.Walk{Exempt: true}), "resumed by an operator")
	require.Equal(t, judge.Continue, s.Verdict())
	s.Begin(outbox.Walk{Written: 600, Continues: true})
	s.Observe(key(7), sender.Result{Class: sender.Accepted}, false, false)
	require.Equal(t, judge.Continue, s.Verdict(), "accepted meanwhile")
}

// A server that greylists refuses each good address at first, so that the gone ones are more. A sample with such a refusal
// is undecided, and the next ones need more failures.
func TestSample_WithARefusedAddressIsUndecided(t *testing.T) {
	t.Parallel()
	var streaks judge.Streaks
	try := func(failed, refused int) *judge.Sample {
		s := sampleAfter(t, &streaks, false, failed+refused)
		for i := range failed {
			s.Observe(key(i), sender.Result{Class: sender.InvalidAddress}, true, false)
		}
		for i := range refused {
			s.Observe(key(failed+i), sender.Result{Class: sender.Retryable, AboutAddress: true}, false, false)
		}
		return s
	}
	s := try(99, 1)
	require.True(t, s.Done())
	s.Exhaust()
	require.Equal(t, judge.Continue, s.Verdict())
	streaks.End(s)
	s = try(99, 1)
	require.Equal(t, 550, s.Length)
	require.Equal(t, judge.Continue, s.Verdict(), "in any sample")
	streaks.End(s)
	s = try(0, 0)
	s.Exhaust()
	require.Equal(t, judge.Fail, s.Verdict(), "198 of 150 failures")

	streaks = judge.Streaks{}
	streaks.End(try(10, 40))
	s = try(100, 0)
	s.Exhaust()
	require.Equal(t, judge.Continue, s.Verdict(), "those that are left are gone, and the others come again")
	streaks.Add(key(-1), sender.Result{Class: sender.Accepted}, 500)
	require.Equal(t, judge.Fail, try(50, 0).Verdict())
}

// Failures are reported first. Messages that await their receipts count in favour of the job in the next samples, too.
func TestSample_CarriesUnknownReceiptsOn(t *testing.T) {
	t.Parallel()
	var streaks judge.Streaks
	observe := func(s *judge.Sample, class sender.Class, from, to int) {
		for i := from; i < to; i++ {
			s.Observe(key(i), sender.Result{Class: class}, class == sender.Permanent, class != sender.Pending)
		}
	}
	s := sampleAfter(t, &streaks, true, 100)
	observe(s, sender.Pending, 0, 100)
	observe(s, sender.Permanent, 0, 30)
	require.True(t, s.Awaits())
	require.Equal(t, judge.Continue, s.Verdict())
	streaks.End(s)

	s = sampleAfter(t, &streaks, true, 0)
	require.Equal(t, 550, s.Length)
	require.True(t, s.Enough(), "of the first sample's messages")
	require.False(t, s.Awaits(), "they were awaited before")
	require.Equal(t, judge.Continue, s.Verdict())
	s.Expect([]outbox.Claimed{{Key: key(100)}})
	observe(s, sender.Pending, 100, 101)
	require.True(t, s.Awaits())
	observe(s, sender.Permanent, 30, 45)
	require.Equal(t, judge.Continue, s.Verdict(), "45 of 101")
	streaks.End(s)

	for range 20 {
		streaks.Add(key(45), sender.Result{Class: sender.Permanent}, 500)
	}
	s = sampleAfter(t, &streaks, true, 0)
	require.Equal(t, judge.Continue, s.Verdict(), "46 of 101: a receipt counts once")
	streaks.End(s)
	for i := 46; i < 60; i++ {
		streaks.Add(key(i), sender.Result{Class: sender.Permanent}, 500)
	}
	s = sampleAfter(t, &streaks, true, 0)
	require.Equal(t, judge.Fail, s.Verdict(), "60 of 101, some of them between the samples")
	observe(s, sender.Accepted, 61, 62)
	require.Equal(t, judge.Continue, s.Verdict())
}
