package relay

import (
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/time/rate"

	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/sender"
)

// limits controls how many messages a sender may be given now: its concurrent calls, a share of them
// reserved for activities, its rate, its circuit breaker, and an operator's pause. All of it can change
// at run time.
type limits struct {
	mu       sync.Mutex
	config   SenderConfig
	override outbox.SenderOverride // set by an operator, takes precedence over the configuration
	relays   int                   // live relays that share the rate
	reserve  float64               // the share of calls reserved for activities
	perCall  int                   // messages per call
	bucket   *rate.Limiter
	breaker  *breaker
	calls    int // in flight
	bulk     int // calls with bulk messages
	passed   int // calls of activities in a row while bulk messages were waiting

	throttled int       // answers 429 in a row
	heldUntil time.Time // by a provider that only answers 429

	took  time.Duration // by a call, smoothed; 0 if unknown
	turns turns
	log   zerolog.Logger
}

// turns contains the due times of the last deferred messages, for activities and bulk separately, so
// that activities do not wait behind a bulk job.
type turns struct{ activities, bulk time.Time }

func newLimits(c SenderConfig, perCall int, reserve float64, log zerolog.Logger) *limits {
	l := &limits{relays: 1, perCall: max(1, perCall), bucket: rate.NewLimiter(rate.Inf, 1), log: log}
	l.configure(c, reserve, time.Now())
	l.bucket = rate.NewLimiter(l.bucket.Limit(), l.bucket.Burst()) // full
	return l
}

// configure applies the configuration. A breaker whose settings change is closed.
func (l *limits) configure(c SenderConfig, reserve float64, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.breaker == nil || l.breaker.config != c.Breaker {
		l.breaker = newBreaker(c, l.log)
	}
	l.config, l.reserve = c, reserve
	l.adjust(now)
}

// operate applies an operator's settings and the number of live relays that share the rate; below one
// keeps the known number.
func (l *limits) operate(o outbox.SenderOverride, relays int, now time.Time) (changed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if changed = l.override.Paused != o.Paused; changed {
		l.turns = turns{}
	}
	l.override = o
	if relays >= 1 {
		l.relays = relays
	}
	l.adjust(now)
	return changed
}

// adjust updates the token bucket. An unchanged rate keeps its tokens.
func (l *limits) adjust(now time.Time) {
	perSecond := l.rate()
	limit, burst := rate.Inf, 1
	if perSecond > 0 {
		limit, burst = rate.Limit(perSecond), l.config.burst(perSecond)
	}
	if l.bucket.Burst() != burst {
		l.bucket.SetBurstAt(now, burst)
	}
	if l.bucket.Limit() != limit {
		l.bucket.SetLimitAt(now, limit)
		l.turns = turns{} // the pace has changed
	}
}

// inForce returns the effective settings.
func (l *limits) inForce() outbox.SenderLimits {
	l.mu.Lock()
	defer l.mu.Unlock()
	return outbox.SenderLimits{Name: l.config.Name, RatePerSecond: l.perSecond(), Concurrency: l.concurrency()}
}

// rate returns this relay's share of the sender's rate; 0 means no limit.
func (l *limits) rate() float64 { return l.perSecond() / float64(l.relays) }

// perSecond returns the sender's rate over all relays; 0 means no limit.
func (l *limits) perSecond() float64 {
	if l.override.RatePerSecond != nil {
		return *l.override.RatePerSecond
	}
	return l.config.RatePerSecond
}

func (l *limits) concurrency() int {
	if l.override.Concurrency != nil {
		return *l.override.Concurrency
	}
	return l.config.Concurrency
}

// permit allows one call of n messages. It must be ended.
type permit struct {
	n    int
	bulk bool
	done func(error)
}

// bulkTurn is the number of calls of activities after which a waiting bulk message has its turn.
const bulkTurn = 4

// admit permits calls, activities before bulk except for bulk's turns, for at most limit of the waiting
// messages. Without a permit, call it again after pause, or when a permit ends.
func (l *limits) admit(activities, bulk, limit int, now time.Time) (permits []permit, pause time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.override.Paused {
		return nil, time.Second
	}
	if now.Before(l.heldUntil) {
		return nil, l.heldUntil.Sub(now)
	}
	free := l.concurrency() - l.calls
	spare := min(free, l.concurrency()-l.reserved()-l.bulk)
	tokens := limit
	if l.bucket.Limit() != rate.Inf {
		tokens = min(limit, int(l.bucket.TokensAt(now)))
	}
	for free > 0 && tokens > 0 {
		p := permit{n: min(l.perCall, activities, tokens)}
		if bulk > 0 && spare > 0 && (activities == 0 || l.passed >= bulkTurn) {
			p = permit{n: min(l.perCall, bulk, tokens), bulk: true}
		}
		if p.n == 0 {
			break
		}
		var err error
		if p.done, err = l.breaker.allow(); err != nil {
			break
		}
		if p.bulk {
			bulk -= p.n
			spare--
			l.bulk++
			l.passed = 0
		} else {
			activities -= p.n
			if bulk > 0 {
				l.passed++
			}
		}
		l.calls++
		free, tokens = free-1, tokens-p.n
		l.bucket.AllowN(now, p.n)
		permits = append(permits, p)
	}
	if tokens == 0 {
		missing := 1 - l.bucket.TokensAt(now)
		return permits, max(time.Millisecond, time.Duration(missing/float64(l.bucket.Limit())*float64(time.Second)))
	}
	return permits, time.Second
}

// free returns the number of messages that fit into another round of calls.
func (l *limits) free() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(0, l.concurrency()-l.calls) * l.perCall
}

// reserved returns the number of calls reserved for activities. One call is always left to bulk.
func (l *limits) reserved() int {
	return min(int(math.Ceil(l.reserve*float64(l.concurrency()))), l.concurrency()-1)
}

// end returns a permit, with the results and duration of its call. Without results no call was made.
func (l *limits) end(p permit, results []sender.Result, took time.Duration, now time.Time) {
	verdict := judge(results)
	p.done(verdict)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls--
	if p.bulk {
		l.bulk--
	}
	if results == nil {
		return
	}
	if l.took == 0 {
		l.took = took
	}
	l.took = max(1, (9*l.took+took)/10)
	if !errors.Is(verdict, errThrottled) {
		l.throttled = 0
		return
	}
	l.throttled++
	if l.config.Breaker.Failures > 0 && l.throttled >= l.config.Breaker.Failures {
		l.heldUntil = now.Add(min(max(results[0].RetryAfter, time.Second), time.Minute))
		l.throttled = l.config.Breaker.Failures / 2 // an answer of another kind resets it
	}
}

var (
	errFailing   = errors.New("the provider fails")
	errThrottled = errors.New("the provider asks for fewer calls")
	errNoCall    = errors.New("no call was made")
)

// throttling lists providers' codes for too many calls, in addition to the status 429.
var throttling = []string{"QUOTA_EXCEEDED", "RESOURCE_EXHAUSTED", "TooManyRequests"}

// credentials lists providers' codes for refusing all calls, not one message, in addition to the status
// 401. Apple's have the status 403.
var credentials = []string{
	"UNAUTHENTICATED", "PERMISSION_DENIED", "THIRD_PARTY_AUTH_ERROR",
	"BadCertificate", "BadCertificateEnvironment", "BadEnvironmentKeyIdInToken", "ExpiredProviderToken", "Forbidden",
	"InvalidProviderToken", "MissingProviderToken", "UnrelatedKeyIdInToken",
}

// addresses lists the enhanced codes (RFC 3463) with which a healthy mail server temporarily refuses
// one address: the domain or mailbox is not known yet, or the mailbox is full, disabled or greylisted.
// 4.1.7 and 4.1.8 concern the sender and are not listed.
var addresses = []string{"4.1.1", "4.1.2", "4.1.3", "4.1.6", "4.1.10", "4.2.0", "4.2.1", "4.2.2", "4.2.3", "4.2.4"}

// judge rates the provider by the results of one call. An answer about a single address or message is a
// sign of life, even a permanent or temporary refusal.
func judge(results []sender.Result) error {
	if len(results) == 0 {
		return errNoCall
	}
	verdict := errNoCall
	for _, r := range results {
		if r.Refusal != "" {
			continue // refused by the client: the provider was not called
		}
		if errors.Is(verdict, errNoCall) {
			verdict = errThrottled
		}
		switch r.Class {
		case sender.Accepted, sender.Pending, sender.InvalidAddress:
			return nil
		case sender.Permanent:
			if !matches(r.Code, "401", credentials) {
				return nil
			}
			verdict = errFailing
		case sender.Retryable:
			if _, enhanced, _ := strings.Cut(r.Code, " "); slices.Contains(addresses, enhanced) {
				return nil
			}
			if !matches(r.Code, "429", throttling) {
				verdict = errFailing
			}
		case sender.Unknown:
			verdict = errFailing
		default: // as unknown
			verdict = errFailing
		}
	}
	return verdict
}

// matches reports whether a code is the status, alone or before a provider's code, or one of the given
// provider codes, alone or after a status.
func matches(code, status string, words []string) bool {
	first, second, _ := strings.Cut(code, " ")
	return first == status || slices.Contains(words, first) || slices.Contains(words, second)
}

// blocked returns the reason why the sender currently takes nothing, and the minimum time until it
// does. An empty reason means that it is not blocked.
func (l *limits) blocked(now time.Time) (outbox.Reason, time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.override.Paused:
		return outbox.ReasonSenderPaused, 5 * time.Second
	case l.breaker.open():
		return outbox.ReasonBreakerOpen, l.breaker.left(now)
	}
	return "", 0
}

// depth returns the number of bulk messages that may wait for the sender; further ones are not claimed.
// It is what the sender takes in five seconds, at most share and at least two rounds of calls.
func (l *limits) depth(share int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.breaker.halfOpen() {
		return max(l.config.Breaker.Probes*l.perCall, 1)
	}
	least := 2 * l.concurrency() * l.perCall
	if l.took == 0 {
		return max(least, (share+1)/2)
	}
	return max(least, min(int(5*l.pace()), share))
}

// pace estimates the messages per second that the sender takes, by Little's law. Before the first call
// ends, a call is assumed to take a tenth of a second.
func (l *limits) pace() float64 {
	took := l.took.Seconds()
	if took == 0 {
		took = 0.1
	}
	pace := float64(l.concurrency()*l.perCall) / took
	if r := l.rate(); r > 0 {
		pace = min(pace, r)
	}
	return pace
}

const (
	// longestBlocked limits how long a message is deferred for a blocked sender: an operator may resume
	// it earlier.
	longestBlocked = 5 * time.Minute
	// longestTurn limits the wait for a turn after that: the pace was measured while the sender was
	// slow, and a sender that is fast again would be idle.
	longestTurn = 20 * time.Second
)

// nextTurns assigns turns to n deferred messages, after all deferred messages of their kind, at the
// sender's pace: from start, evenly over span.
func (l *limits) nextTurns(n int, bulk bool, after time.Duration, now time.Time) (start, span time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	turn := &l.turns.activities
	if bulk {
		turn = &l.turns.bulk
	}
	after = min(after, longestBlocked)
	span = min(time.Duration(float64(n)/l.pace()*float64(time.Second)), longestTurn)
	start = min(max(turn.Sub(now), after), after+longestTurn-span)
	*turn = now.Add(start + span)
	return start, max(span, time.Second)
}
