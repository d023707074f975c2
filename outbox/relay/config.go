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
	"github.com/belfryhq/belfry/outbox/relay/limit"
	"github.com/belfryhq/belfry/outbox/sender"
)

// Config specifies how a Relay claims, retries and stops. DefaultConfig contains all defaults. Zero
// values are not defaults; Validate rejects them if they make no sense.
type Config struct {
	// Name identifies this relay in belfry.relays and belfry.leases. It must be unique among live
	// relays: a relay recovers unknown leases of its own name once they are fifteen seconds old. The
	// relay does not enforce it. belfry's commands lock their names (belfry.names) and reject a second
	// process; a custom program must give each process a different name, or none. Empty means host
	// name, process id and a random suffix; messages of a previous process then wait until their leases
	// expire.
	Name string `mapstructure:"name"`
	// Place names the place from which this relay delivers. The database stores a place too (belfry
	// adopt --place): if they differ, nothing is delivered. "" means no place.
	Place string `mapstructure:"place"`
	// Batch is the maximum number of messages per claim and per hand-over.
	Batch int `mapstructure:"batch"`
	// MaxInFlight bounds the messages in flight in this relay, whatever their state.
	MaxInFlight int `mapstructure:"max_in_flight"`
	// Lease is the duration of a claim without a renewal, in the database's clock. A dead relay delays
	// its messages for that long, and a drain tries for that long to start in a slow database. At most
	// an hour, as in belfry.leases.
	Lease time.Duration `mapstructure:"lease"`
	// PollInterval is the interval of claims while there are messages. After a while without messages a
	// relay rests; see Listen.
	PollInterval time.Duration `mapstructure:"poll_interval"`
	// Listen makes the relay LISTEN for the database's hints: without messages it then polls only every
	// ten seconds. Without Listen, or if no hints arrive, polling slows down to once per second.
	Listen bool `mapstructure:"listen"`
	// StatementTimeout limits each statement and COMMIT.
	StatementTimeout time.Duration `mapstructure:"statement_timeout"`
	// GracePeriod is the time that calls in flight have after a soft stop before they are cancelled.
	GracePeriod time.Duration `mapstructure:"grace_period"`
	// MaxCrashes is the number of relays that may die while sending a message; the last crash makes it
	// a dead letter.
	MaxCrashes int `mapstructure:"max_crashes"`
	// ActivityShare is the share of MaxInFlight, and of each sender's calls, that is reserved for
	// activities.
	ActivityShare float64 `mapstructure:"activity_share"`
	// Retries specifies whether retries are claimed when they are due, or only when no other message is
	// left that a sender takes.
	Retries  Retries       `mapstructure:"retries"`
	Receipts ReceiptConfig `mapstructure:"receipts"`
	// Retry applies to messages whose sender this relay does not know, such as after a crash, and is
	// the default of senders.
	Retry RetryConfig `mapstructure:"retry"`
}

// Retries specifies when retries are claimed.
type Retries string

// The values of Retries.
const (
	RetriesMixed Retries = "mixed" // when they are due, among other messages
	// RetriesLast claims them when no other message is due that a sender currently takes. Attempts at a
	// next medium count as retries.
	RetriesLast Retries = "last"
)

// ReceiptConfig specifies how the relay waits for results that arrive later.
type ReceiptConfig struct {
	Interval time.Duration `mapstructure:"interval"` // between two reads of a receipt
	Limit    time.Duration `mapstructure:"limit"`    // after which the message is SENT, unconfirmed
}

// Policy specifies how the pauses between attempts grow.
type Policy string

// The policies.
const (
	Exponential Policy = "exponential" // doubles each time
	Linear      Policy = "linear"      // grows by the first pause each time
)

// RetryConfig specifies the number and times of attempts at a medium. The pause before an attempt is
// the policy's pause, minus an evenly distributed random part of up to Jitter of it, and at least
// MinDelay. A Retry-After is added to it.
type RetryConfig struct {
	Attempts int           `mapstructure:"attempts"` // maximum calls per message and medium, including the first
	Policy   Policy        `mapstructure:"policy"`
	Initial  time.Duration `mapstructure:"initial"`
	Max      time.Duration `mapstructure:"max"`       // the longest pause without a Retry-After
	MinDelay time.Duration `mapstructure:"min_delay"` // the minimum after jitter
	// Jitter is the random share of a pause: 1 draws the whole pause, 0 makes pauses exact.
	Jitter float64 `mapstructure:"jitter"`
}

// SenderConfig specifies a sender's messages and limits.
type SenderConfig struct {
	Name   string `mapstructure:"name"`
	Medium string `mapstructure:"medium"`
	// Platforms lists the platforms of the sender's channels. Empty means all.
	Platforms   []string `mapstructure:"platforms"`
	Concurrency int      `mapstructure:"concurrency"` // calls at once
	// RatePerSecond is the number of messages, not calls, per second. The live relays that have the
	// sender share it. 0 means no limit.
	RatePerSecond float64 `mapstructure:"rate_per_second"`
	// Burst is the number of messages that may be sent at once after a pause. 0 means a tenth of a
	// second's, at least one.
	Burst   int                 `mapstructure:"burst"`
	Timeout time.Duration       `mapstructure:"timeout"` // of one call
	Retry   RetryConfig         `mapstructure:"retry"`
	Breaker limit.BreakerConfig `mapstructure:"breaker"`
	// AbortAfter is the number of consecutive permanent failures of a job's messages, among the replies
	// to one relay, after which that relay tries a sample of the rest and makes the job ABORTED if the
	// provider accepts none of it (probe.go). Invalid addresses count; messages that continue by
	// another medium, and refusals by the client itself, do not. 0 disables it.
	AbortAfter int `mapstructure:"abort_after"`
}

// Sender is a provider client with its configuration.
type Sender struct {
	SenderConfig
	Client sender.Sender
}

// DefaultConfig returns the defaults documented in config.yaml.
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

// DefaultSenderConfig returns a sender's defaults; Name and Medium are empty.
func DefaultSenderConfig() SenderConfig {
	return SenderConfig{
		Concurrency: 16,
		Timeout:     5 * time.Second,
		Retry:       DefaultConfig().Retry,
		Breaker:     limit.BreakerConfig{Failures: 20, OpenFor: 30 * time.Second, Probes: 1},
		AbortAfter:  500,
	}
}

// DefaultMailSenderConfig returns the defaults of a mail sender; Name and Medium are empty. A mail
// server may take minutes for each step, and a call's time is the sum of all steps (RFC 5321 §4.5.3.2).
// Greylisting and temporary refusals last for minutes to hours (RFC 6647), so the ten attempts take two
// to four hours.
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

// checker collects problems under a key path.
type checker struct{ sender.ValidationErrors }

func check(path string) *checker { return &checker{sender.ValidationErrors{Path: path}} }

func (c *checker) between(key string, d, low, high time.Duration) {
	c.Check(d >= low && d <= high, key, "%s is not allowed; allowed values: %s to %s", d, low, high)
}

func (c *checker) count(key string, n, low, high int) {
	c.Check(n >= low && n <= high, key, "%d is not allowed; allowed values: %d to %d", n, low, high)
}

var placeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]*$`)

// Validate returns every problem at once, each with its key path, or nil.
func (c Config) Validate(path string) error {
	v := check(path)
	v.Check(len(c.Name) <= 200, "name", "has %d characters; the maximum is 200", len(c.Name))
	v.Check(len(c.Place) <= 100 && (c.Place == "" || placeName.MatchString(c.Place)), "place",
		"%q is not allowed; allowed values: up to 100 of A-Z, a-z, 0-9, . _ / -, beginning with a letter or a digit", c.Place)
	v.count("batch", c.Batch, 1, outbox.MaxBatch)
	v.Check(c.MaxInFlight >= 2*c.Batch && c.MaxInFlight <= 100_000, "max_in_flight",
		"%d is not allowed; allowed values: twice batch (%d) to 100000", c.MaxInFlight, 2*c.Batch)
	v.between("lease", c.Lease, 500*time.Millisecond, time.Hour)
	v.between("poll_interval", c.PollInterval, 10*time.Millisecond, time.Hour)
	v.between("statement_timeout", c.StatementTimeout, 50*time.Millisecond, time.Hour)
	v.Check(3*c.StatementTimeout <= c.Lease, "statement_timeout",
		"%s is not allowed; it must be at most a third of lease (%s), or one slow renewal loses it", c.StatementTimeout, c.Lease)
	v.between("grace_period", c.GracePeriod, 0, time.Hour)
	v.count("max_crashes", c.MaxCrashes, 1, 100)
	v.Check(c.Retries == RetriesMixed || c.Retries == RetriesLast, "retries", "%q is not allowed; allowed values: %s, %s", c.Retries,
		RetriesMixed, RetriesLast)
	v.Check(c.ActivityShare >= 0 && c.ActivityShare <= 0.9, "activity_share", "%v is not allowed; allowed values: 0 to 0.9", c.ActivityShare)
	v.between("receipts.interval", c.Receipts.Interval, 100*time.Millisecond, 24*time.Hour)
	v.between("receipts.limit", c.Receipts.Limit, time.Second, 31*24*time.Hour)
	return v.Err(c.Retry.validate(path + ".retry"))
}

// validate returns every problem at once, each with its key path, or nil.
func (c RetryConfig) validate(path string) error {
	v := check(path)
	v.count("attempts", c.Attempts, 1, 1000)
	v.Check(c.Policy == Exponential || c.Policy == Linear, "policy", "%q is not allowed; allowed values: %s, %s", c.Policy,
		Exponential, Linear)
	v.between("initial", c.Initial, time.Millisecond, time.Hour)
	v.Check(c.Max >= c.Initial && c.Max <= 24*time.Hour, "max", "%s is not allowed; allowed values: initial (%s) to %s", c.Max,
		c.Initial, 24*time.Hour)
	v.Check(c.MinDelay >= 0 && c.MinDelay <= c.Max, "min_delay", "%s is not allowed; allowed values: 0 to max (%s)", c.MinDelay, c.Max)
	v.Check(c.Jitter >= 0 && c.Jitter <= 1, "jitter", "%v is not allowed; allowed values: 0 (none) to 1", c.Jitter)
	return v.Err()
}

// validate returns every problem at once, each with its key path, or nil.
func (c SenderConfig) validate(path string) error {
	v := check(path)
	v.Check(senderName().MatchString(c.Name), "name",
		"%q is not a sender's name; allowed values: 1 to 63 of a-z, 0-9, _ and -, starting with a letter or digit", c.Name)
	v.Check(mediumName().MatchString(c.Medium), "medium",
		"%q is not a medium; allowed values: 1 to 31 of a-z, 0-9 and _, starting with a letter", c.Medium)
	for i, p := range c.Platforms {
		v.Check(strings.TrimSpace(p) != "" && !slices.Contains(c.Platforms[:i], p), "platforms",
			"%q is not allowed; allowed values: different platforms, none for all", p)
	}
	v.count("concurrency", c.Concurrency, 1, 10_000)
	v.Check(c.RatePerSecond >= 0 && c.RatePerSecond <= 1_000_000, "rate_per_second",
		"%v is not allowed; allowed values: 0 (no limit), or up to 1000000", c.RatePerSecond)
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

// MaxSenders is the largest number of senders of a relay. Lists of senders read no more of its row.
const MaxSenders = 100

// ValidateSenders returns all problems of each sender and of the list: duplicate names, senders that no message
// can reach, and more than MaxSenders.
func ValidateSenders(path string, senders []SenderConfig) error {
	var problems []error
	if len(senders) > MaxSenders {
		problems = append(problems, fmt.Errorf("%s: has %d entries; allowed values: at most %d", path, len(senders), MaxSenders))
	}
	for i, s := range senders {
		at := fmt.Sprintf("%s[%d]", path, i)
		problems = append(problems, s.validate(at))
		for k, earlier := range senders[:i] {
			switch {
			case earlier.Name == s.Name:
				problems = append(problems, fmt.Errorf("%s.name: %q is the name of %s[%d] too; allowed values: different names", at, s.Name, path, k))
			case earlier.covers(s):
				problems = append(problems,
					fmt.Errorf("%s.platforms: %s[%d] (%s) takes every message of medium %s that this sender could; allowed values: "+
						"platforms that no earlier sender of the medium has", at, path, k, earlier.Name, s.Medium))
			}
		}
	}
	return errors.Join(problems...)
}

// covers reports whether no message reaches other if c comes first.
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

// takes reports whether the sender takes messages of the medium for channels of the platform.
func (c SenderConfig) takes(medium, platform string) bool {
	return c.Medium == medium && (len(c.Platforms) == 0 || slices.Contains(c.Platforms, platform))
}

// draw returns the pause after the given number of attempts, for random in [0, 1).
func (c RetryConfig) draw(attempts int, random float64) time.Duration {
	return max(c.MinDelay, time.Duration((1-c.Jitter+c.Jitter*random)*float64(c.pause(attempts))))
}

// pause returns the longest pause after the given number of attempts.
func (c RetryConfig) pause(attempts int) time.Duration {
	factor := float64(attempts)
	if c.Policy == Exponential {
		factor = math.Exp2(float64(attempts - 1))
	}
	return time.Duration(math.Min(factor*float64(c.Initial), float64(c.Max)))
}

// limits returns the part that package limit applies.
func (c SenderConfig) limits() limit.Config {
	return limit.Config{Name: c.Name, Concurrency: c.Concurrency, RatePerSecond: c.RatePerSecond, Burst: c.Burst, Breaker: c.Breaker}
}
