package limit_test

import (
	"crypto/rand"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/relay/limit"
	"github.com/belfryhq/belfry/outbox/sender"
)

func limits(c limit.Config, perCall int, reserve float64) *limit.Limits {
	return limit.New(c, perCall, reserve, zerolog.Nop())
}

// settings returns the limits of a sender with the default breaker.
func settings() limit.Config {
	return limit.Config{Name: "s", Concurrency: 16, Breaker: limit.BreakerConfig{Failures: 20, OpenFor: 30 * time.Second, Probes: 1}}
}

// pass lets the time of a bubble pass.
func pass(d time.Duration) { <-time.After(d) }

// answered ends permits with one result each.
func answered(l *limit.Limits, permits []limit.Permit, r sender.Result) {
	for _, p := range permits {
		l.End(p, []sender.Result{r}, []string{rand.Text()}, time.Millisecond, time.Now())
	}
}

func total(permits []limit.Permit) (activities, bulk int) {
	for _, p := range permits {
		if p.Bulk {
			bulk += p.N
		} else {
			activities += p.N
		}
	}
	return activities, bulk
}

// Calls at once: bulk leaves activities their share, which they get first but for every
// fifth call; a call takes what the client takes.
func TestLimits_SlotsAndReserve(t *testing.T) {
	t.Parallel()
	c := settings()
	c.Concurrency = 10
	for _, test := range []struct {
		perCall, activities, bulk int
		reserve                   float64
		wantActivities, wantBulk  int
	}{
		{1, 0, 100, 0.2, 0, 8},
		{1, 100, 100, 0.2, 8, 2},
		{1, 100, 100, 0.9, 9, 1},
		{100, 100_000, 100_000, 0.2, 800, 200},
		{1, 5, 100, 0.2, 5, 5},
		{1, 1, 100, 0.2, 1, 8},
		{1, 0, 3, 0.2, 0, 3},
		{100, 0, 100_000, 0.2, 0, 800},
		{100, 150, 100_000, 0.2, 150, 800},
		{1, 0, 100, 0.9, 0, 1},
		{1, 0, 100, 0, 0, 10},
	} {
		l := limits(c, test.perCall, test.reserve)
		permits, _ := l.Admit(test.activities, test.bulk, 100_000, time.Now())
		activities, bulk := total(permits)
		require.Equal(t, []int{test.wantActivities, test.wantBulk}, []int{activities, bulk}, test)
		more, _ := l.Admit(0, 100_000, 100_000, time.Now())
		if test.bulk >= 100 {
			require.Empty(t, more, test)
		}
		answered(l, permits, sender.Result{Class: sender.Accepted})
		again, _ := l.Admit(test.activities, test.bulk, 100_000, time.Now())
		require.Len(t, again, len(permits), "what has ended is free again")
	}
}

// The rate holds over any stretch of time, also after a pause, is shared by the live
// relays, and changes at once.
func TestLimits_RateHolds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := settings()
		c.Concurrency, c.RatePerSecond, c.Burst = 1000, 100, 20
		l := limits(c, 1, 0)
		second := func() (n int) {
			for began := time.Now(); time.Since(began) < time.Second; {
				permits, pause := l.Admit(0, 1000, 1000, time.Now())
				n += len(permits)
				answered(l, permits, sender.Result{Class: sender.Accepted})
				if len(permits) == 0 {
					pass(pause)
				}
			}
			return n
		}
		require.InDelta(t, 120, second(), 2)
		require.InDelta(t, 100, second(), 2)
		pass(time.Hour)
		require.InDelta(t, 120, second(), 2, "no stampede after a pause")
		l.Operate(outbox.SenderOverride{}, 4, time.Now())
		require.InDelta(t, 25, second(), 3)
		perSecond := 400.0
		l.Operate(outbox.SenderOverride{RatePerSecond: &perSecond}, 4, time.Now())
		require.InDelta(t, 100, second(), 5)
		l.Operate(outbox.SenderOverride{Paused: true}, 4, time.Now())
		require.Zero(t, second())
		l.Operate(outbox.SenderOverride{}, 0, time.Now())
		require.InDelta(t, 25+20, second(), 5, "a heartbeat that fails leaves the share as it was")
	})
}

// Activities that never end leave bulk messages that wait one message in five, or one
// call in five, of one sender.
func TestLimits_ActivityFloodStarvesBulk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, perCall := range []int{1, 10} {
			c := settings()
			c.Concurrency, c.RatePerSecond, c.Burst = 4, 100, 10
			l := limits(c, perCall, 0.9)
			activities, bulk := 0, 0
			for began := time.Now(); time.Since(began) < 10*time.Second; {
				permits, pause := l.Admit(1000, 1000, 500, time.Now())
				a, b := total(permits)
				activities, bulk = activities+a, bulk+b
				answered(l, permits, sender.Result{Class: sender.Accepted})
				if len(permits) == 0 {
					pass(pause)
				}
			}
			require.InDelta(t, 1000, activities+bulk, 20)
			require.InDelta(t, 200, bulk, 20, "%d per call", perCall)
		}
	})
}

// What opens the breaker and what does not: 429, and answers about one message, do not.
func TestLimits_WhatOpensTheBreaker(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		result sender.Result
		opens  bool
	}{
		{sender.Result{Class: sender.Retryable, Code: "503"}, true},
		{sender.Result{Class: sender.Retryable, Code: "connection"}, true},
		{sender.Result{Class: sender.Unknown, Code: "502"}, true},
		{sender.Result{}, true},
		{sender.Result{Class: sender.Permanent, Code: "401"}, true},
		{sender.Result{Class: sender.Permanent, Code: "401 invalid_key"}, true},
		{sender.Result{Class: sender.Permanent, Code: "403 InvalidProviderToken"}, true},
		{sender.Result{Class: sender.Permanent, Code: "403 MissingProviderToken"}, true},
		{sender.Result{Class: sender.Permanent, Code: "400 BadCertificate"}, true},
		{sender.Result{Class: sender.Retryable, Code: "403 ExpiredProviderToken"}, true},
		{sender.Result{Class: sender.Permanent, Code: "PERMISSION_DENIED"}, true},
		{sender.Result{Class: sender.Permanent, Code: "THIRD_PARTY_AUTH_ERROR"}, true},
		{sender.Result{Class: sender.Permanent, Code: "400 4010"}, false},
		{sender.Result{Class: sender.Permanent, Code: "SENDER_ID_MISMATCH"}, false},
		{sender.Result{Class: sender.Retryable, Code: "429 too_many_requests"}, false},
		{sender.Result{Class: sender.Retryable, Code: "429"}, false},
		{sender.Result{Class: sender.Retryable, Code: "TooManyRequests"}, false},
		{sender.Result{Class: sender.Permanent, Code: "400"}, false},
		{sender.Result{Class: sender.InvalidAddress, Code: "410"}, false},
		{sender.Result{Class: sender.Accepted}, false},
		{sender.Result{Class: sender.Pending}, false},
	} {
		c := settings()
		c.Breaker = limit.BreakerConfig{Failures: 3, OpenFor: time.Hour, Probes: 1}
		l := limits(c, 1, 0)
		for range 3 {
			permits, _ := l.Admit(0, 1, 1, time.Now())
			answered(l, permits, test.result)
		}
		reason, left := l.Blocked(time.Now())
		require.Equal(t, test.opens, reason == outbox.ReasonBreakerOpen, test)
		require.Equal(t, test.opens, left > 59*time.Minute, test)
	}
}

// An open breaker lets nothing through, then one probe at a time, and closes when it
// succeeds.
func TestLimits_BreakerProbes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := settings()
		c.Breaker = limit.BreakerConfig{Failures: 2, OpenFor: time.Minute, Probes: 1}
		l := limits(c, 1, 0)
		failing := sender.Result{Class: sender.Retryable, Code: "503"}
		permits, _ := l.Admit(0, 5, 5, time.Now())
		require.Len(t, permits, 5)
		answered(l, permits, failing)
		for range 3 {
			permits, _ = l.Admit(0, 5, 5, time.Now())
			require.Empty(t, permits)
			pass(time.Minute + time.Millisecond)
			permits, _ = l.Admit(0, 5, 5, time.Now())
			require.Len(t, permits, 1, "one probe")
			answered(l, permits, failing)
		}
		pass(time.Minute + time.Millisecond)
		permits, _ = l.Admit(0, 5, 5, time.Now())
		l.End(permits[0], nil, nil, 0, time.Now()) // it was not called: another may
		permits, _ = l.Admit(0, 5, 5, time.Now())
		answered(l, permits, sender.Result{Class: sender.Accepted})
		permits, _ = l.Admit(0, 5, 5, time.Now())
		require.Len(t, permits, 5)
	})
}

// A recipient whose own push service fails neither opens the breaker nor holds the sender, nor keeps an open breaker open.
func TestLimits_ARecipientCountsOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := settings()
		c.Breaker = limit.BreakerConfig{Failures: 3, OpenFor: time.Minute, Probes: 1}
		l := limits(c, 1, 0)
		fails := func(recipient, code string) (admitted bool) {
			permits, _ := l.Admit(0, 1, 1, time.Now())
			for _, p := range permits {
				l.End(p, []sender.Result{{Class: sender.Retryable, Code: code, RetryAfter: time.Minute}}, []string{recipient}, time.Millisecond, time.Now())
			}
			return len(permits) == 1
		}
		for range 20 {
			require.True(t, fails("kim", "503"))
			require.True(t, fails("lee", "429"))
		}
		require.True(t, fails("ann", "503"))
		require.True(t, fails("bob", "503"))
		require.False(t, fails("bob", "503"), "three recipients in a row")
		pass(time.Minute + time.Millisecond)
		for range 5 {
			require.True(t, fails("kim", "503"), "is no probe")
		}
		permits, _ := l.Admit(0, 5, 5, time.Now())
		require.Len(t, permits, 1)
		answered(l, permits, sender.Result{Class: sender.Accepted})
		require.Equal(t, "closed", l.State().Breaker)
		for _, recipient := range []string{"kim", "lee", "ann"} { // count again
			require.True(t, fails(recipient, "503"))
		}
		require.False(t, fails("bob", "503"))
		pass(time.Minute + time.Millisecond)
		require.True(t, fails("cho", "503"))
		require.False(t, fails("bob", "503"), "a probe for another recipient")
	})
}

// A provider that says 429 to everything is left alone for as long as it asks, a minute
// at most.
func TestLimits_ManyThrottledAnswersHoldTheSender(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := settings()
		c.Breaker.Failures = 3
		l := limits(c, 1, 0)
		now := time.Now()
		throttled := sender.Result{Class: sender.Retryable, Code: "429", RetryAfter: 10 * time.Second}
		permits, _ := l.Admit(0, 3, 3, now)
		answered(l, permits[:2], throttled)
		answered(l, permits[2:], sender.Result{Class: sender.Accepted}) // not all
		permits, _ = l.Admit(0, 3, 3, now)
		require.Len(t, permits, 3)
		answered(l, permits, throttled)
		permits, pause := l.Admit(0, 3, 3, now)
		require.Empty(t, permits)
		require.InDelta(t, 10, pause.Seconds(), 1)
		permits, _ = l.Admit(0, 3, 3, now.Add(11*time.Second))
		require.Len(t, permits, 3)
		throttled.RetryAfter = 30 * time.Second
		answered(l, permits[:2], throttled)
		permits, _ = l.Admit(0, 2, 2, now.Add(12*time.Second))
		require.Empty(t, permits, "half as many are enough when it is no better")
	})
}

// What is deferred is due in turn, at the sender's pace, and not for too long.
func TestLimits_DeferInTurn(t *testing.T) {
	t.Parallel()
	c := settings()
	c.RatePerSecond = 100
	l := limits(c, 1, 0)
	now := time.Now()
	start, span := l.NextTurns(500, true, 0, now)
	require.Equal(t, []time.Duration{0, 5 * time.Second}, []time.Duration{start, span})
	start, span = l.NextTurns(1000, true, 2*time.Second, now)
	require.Equal(t, []time.Duration{5 * time.Second, 10 * time.Second}, []time.Duration{start, span})
	start, span = l.NextTurns(10, true, time.Hour, now)
	require.Equal(t, 5*time.Minute, start, "longer is a guess")
	require.Equal(t, time.Second, span)
}

// A refusal of the client's own is no sign of the provider's life: no call was made.
func TestLimits_RefusalsOfTheClientDoNotKeepTheBreakerClosed(t *testing.T) {
	t.Parallel()
	c := settings()
	c.Breaker = limit.BreakerConfig{Failures: 3, OpenFor: time.Hour, Probes: 1}
	l := limits(c, 1, 0)
	down := sender.Result{Class: sender.Retryable, Code: "dial"}
	for _, result := range []sender.Result{down, {Class: sender.Permanent, Code: "subscription", Refusal: sender.RefusedAddress}, down, {Class: sender.Permanent, Code: "payload_too_large", Refusal: sender.RefusedContent}, down} {
		permits, _ := l.Admit(0, 1, 1, time.Now())
		require.Len(t, permits, 1)
		answered(l, permits, result)
	}
	reason, _ := l.Blocked(time.Now())
	require.Equal(t, outbox.ReasonBreakerOpen, reason)
}

// A mail server that cannot take mail for one address now, such as a full mailbox, is alive: a
// breaker that opened would let one such message through in half a minute, and hold all others.
func TestLimits_ATemporaryRefusalOfOneAddressIsASignOfLife(t *testing.T) {
	t.Parallel()
	for about, reason := range map[bool]outbox.Reason{true: "", false: outbox.ReasonBreakerOpen} {
		c := settings()
		c.Breaker = limit.BreakerConfig{Failures: 3, OpenFor: time.Hour, Probes: 1}
		l := limits(c, 1, 0)
		for range 3 {
			permits, _ := l.Admit(0, 1, 1, time.Now())
			require.Len(t, permits, 1)
			answered(l, permits, sender.Result{Class: sender.Retryable, Code: "452", AboutAddress: about})
		}
		got, _ := l.Blocked(time.Now())
		require.Equal(t, reason, got)
	}
}

// A sender that was slow and is fast again stands idle for as long as what it could not
// take was deferred.
func TestLimits_SlowSenderThatRecoversStandsIdle(t *testing.T) {
	t.Parallel()
	c := settings()
	c.Concurrency = 4
	l := limits(c, 1, 0)
	now := time.Now()
	permits, _ := l.Admit(0, 1, 1, now)
	l.End(permits[0], []sender.Result{{Class: sender.Accepted}}, []string{"a"}, 5*time.Second, now)
	for range 5 { // at a pace of 0.8 a second
		start, span := l.NextTurns(300, true, 0, now)
		require.GreaterOrEqual(t, start, time.Duration(0))
		require.LessOrEqual(t, start+span, 21*time.Second)
		require.Equal(t, 20*time.Second, span, "evenly, and not at once")
	}
	for range 100 {
		start, span := l.NextTurns(1, true, 0, now)
		require.LessOrEqual(t, start+span, 21*time.Second)
	}
}

// Activities that are deferred are due at the sender's pace, not after a bulk job's.
func TestLimits_ActivitiesWaitBehindBulkBacklog(t *testing.T) {
	t.Parallel()
	c := settings()
	c.RatePerSecond = 100
	l := limits(c, 1, 0)
	now := time.Now()
	l.NextTurns(1000, true, 0, now)
	start, _ := l.NextTurns(100, false, 0, now)
	require.Zero(t, start)
	start, _ = l.NextTurns(100, false, 0, now)
	require.Equal(t, time.Second, start, "after the activities before them")
	start, _ = l.NextTurns(100, true, 0, now)
	require.Equal(t, 10*time.Second, start)
}

// Messages for which there is no sender come again after ten seconds, but no more than
// five hundred a second, and activities wait behind none of them.
func TestAbsent_MessagesComeInTurn(t *testing.T) {
	t.Parallel()
	for later, next := range map[time.Duration]time.Duration{time.Second: 29*time.Second + 2*time.Millisecond, time.Hour: 10 * time.Second} {
		var a limit.Absent
		now, last := time.Now(), time.Duration(0)
		for range 10_001 {
			last = a.Pause(false, now)
		}
		require.Equal(t, 30*time.Second, last)
		require.Equal(t, next, a.Pause(false, now.Add(later)))
		require.Equal(t, 10*time.Second, a.Pause(true, now))
	}
}
