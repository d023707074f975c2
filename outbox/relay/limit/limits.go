// Package limit decides how many messages a sender may be given now: by its rate, its concurrent calls, the
// share of them that is reserved for activities, its circuit breaker and an operator's settings. It holds no
// messages and makes no calls.
package limit

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

// Limits contains the limits of one sender and their state. All limits can change at run time. It is safe
// for concurrent use.
type Limits struct {
	mu       sync.Mutex
	config   Config
	override outbox.SenderOverride // set by an operator, takes precedence over the configuration
	relays   int                   // live relays that share the rate
	reserve  float64               // the share of calls reserved for activities
	perCall  int                   // messages per call
	bucket   *rate.Limiter
	breaker  *breaker
	calls    int // in flight
	bulk     int // calls with bulk messages
	passed   int // calls of activities in a row while bulk messages were waiting

	// failed contains the recipients of failures and 429 answers since the last answer of another kind, each of which
	// counts once: a recipient may choose the provider, such as the push service of a browser, and let it fail.
	failed    map[string]struct{}
	throttled int       // answers 429 in a row
	heldUntil time.Time // by a provider that only answers 429

	took  time.Duration // by a call, smoothed; 0 if unknown
	turns turns
	log   zerolog.Logger
}

// turns contains the due times of the last deferred messages, for activities and bulk separately, so
// that activities do not wait behind a bulk job.
type turns struct{ activities, bulk time.Time }

// New returns the limits of a sender whose calls take up to perCall messages. reserve is the share of calls for
// activities.
func New(c Config, perCall int, reserve float64, log zerolog.Logger) *Limits {
	l := &Limits{relays: 1, perCall: max(1, perCall), bucket: rate.NewLimiter(rate.Inf, 1), failed: map[string]struct{}{}, log: log}
	l.Configure(c, reserve, time.Now())
	l.bucket = rate.NewLimiter(l.bucket.Limit(), l.bucket.Burst()) // full
	return l
}

// Configure applies the configuration. A breaker whose settings change is closed.
func (l *Limits) Configure(c Config, reserve float64, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.breaker == nil || l.breaker.config != c.Breaker {
		l.breaker = newBreaker(c, l.log)
	}
	l.config, l.reserve = c, reserve
	l.adjust(now)
}

// Operate applies an operator's settings and the number of live relays that share the rate; below one
// keeps the known number.
func (l *Limits) Operate(o outbox.SenderOverride, relays int, now time.Time) (changed bool) {
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
func (l *Limits) adjust(now time.Time) {
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

// InForce returns the effective settings.
func (l *Limits) InForce() outbox.SenderLimits {
	l.mu.Lock()
	defer l.mu.Unlock()
	return outbox.SenderLimits{Name: l.config.Name, RatePerSecond: l.perSecond(), Concurrency: l.concurrency()}
}

// rate returns this relay's share of the sender's rate; 0 means no limit.
func (l *Limits) rate() float64 { return l.perSecond() / float64(l.relays) }

// perSecond returns the sender's rate over all relays; 0 means no limit.
func (l *Limits) perSecond() float64 {
	if l.override.RatePerSecond != nil {
		return *l.override.RatePerSecond
	}
	return l.config.RatePerSecond
}

func (l *Limits) concurrency() int {
	if l.override.Concurrency != nil {
		return *l.override.Concurrency
	}
	return l.config.Concurrency
}

// Permit allows one call of N messages. It must be ended.
type Permit struct {
	N    int
	Bulk bool
	done func(error)
}

// bulkTurn is the number of calls of activities after which a waiting bulk message has its turn.
const bulkTurn = 4

// Admit permits calls, activities before bulk except for bulk's turns, for at most limit of the waiting
// messages. Without a permit, call it again after pause, or when a permit ends.
func (l *Limits) Admit(activities, bulk, limit int, now time.Time) (permits []Permit, pause time.Duration) {
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
		p := Permit{N: min(l.perCall, activities, tokens)}
		if bulk > 0 && spare > 0 && (activities == 0 || l.passed >= bulkTurn) {
			p = Permit{N: min(l.perCall, bulk, tokens), Bulk: true}
		}
		if p.N == 0 {
			break
		}
		var err error
		if p.done, err = l.breaker.allow(); err != nil {
			break
		}
		if p.Bulk {
			bulk -= p.N
			spare--
			l.bulk++
			l.passed = 0
		} else {
			activities -= p.N
			if bulk > 0 {
				l.passed++
			}
		}
		l.calls++
		free, tokens = free-1, tokens-p.N
		l.bucket.AllowN(now, p.N)
		permits = append(permits, p)
	}
	if tokens == 0 {
		missing := 1 - l.bucket.TokensAt(now)
		return permits, max(time.Millisecond, time.Duration(missing/float64(l.bucket.Limit())*float64(time.Second)))
	}
	return permits, time.Second
}

// Free returns the number of messages that fit into another round of calls.
func (l *Limits) Free() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(0, l.concurrency()-l.calls) * l.perCall
}

// reserved returns the number of calls reserved for activities. One call is always left to bulk.
func (l *Limits) reserved() int {
	return min(int(math.Ceil(l.reserve*float64(l.concurrency()))), l.concurrency()-1)
}

// End returns a permit, with the results of its call, their recipients, and its duration. Without results no call was made.
func (l *Limits) End(p Permit, results []sender.Result, recipients []string, took time.Duration, now time.Time) {
	verdict := l.counted(judge(results), recipients)
	p.done(verdict)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls--
	if p.Bulk {
		l.bulk--
	}
	if results == nil {
		return
	}
	if l.took == 0 {
		l.took = took
	}
	l.took = max(1, (9*l.took+took)/10)
	if errors.Is(verdict, errRepeated) {
		return
	}
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
	errRepeated  = errors.New("earlier calls for the same recipients failed")
)

// mostFailed is the maximum of Limits.failed. Beyond it, recipients are counted again.
const mostFailed = 10_000

// counted returns the verdict, or errRepeated for a failure of recipients that all count already.
func (l *Limits) counted(verdict error, recipients []string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case verdict == nil, len(l.failed) >= mostFailed:
		clear(l.failed)
	case errors.Is(verdict, errNoCall):
		return verdict
	}
	if verdict == nil {
		return nil
	}
	repeated := true
	for _, name := range recipients {
		if _, ok := l.failed[name]; !ok {
			l.failed[name], repeated = struct{}{}, false
		}
	}
	if repeated {
		return errRepeated
	}
	return verdict
}

// throttling lists providers' codes for too many calls, in addition to the status 429.
var throttling = []string{"QUOTA_EXCEEDED", "RESOURCE_EXHAUSTED", "TooManyRequests"}

// credentials lists providers' codes for refusing all calls, not one message, in addition to the status
// 401. Apple's have the status 403.
var credentials = []string{
	"UNAUTHENTICATED", "PERMISSION_DENIED", "THIRD_PARTY_AUTH_ERROR",
	"BadCertificate", "BadCertificateEnvironment", "BadEnvironmentKeyIdInToken", "ExpiredProviderToken", "Forbidden",
	"InvalidProviderToken", "MissingProviderToken", "UnrelatedKeyIdInToken",
}

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
			if r.AboutAddress {
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

// Blocked returns the reason why the sender currently takes nothing, and the minimum time until it
// does. An empty reason means that it is not blocked.
func (l *Limits) Blocked(now time.Time) (outbox.Reason, time.Duration) {
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

// Depth returns the number of bulk messages that may wait for the sender; further ones are not claimed.
// It is what the sender takes in five seconds, at most share and at least two rounds of calls.
func (l *Limits) Depth(share int) int {
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
func (l *Limits) pace() float64 {
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

// NextTurns assigns turns to n deferred messages, after all deferred messages of their kind, at the
// sender's pace: from start, evenly over span.
func (l *Limits) NextTurns(n int, bulk bool, after time.Duration, now time.Time) (start, span time.Duration) {
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

// State describes the limits in force.
type State struct {
	Breaker       string // closed, open, half_open or off
	Paused        bool   // by an operator
	Concurrency   int
	RatePerSecond float64 // this relay's share; 0: no limit
}

// State returns the limits in force.
func (l *Limits) State() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	return State{Breaker: l.breaker.String(), Paused: l.override.Paused, Concurrency: l.concurrency(), RatePerSecond: l.rate()}
}
