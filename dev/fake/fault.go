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

// kind is what a fault does.
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

// plainKinds are ordered by do.
func plainKinds() []kind {
	return []kind{kindHang, kindReset, kindGarbage, kindInvalid, kindUndelivered, kindUnreported, kindRefused}
}

// ofAlimTalk reports whether no other provider does it.
func (k kind) ofAlimTalk() bool { return slices.Contains(plainKinds()[4:], k) }

// ofMessage reports whether it is drawn for each message of a call.
func (k kind) ofMessage() bool { return k == kindInvalid || k.ofAlimTalk() }

// targetAll is what a fault of every provider is ordered for.
const targetAll = "all"

// FaultHelp is how a fault is written, for people.
const FaultHelp = `{for: WHOM, WHAT: VALUE, WHEN: VALUE...}

for: webhook, sms, fcm, apns, webpush, smtp, alimtalk; all: each of these
What, one of
  latency: 50ms        the answer comes later; adds up with the rest
  status: 503          answered so, in the provider's form; not accepted. With
                       retry_after: 2s it asks to wait so long, in whole seconds
  do: hang             no answer until the client leaves; not accepted
  do: reset            accepted, then the connection is reset unanswered
  do: garbage          accepted; the answer cannot be read
  do: invalid-address  refused as no address, in the provider's words
  do: undelivered      alimtalk: accepted, its result says failed
  do: unreported       alimtalk: accepted, its result never comes
  do: refused          alimtalk: this message of the call is refused
When
  share: 0.1           it hits this share of the calls that match, by the seed
  count: 100           it hits so often and no more
  address: REGEXP      only calls to addresses that match
  accepted: true       hang, reset: whether the message was taken

The first fault that applies decides about a call.`

// Fault is one order to go wrong, as FaultHelp describes it. Zero values say nothing.
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

// ParseFaults reads a list of faults in YAML, of which JSON is a part; none of an empty
// text. The error names every value that is not allowed, and what is.
func ParseFaults(text string) ([]Fault, error) {
	var faults []Fault
	if err := decode(text, &faults); err != nil {
		return nil, err
	}
	return faults, validateAll(faults)
}

// ParseFault reads one fault.
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
		return fmt.Errorf("is not allowed; allowed are texts as {for: fcm, status: 503, share: 0.1}: %w", err)
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

// kind is what the fault does.
func (f Fault) kind() kind {
	switch {
	case f.Latency != 0:
		return kindLatency
	case f.Status != 0:
		return kindStatus
	}
	return kind(f.Do)
}

// Validate returns every problem at once, each with its field, or nil.
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
	check(f.For == targetAll || slices.Contains(Providers(), Provider(f.For)), "for: %q is not allowed; allowed are %s, %s", brief(f.For), joined(Providers()), targetAll)
	check(given == 1, "%d of do, latency and status are given; allowed is one", given)
	check(f.Do == "" || slices.Contains(plainKinds(), kind(f.Do)), "do: %q is not allowed; allowed are %s", brief(f.Do), joined(plainKinds()))
	check(!k.ofAlimTalk() || f.For == string(AlimTalk), "do: %s is not allowed for %s; allowed is alimtalk", k, brief(f.For))
	check(f.Latency >= 0 && f.Latency <= time.Hour, "latency: %s is not allowed; allowed are durations above 0, up to 1h", f.Latency)
	check(f.Status == 0 || f.Status >= 400 && f.Status <= 599, "status: %d is not allowed; allowed are 400 to 599", f.Status)
	check(f.RetryAfter == 0 || k == kindStatus && f.For != string(SMTP), "retry_after: is not allowed; allowed is it with status, and not for smtp, which has no word for it")
	check(f.RetryAfter >= 0 && f.RetryAfter <= 24*time.Hour && f.RetryAfter%time.Second == 0, "retry_after: %s is not allowed; allowed are whole seconds from 1s to 24h", f.RetryAfter)
	check(f.Share >= 0 && f.Share <= 1, "share: %v is not allowed; allowed are numbers above 0, up to 1", f.Share)
	check(f.Count >= 0, "count: %d is not allowed; allowed are whole numbers from 1", f.Count)
	check(patternErr == nil, "address: %q is not allowed; allowed are regular expressions", brief(f.Address))
	check(f.Accepted == nil || k == kindHang || k == kindReset, "accepted: is not allowed with %s; allowed is it with hang, reset", k)
	return errors.Join(problems...)
}

// taken reports whether the provider takes a message that it does not answer.
func (f Fault) taken() bool {
	if f.Accepted != nil {
		return *f.Accepted
	}
	return f.kind() == kindReset
}

// joined lists names for people.
func joined[T ~string](names []T) string {
	list := make([]string, len(names))
	for i, name := range names {
		list[i] = string(name)
	}
	return strings.Join(list, ", ")
}

// brief keeps a text that somebody gave at a length that can be printed.
func brief(text string) string {
	if len(text) > 120 {
		return text[:117] + "..."
	}
	return text
}

// plan is the faults in force. It is safe for concurrent use.
type plan struct {
	mu     sync.Mutex
	random *rand.Rand
	orders []*order
}

// order is a fault and how often it has hit.
type order struct {
	Fault

	address *regexp.Regexp
	hits    int64
}

func newPlan(seed uint64, faults []Fault) *plan {
	p := &plan{random: rand.New(rand.NewPCG(seed, seed))} //nolint:gosec // faults to order, not secrets
	p.replace(faults)
	return p
}

// replace puts other faults in force, which have to be valid. Their counts begin anew.
func (p *plan) replace(faults []Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.orders = make([]*order, len(faults))
	for i, f := range faults {
		p.orders[i] = &order{Fault: f, address: regexp.MustCompile(f.Address)}
	}
}

// ofCall decides about a call to these addresses: the latencies that apply add up, and of
// the others the first that applies decides.
func (p *plan) ofCall(of Provider, addresses ...string) (late time.Duration, f Fault) {
	return p.draw(of, false, addresses)
}

// ofMessage decides about one message of a call that goes well.
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

// hits reports whether an order that matches applies this time, and counts it.
func (p *plan) hits(o *order) bool {
	if o.Count > 0 && o.hits == o.Count || o.Share > 0 && p.random.Float64() >= o.Share {
		return false
	}
	o.hits++
	return true
}
