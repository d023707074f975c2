package fake

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"
)

// kind is the effect of a fault.
type kind string

const (
	kindNone        kind = ""
	kindLatency     kind = "latency"
	kindStatus      kind = "status"
	kindHang        kind = "hang"
	kindReset       kind = "reset"
	kindGarbage     kind = "garbage"
	kindInvalid     kind = "invalid-address"
	kindUndelivered kind = "undelivered"
	kindUnreported  kind = "unreported"
	kindRefused     kind = "refused"
)

// plainKinds returns the values of do.
func plainKinds() []kind {
	return []kind{kindHang, kindReset, kindGarbage, kindInvalid, kindUndelivered, kindUnreported, kindRefused}
}

// ofAlimTalk reports whether only AlimTalk has this effect.
func (k kind) ofAlimTalk() bool { return slices.Contains(plainKinds()[4:], k) }

// ofMessage reports whether the fault applies to single messages of a call.
func (k kind) ofMessage() bool { return k == kindInvalid || k.ofAlimTalk() }

// targetAll selects every provider.
const targetAll = "all"

// FaultHelp describes the notation of a fault.
const FaultHelp = `{for: PROVIDER, EFFECT: VALUE, CONDITION: VALUE...}

for: webhook, sms, fcm, apns, webpush, smtp, alimtalk; all selects every provider
Effects
  latency: 50ms        delays the answer, in addition to other faults
  status: 503          answers with this status, in the provider's form; not accepted.
                       retry_after: 2s adds Retry-After, in whole seconds
  do: hang             no answer until the client disconnects; not accepted
  do: reset            accepted, then the connection is reset without an answer
  do: garbage          accepted; the answer cannot be parsed
  do: invalid-address  refused with the provider's error for an invalid address
  do: undelivered      alimtalk: accepted, the later result is a failure
  do: unreported       alimtalk: accepted, no later result
  do: refused          alimtalk: this message of the call is refused
Conditions
  share: 0.1           applies to this share of the matching calls, by the seed
  count: 100           applies at most 100 times
  address: REGEXP      applies only to matching addresses
  accepted: true       hang, reset: whether the message was accepted

The first fault that applies to a call is used.`

// Fault is one failure in the notation of FaultHelp. Zero values are not set.
type Fault struct {
	For        string
	Do         string
	Latency    time.Duration
	Status     int
	RetryAfter time.Duration `yaml:"retry_after"`
	Share      float64
	Count      int64
	Address    string
	Accepted   *bool
}

// ParseFaults parses a list of faults in YAML or JSON. An empty text is an empty list. The error
// lists every wrong value with the allowed values.
func ParseFaults(text string) ([]Fault, error) {
	var faults []Fault
	if err := decode(text, &faults); err != nil {
		return nil, err
	}
	return faults, validateAll(faults)
}

// ParseFault parses one fault.
func ParseFault(text string) (Fault, error) {
	var f Fault
	if err := decode(text, &f); err != nil {
		return Fault{}, err
	}
	return f, f.Validate()
}

func decode(text string, into any) error {
	d := yaml.NewDecoder(strings.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(into); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("is not allowed; allowed values: faults such as {for: fcm, status: 503, share: 0.1}: %w", err)
	}
	return nil
}

func validateAll(faults []Fault) error {
	var problems []error
	for i, f := range faults {
		if err := f.Validate(); err != nil {
			problems = append(problems, fmt.Errorf("faults[%d]: %w", i, err))
		}
	}
	return errors.Join(problems...)
}

// kind returns the effect of the fault.
func (f Fault) kind() kind {
	switch {
	case f.Latency != 0:
		return kindLatency
	case f.Status != 0:
		return kindStatus
	}
	return kind(f.Do)
}

// Validate returns all problems with their fields, or nil.
func (f Fault) Validate() error {
	var problems []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	k, given := f.kind(), 0
	for _, set := range []bool{f.Do != "", f.Latency != 0, f.Status != 0} {
		if set {
			given++
		}
	}
	_, patternErr := regexp.Compile(f.Address)
	check(f.For == targetAll || slices.Contains(Providers(), Provider(f.For)), "for: %q is not allowed; allowed values: %s, %s",
		brief(f.For), joined(Providers()), targetAll)
	check(given == 1, "%d of do, latency and status are given; allowed: exactly one", given)
	check(f.Do == "" || slices.Contains(plainKinds(), kind(f.Do)), "do: %q is not allowed; allowed values: %s", brief(f.Do),
		joined(plainKinds()))
	check(!k.ofAlimTalk() || f.For == string(AlimTalk), "do: %s is not allowed for %s; allowed only for alimtalk", k, brief(f.For))
	check(f.Latency >= 0 && f.Latency <= time.Hour, "latency: %s is not allowed; allowed values: durations above 0, up to 1h", f.Latency)
	check(f.Status == 0 || f.Status >= 400 && f.Status <= 599, "status: %d is not allowed; allowed values: 400 to 599", f.Status)
	check(f.RetryAfter == 0 || k == kindStatus && f.For != string(SMTP),
		"retry_after: is not allowed; allowed only with status, and not for smtp")
	check(f.RetryAfter >= 0 && f.RetryAfter <= 24*time.Hour && f.RetryAfter%time.Second == 0,
		"retry_after: %s is not allowed; allowed values: whole seconds from 1s to 24h", f.RetryAfter)
	check(f.Share >= 0 && f.Share <= 1, "share: %v is not allowed; allowed values: numbers above 0, up to 1", f.Share)
	check(f.Count >= 0, "count: %d is not allowed; allowed values: whole numbers from 1", f.Count)
	check(patternErr == nil, "address: %q is not allowed; allowed values: regular expressions", brief(f.Address))
	check(f.Accepted == nil || k == kindHang || k == kindReset, "accepted: is not allowed with %s; allowed only with hang and reset", k)
	return errors.Join(problems...)
}

// taken reports whether the provider accepts a message without an answer.
func (f Fault) taken() bool {
	if f.Accepted != nil {
		return *f.Accepted
	}
	return f.kind() == kindReset
}

// joined joins names with commas.
func joined[T ~string](names []T) string {
	list := make([]string, len(names))
	for i, name := range names {
		list[i] = string(name)
	}
	return strings.Join(list, ", ")
}

// brief shortens a text for an error.
func brief(text string) string {
	if len(text) > 120 {
		return text[:117] + "..."
	}
	return text
}

// plan has the current faults. It is safe for concurrent use.
type plan struct {
	mu     sync.Mutex
	random *rand.Rand
	orders []*order
}

// order is a fault with the number of calls to which it applied.
type order struct {
	Fault

	address *regexp.Regexp
	hits    int64
}

func newPlan(seed uint64, faults []Fault) *plan {
	p := &plan{random: rand.New(rand.NewPCG(seed, seed))} //nolint:gosec // faults are no secrets
	p.replace(faults)
	return p
}

// replace replaces the faults, which must be valid, and resets their counts.
func (p *plan) replace(faults []Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.orders = make([]*order, len(faults))
	for i, f := range faults {
		p.orders[i] = &order{Fault: f, address: regexp.MustCompile(f.Address)}
	}
}

// ofCall returns the fault of a call to these addresses: the sum of the latencies, and the first other
// fault that applies.
func (p *plan) ofCall(of Provider, addresses ...string) (late time.Duration, f Fault) {
	return p.draw(of, false, addresses)
}

// ofMessage returns the fault of one message of an accepted call.
func (p *plan) ofMessage(of Provider, address string) kind {
	_, f := p.draw(of, true, []string{address})
	return f.kind()
}

func (p *plan) draw(of Provider, single bool, addresses []string) (late time.Duration, f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, o := range p.orders {
		k := o.kind()
		decided := f.kind() != kindNone && k != kindLatency
		aimed := o.For == string(of) || o.For == targetAll
		if decided || !aimed || k.ofMessage() != single ||
			!slices.ContainsFunc(addresses, o.address.MatchString) || !p.hits(o) {
			continue
		}
		if k == kindLatency {
			late += o.Latency
		} else {
			f = o.Fault
		}
	}
	return late, f
}

// hits reports whether a matching order applies to this call, and counts it.
func (p *plan) hits(o *order) bool {
	if o.Count > 0 && o.hits == o.Count || o.Share > 0 && p.random.Float64() >= o.Share {
		return false
	}
	o.hits++
	return true
}
