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

// limits say how many messages a sender may be given right now: its calls at once, a
// share of them kept for activities, its rate, its circuit breaker, and an operator's
// pause. All of it changes live.
type limits struct {
	mu       sync.Mutex
	config   SenderConfig
	override outbox.SenderOverride // an operator's, over the configuration
	relays   int                   // live ones that share the rate
	reserve  float64               // the share of calls kept for activities
	perCall  int                   // messages per call
	bucket   *rate.Limiter
	breaker  *breaker
	calls    int // in flight
	bulk     int // of them without activities
	passed   int // calls of activities in a row while bulk messages were waiting

	throttled int       // answers 429 in a row
	heldUntil time.Time // by a provider that answers nothing but 429

	took  time.Duration // by a call, smoothed; 0: not known yet
	turns turns
	log   zerolog.Logger
}

// turns say when the last message that was deferred is due: activities do not wait
// behind what is left of a bulk job.
type turns struct{ activities, bulk time.Time }

func newLimits(c SenderConfig, perCall int, reserve float64, log zerolog.Logger) *limits {
	l := &limits{relays: 1, perCall: max(1, perCall), bucket: rate.NewLimiter(rate.Inf, 1), log: log}
	l.configure(c, reserve, time.Now())
	l.bucket = rate.NewLimiter(l.bucket.Limit(), l.bucket.Burst()) // full
	return l
}

// configure sets what the configuration says. A breaker whose settings change starts
// closed.
func (l *limits) configure(c SenderConfig, reserve float64, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.breaker == nil || l.breaker.config != c.Breaker {
		l.breaker = newBreaker(c, l.log)
	}
	l.config, l.reserve = c, reserve
	l.adjust(now)
}

// operate sets what operators say, and how many live relays share the rate; below one
// keeps what was known.
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

// adjust brings the token bucket in line. A rate that did not change keeps its tokens.
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
		l.turns = turns{} // the pace is another
	}
}

// inForce is what the sender works by.
func (l *limits) inForce() outbox.SenderLimits {
	l.mu.Lock()
	defer l.mu.Unlock()
	return outbox.SenderLimits{Name: l.config.Name, RatePerSecond: l.perSecond(), Concurrency: l.concurrency()}
}

// rate is this relay's share of the sender's rate; 0: no limit.
func (l *limits) rate() float64 { return l.perSecond() / float64(l.relays) }

// perSecond is the sender's rate over all relays; 0: no limit.
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

// permit is leave for one call of n messages. It must be ended.
type permit struct {
	n    int
	bulk bool
	done func(error)
}

// bulkTurn is how many calls of activities may go before one of bulk messages that wait.
const bulkTurn = 4

// admit gives leave for calls, activities before bulk but for bulk's turns, for as many
// messages of both as are waiting and at most limit. None: look again after pause, or
// when a permit ends.
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

// free is how many messages could be in one more round of calls.
func (l *limits) free() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(0, l.concurrency()-l.calls) * l.perCall
}

// reserved is how many calls bulk messages leave to activities. One is always bulk's.
func (l *limits) reserved() int {
	return min(int(math.Ceil(l.reserve*float64(l.concurrency()))), l.concurrency()-1)
}

// end returns a permit, after a call that took so long. No results: no call was made.
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
		l.throttled = l.config.Breaker.Failures / 2 // one answer of another kind resets it
	}
}

var (
	errFailing   = errors.New("the provider fails")
	errThrottled = errors.New("the provider asks for fewer calls")
	errNoCall    = errors.New("no call was made")
)

// throttling are the words by which providers ask for fewer calls, besides the status 429.
var throttling = []string{"QUOTA_EXCEEDED", "RESOURCE_EXHAUSTED", "TooManyRequests"}

// credentials are those by which they refuse all calls and not just one message, besides
// the status 401. Apple's come with the status 403.
var credentials = []string{
	"UNAUTHENTICATED", "PERMISSION_DENIED", "THIRD_PARTY_AUTH_ERROR",
	"BadCertificate", "BadCertificateEnvironment", "BadEnvironmentKeyIdInToken", "ExpiredProviderToken", "Forbidden",
	"InvalidProviderToken", "MissingProviderToken", "UnrelatedKeyIdInToken",
}

// addresses are the enhanced codes (RFC 3463) by which a mail server that is well cannot take
// mail for one address now: it does not know the domain or the mailbox yet, or the mailbox is
// full, disabled or greylisted. 4.1.7 and 4.1.8 are not among them: they are about the sender.
var addresses = []string{"4.1.1", "4.1.2", "4.1.3", "4.1.6", "4.1.10", "4.2.0", "4.2.1", "4.2.2", "4.2.3", "4.2.4"}

// judge says what one call's results tell about the provider. An answer about a single
// address or message is a sign of life, also a refusal, permanent or temporary.
func judge(results []sender.Result) error {
	if len(results) == 0 {
		return errNoCall
	}
	verdict := errNoCall
	for _, r := range results {
		if r.Refusal != "" {
			continue // the client's own: the provider was not called
		}
		if errors.Is(verdict, errNoCall) {
			verdict = errThrottled
		}
		switch r.Class {
		case sender.Accepted, sender.Pending, sender.InvalidAddress:
			return nil
		case sender.Permanent:
			if !says(r.Code, "401", credentials) {
				return nil
			}
			verdict = errFailing
		case sender.Retryable:
			if _, enhanced, _ := strings.Cut(r.Code, " "); slices.Contains(addresses, enhanced) {
				return nil
			}
			if !says(r.Code, "429", throttling) {
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

// says reports that a code is the status, by itself or before a provider's own word, or
// that the word is one of those given, by itself or after a status.
func says(code, status string, words []string) bool {
	first, second, _ := strings.Cut(code, " ")
	return first == status || slices.Contains(words, first) || slices.Contains(words, second)
}

// blocked says why the sender takes nothing for now, and for how long at least; an empty
// reason: it does.
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

// depth is how many bulk messages may wait for the sender, those of a job that come after
// them are left where they are: what it takes in five seconds, but not more than share, and
// at least two rounds of calls.
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

// pace is how many messages per second the sender probably takes, by Little's law. Before
// the first call ends, calls are taken to last a tenth of a second.
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
	// longestBlocked bounds how long a message is deferred because its sender takes
	// nothing: an operator may resume it before.
	longestBlocked = 5 * time.Minute
	// longestTurn bounds how long it waits for its turn after that: the pace was measured
	// when the sender was slow, and a sender that is fast again would stand idle.
	longestTurn = 20 * time.Second
)

// nextTurns gives n messages that cannot go now their turns after all of their kind that
// were deferred before them, at the sender's pace: from start, evenly over span.
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
