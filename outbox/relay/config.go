package relay

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/sender"
)

// Config sets how a Relay claims, retries and stops. DefaultConfig has every default;
// zero values are not defaults and Validate refuses them where they make no sense.
type Config struct {
	// Name tells this relay from others in belfry.relays and belfry.leases. It must be
	// unique among live relays: a relay takes back leases of its own name that it does not
	// know, once they are fifteen seconds old. Nothing here sees to that: belfry's commands
	// hold the names that they are given (belfry.names) and refuse the second process; a
	// program of one's own gives each process another, or none. Empty: host name, process
	// id and a random suffix; then what a process before this one held waits until its
	// leases run out.
	Name string `mapstructure:"name"`
	// Place is the name of where this relay delivers from, which the database has as well
	// (belfry adopt --place): with another one nothing is delivered. "": none.
	Place string `mapstructure:"place"`
	// Batch is how many messages one claim takes, and one hand-over, at most.
	Batch int `mapstructure:"batch"`
	// MaxInFlight bounds the messages in flight in this relay, whatever their state.
	MaxInFlight int `mapstructure:"max_in_flight"`
	// Lease is how long a claim lasts without a renewal, in the database's clock. A relay
	// that dies holds its messages back for as long, and a drain tries for as long to
	// start in a database that is slow.
	Lease time.Duration `mapstructure:"lease"`
	// PollInterval is how often a relay looks for messages while there are any. One that
	// has found none for a while rests; see Listen.
	PollInterval time.Duration `mapstructure:"poll_interval"`
	// Listen has the relay LISTEN for the database's hints that there are messages: with
	// nothing to do it asks for nothing for up to ten seconds. Off, or where hints do not
	// arrive, it looks ever more seldom, down to once a second.
	Listen bool `mapstructure:"listen"`
	// StatementTimeout bounds every statement and COMMIT.
	StatementTimeout time.Duration `mapstructure:"statement_timeout"`
	// GracePeriod is how long calls in flight may still take after a soft stop before
	// they are cancelled.
	GracePeriod time.Duration `mapstructure:"grace_period"`
	// MaxCrashes is how many relays may die sending a message; the last one of them makes
	// it a dead letter.
	MaxCrashes int `mapstructure:"max_crashes"`
	// ActivityShare is the share of MaxInFlight, and of every sender's calls, that bulk
	// messages leave to activities.
	ActivityShare float64 `mapstructure:"activity_share"`
	// Retries says whether messages that somebody has tried to send before are taken when they
	// are due, or when nothing else is left that a sender takes.
	Retries  Retries       `mapstructure:"retries"`
	Receipts ReceiptConfig `mapstructure:"receipts"`
	// Retry is for messages whose sender this relay does not know, as after a crash, and
	// the default of senders.
	Retry RetryConfig `mapstructure:"retry"`
}

// Retries says when messages are taken that somebody has tried to send before.
type Retries string

// When retries are taken.
const (
	RetriesMixed Retries = "mixed" // when they are due, among the others
	// RetriesLast leaves them until nothing else is due that a sender takes now. Attempts at a
	// next medium count as retries.
	RetriesLast Retries = "last"
)

// ReceiptConfig sets how results that come later are waited for.
type ReceiptConfig struct {
	Interval time.Duration `mapstructure:"interval"` // between two looks for one receipt
	Limit    time.Duration `mapstructure:"limit"`    // after which the message is SENT, unconfirmed
}

// Policy says how the pauses between attempts grow.
type Policy string

// The policies.
const (
	Exponential Policy = "exponential" // doubles each time
	Linear      Policy = "linear"      // grows by the first pause each time
)

// RetryConfig sets how often a medium is tried, and when. The pause before an attempt is
// the policy's, less a part that is drawn evenly up to Jitter of it, and MinDelay at least;
// a Retry-After comes on top of it.
type RetryConfig struct {
	Attempts int           `mapstructure:"attempts"` // calls per message and medium, the first included, at most
	Policy   Policy        `mapstructure:"policy"`
	Initial  time.Duration `mapstructure:"initial"`
	Max      time.Duration `mapstructure:"max"`       // the longest pause without a Retry-After
	MinDelay time.Duration `mapstructure:"min_delay"` // the shortest, whatever is drawn
	// Jitter is the share of a pause that is drawn: 1, from nothing to the whole of it; 0,
	// none is, and a linear policy is that to the millisecond.
	Jitter float64 `mapstructure:"jitter"`
}

// BreakerConfig sets when a sender's circuit breaker opens, and closes again.
type BreakerConfig struct {
	Failures int           `mapstructure:"failures"` // in a row, that open it; 0: no breaker
	OpenFor  time.Duration `mapstructure:"open_for"` // until probes are let through
	Probes   int           `mapstructure:"probes"`   // at once, and successes in a row that close it
}

// SenderConfig sets which messages a sender takes, and how fast.
type SenderConfig struct {
	Name   string `mapstructure:"name"`
	Medium string `mapstructure:"medium"`
	// Platforms are those of the channels it takes; none: all.
	Platforms   []string `mapstructure:"platforms"`
	Concurrency int      `mapstructure:"concurrency"` // calls at once
	// RatePerSecond is shared by the live relays that have the sender: messages, not
	// calls. 0: no limit.
	RatePerSecond float64 `mapstructure:"rate_per_second"`
	// Burst is how many messages may go at once after a pause. 0: a tenth of a second's,
	// at least one.
	Burst   int           `mapstructure:"burst"`
	Timeout time.Duration `mapstructure:"timeout"` // of one call
	Retry   RetryConfig   `mapstructure:"retry"`
	Breaker BreakerConfig `mapstructure:"breaker"`
	// AbortAfter is how many messages of a job the provider refuses permanently, in a row and
	// by the answers to one relay, before that relay tries a sample of the rest, and makes the job
	// ABORTED if none of it is accepted (probe.go). Invalid addresses count; messages that
	// continue by another medium and refusals of the client's own do not. 0: none.
	AbortAfter int `mapstructure:"abort_after"`
}

// Sender is a provider client and how to use it.
type Sender struct {
	SenderConfig
	Client sender.Sender
}

// DefaultConfig is what config.yaml documents.
func DefaultConfig() Config {
	return Config{
		Batch:            500,
		MaxInFlight:      5000,
		Lease:            30 * time.Second,
		PollInterval:     200 * time.Millisecond,
		Listen:           true,
		StatementTimeout: 5 * time.Second,
		GracePeriod:      10 * time.Second,
		MaxCrashes:       3,
		ActivityShare:    0.2,
		Retries:          RetriesMixed,
		Receipts:         ReceiptConfig{Interval: 10 * time.Second, Limit: 10 * time.Minute},
		Retry:            RetryConfig{Attempts: 3, Policy: Exponential, Initial: time.Second, Max: 5 * time.Minute, Jitter: 1},
	}
}

// DefaultSenderConfig has a sender's defaults; Name and Medium have none.
func DefaultSenderConfig() SenderConfig {
	return SenderConfig{
		Concurrency: 16,
		Timeout:     5 * time.Second,
		Retry:       DefaultConfig().Retry,
		Breaker:     BreakerConfig{Failures: 20, OpenFor: 30 * time.Second, Probes: 1},
		AbortAfter:  500,
	}
}

// DefaultMailSenderConfig has the defaults of a sender of mail; Name and Medium have none. A mail
// server may take minutes for each step, and the time of the call is the sum of all
// (RFC 5321 §4.5.3.2). Greylisting and "come back later" last for minutes to hours
// (RFC 6647), so that the ten attempts take two to four hours.
func DefaultMailSenderConfig() SenderConfig {
	c := DefaultSenderConfig()
	c.Timeout = 30 * time.Minute
	c.Retry = RetryConfig{Attempts: 10, Policy: Exponential, Initial: time.Minute, Max: time.Hour, Jitter: 0.5}
	return c
}

var (
	senderName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`) })
	mediumName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z][a-z0-9_]{0,30}$`) })
)

// checker gathers problems under a key path.
type checker struct{ sender.Problems }

func check(path string) *checker { return &checker{sender.Problems{Path: path}} }

func (c *checker) between(key string, d, low, high time.Duration) {
	c.Check(d >= low && d <= high, key, "%s is not allowed; allowed are %s to %s", d, low, high)
}

func (c *checker) count(key string, n, low, high int) {
	c.Check(n >= low && n <= high, key, "%d is not allowed; allowed are %d to %d", n, low, high)
}

var placeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]*$`)

// Validate returns every problem at once, each with its key path, or nil.
func (c Config) Validate(path string) error {
	v := check(path)
	v.Check(len(c.Name) <= 200, "name", "has %d characters; allowed are up to 200", len(c.Name))
	v.Check(len(c.Place) <= 100 && (c.Place == "" || placeName.MatchString(c.Place)), "place", "%q is not allowed; allowed are up to 100 of A-Z, a-z, 0-9, . _ / -, beginning with a letter or a digit", c.Place)
	v.count("batch", c.Batch, 1, outbox.MaxBatch)
	v.Check(c.MaxInFlight >= 2*c.Batch && c.MaxInFlight <= 100_000, "max_in_flight", "%d is not allowed; allowed are twice batch (%d) to 100000", c.MaxInFlight, 2*c.Batch)
	v.between("lease", c.Lease, 500*time.Millisecond, time.Hour)
	v.between("poll_interval", c.PollInterval, 10*time.Millisecond, time.Hour)
	v.between("statement_timeout", c.StatementTimeout, 50*time.Millisecond, time.Hour)
	v.Check(3*c.StatementTimeout <= c.Lease, "statement_timeout", "%s is not allowed; it must be at most a third of lease (%s), or one slow renewal loses it", c.StatementTimeout, c.Lease)
	v.between("grace_period", c.GracePeriod, 0, time.Hour)
	v.count("max_crashes", c.MaxCrashes, 1, 100)
	v.Check(c.Retries == RetriesMixed || c.Retries == RetriesLast, "retries", "%q is not allowed; allowed are %s, %s", c.Retries, RetriesMixed, RetriesLast)
	v.Check(c.ActivityShare >= 0 && c.ActivityShare <= 0.9, "activity_share", "%v is not allowed; allowed are 0 to 0.9", c.ActivityShare)
	v.between("receipts.interval", c.Receipts.Interval, 100*time.Millisecond, 24*time.Hour)
	v.between("receipts.limit", c.Receipts.Limit, time.Second, 31*24*time.Hour)
	return v.Err(c.Retry.validate(path + ".retry"))
}

// validate returns every problem at once, each with its key path, or nil.
func (c RetryConfig) validate(path string) error {
	v := check(path)
	v.count("attempts", c.Attempts, 1, 1000)
	v.Check(c.Policy == Exponential || c.Policy == Linear, "policy", "%q is not allowed; allowed are %s, %s", c.Policy, Exponential, Linear)
	v.between("initial", c.Initial, time.Millisecond, time.Hour)
	v.Check(c.Max >= c.Initial && c.Max <= 24*time.Hour, "max", "%s is not allowed; allowed are initial (%s) to %s", c.Max, c.Initial, 24*time.Hour)
	v.Check(c.MinDelay >= 0 && c.MinDelay <= c.Max, "min_delay", "%s is not allowed; allowed are 0 to max (%s)", c.MinDelay, c.Max)
	v.Check(c.Jitter >= 0 && c.Jitter <= 1, "jitter", "%v is not allowed; allowed are 0 (none) to 1", c.Jitter)
	return v.Err()
}

// validate returns every problem at once, each with its key path, or nil.
func (c SenderConfig) validate(path string) error {
	v := check(path)
	v.Check(senderName().MatchString(c.Name), "name", "%q is not a sender's name; allowed are 1 to 63 of a-z, 0-9, _ and -, starting with a letter or digit", c.Name)
	v.Check(mediumName().MatchString(c.Medium), "medium", "%q is not a medium; allowed are 1 to 31 of a-z, 0-9 and _, starting with a letter", c.Medium)
	for i, p := range c.Platforms {
		v.Check(strings.TrimSpace(p) != "" && !slices.Contains(c.Platforms[:i], p), "platforms", "%q is not allowed; allowed are different platforms, none for all", p)
	}
	v.count("concurrency", c.Concurrency, 1, 10_000)
	v.Check(c.RatePerSecond >= 0 && c.RatePerSecond <= 1_000_000, "rate_per_second", "%v is not allowed; allowed are 0 (no limit), or up to 1000000", c.RatePerSecond)
	v.count("burst", c.Burst, 0, 1_000_000)
	v.between("timeout", c.Timeout, time.Millisecond, time.Hour)
	v.count("breaker.failures", c.Breaker.Failures, 0, 1_000_000)
	if c.Breaker.Failures > 0 {
		v.between("breaker.open_for", c.Breaker.OpenFor, time.Millisecond, 24*time.Hour)
		v.count("breaker.probes", c.Breaker.Probes, 1, 1000)
	}
	v.count("abort_after", c.AbortAfter, 0, 1_000_000)
	return v.Err(c.Retry.validate(path + ".retry"))
}

// ValidateSenders returns every problem of every sender and of the list: names that come
// twice, and senders that no message can reach.
func ValidateSenders(path string, senders []SenderConfig) error {
	var problems []error
	for i, s := range senders {
		at := fmt.Sprintf("%s[%d]", path, i)
		problems = append(problems, s.validate(at))
		for k, earlier := range senders[:i] {
			switch {
			case earlier.Name == s.Name:
				problems = append(problems, fmt.Errorf("%s.name: %q is the name of %s[%d] too; allowed are different names", at, s.Name, path, k))
			case earlier.covers(s):
				problems = append(problems, fmt.Errorf("%s.platforms: %s[%d] (%s) takes every message of medium %s that this sender could; allowed are platforms that no earlier sender of the medium has", at, path, k, earlier.Name, s.Medium))
			}
		}
	}
	return errors.Join(problems...)
}

// covers reports that no message reaches other when c comes first.
func (c SenderConfig) covers(other SenderConfig) bool {
	if c.Medium != other.Medium || len(c.Platforms) == 0 {
		return c.Medium == other.Medium
	}
	for _, p := range other.Platforms {
		if !slices.Contains(c.Platforms, p) {
			return false
		}
	}
	return len(other.Platforms) > 0
}

// takes reports whether a message of the medium to a channel of the platform is for c.
func (c SenderConfig) takes(medium, platform string) bool {
	return c.Medium == medium && (len(c.Platforms) == 0 || slices.Contains(c.Platforms, platform))
}

// draw is the pause before the attempt that follows the given number of them, for random
// in [0, 1).
func (c RetryConfig) draw(attempts int, random float64) time.Duration {
	return max(c.MinDelay, time.Duration((1-c.Jitter+c.Jitter*random)*float64(c.pause(attempts))))
}

// pause is the longest pause before the attempt that follows the given number of them.
func (c RetryConfig) pause(attempts int) time.Duration {
	factor := float64(attempts)
	if c.Policy == Exponential {
		factor = math.Exp2(float64(attempts - 1))
	}
	return time.Duration(math.Min(factor*float64(c.Initial), float64(c.Max)))
}

// burst is the token bucket's size at a rate.
func (c SenderConfig) burst(rate float64) int {
	if c.Burst > 0 {
		return c.Burst
	}
	return max(1, int(rate/10))
}
