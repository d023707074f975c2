package fake

import (
	"bytes"
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
	kindSlow        kind = "slow"
	kindHuge        kind = "huge"
	kindHang        kind = "hang"
	kindReset       kind = "reset"
	kindGarbage     kind = "garbage"
	kindInvalid     kind = "invalid-address"
	kindUndelivered kind = "undelivered"
	kindUnreported  kind = "unreported"
	kindRefused     kind = "refused"
)

// FaultHelp is how a fault is written, for people.
const FaultHelp = `{for: WHOM, WHAT: VALUE, WHEN: VALUE...}

for: webhook, sms, fcm, apns, webpush, smtp, alimtalk; all: each of these;
     token: FCM's OAuth answers; receipts: AlimTalk's results
What, one of
  latency: 50ms        the answer comes later; adds up with the rest. With up_to: 2s
                       a time in between
  status: 503          answered so, in the provider's form; not accepted. With
                       retry_after: 2s it asks to wait so long, in whole seconds
  slow: 10s            accepted; the answer takes so long to arrive
  huge: 64             accepted; so many MB come before the answer
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
  skip: 10             it leaves so many calls that match alone first
  address: REGEXP      only calls to addresses that match
  key: REGEXP          only calls with idempotency keys that match
  accepted: true       status, hang, reset: whether the message was taken

The first fault that applies decides about a call.`

// Fault is one order to go wrong, as FaultHelp describes it. Zero values say nothing.
type Fault struct {
	For        string        `yaml:"for"`
	Do         string        `yaml:"do,omitempty"`
	Latency    time.Duration `yaml:"latency,omitempty"`
	UpTo       time.Duration `yaml:"up_to,omitempty"`
	Status     int           `yaml:"status,omitempty"`
	RetryAfter time.Duration `yaml:"retry_after,omitempty"`
	Slow       time.Duration `yaml:"slow,omitempty"`
	Huge       int64         `yaml:"huge,omitempty"` // MB
	Share      float64       `yaml:"share,omitempty"`
	Count      int64         `yaml:"count,omitempty"`
	Skip       int64         `yaml:"skip,omitempty"`
	Address    string        `yaml:"address,omitempty"`
	Key        string        `yaml:"key,omitempty"`
	Accepted   *bool         `yaml:"accepted,omitempty"`
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

// MarshalText writes the fault as ParseFault reads it.
func (f Fault) MarshalText() ([]byte, error) {
	type plain Fault
	var node yaml.Node
	if err := node.Encode(plain(f)); err != nil {
		return nil, err
	}
	node.Style = yaml.FlowStyle
	text, err := yaml.Marshal(&node)
	return bytes.TrimSpace(text), err
}

// kind is what the fault does.
func (f Fault) kind() kind {
	switch {
	case f.Latency != 0:
		return kindLatency
	case f.Status != 0:
		return kindStatus
	case f.Slow != 0:
		return kindSlow
	case f.Huge != 0:
		return kindHuge
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
	k := f.kind()
	given := 0
	for _, set := range []bool{f.Do != "", f.Latency != 0, f.Status != 0, f.Slow != 0, f.Huge != 0} {
		if set {
			given++
		}
	}
	check(slices.Contains(targets(), f.For), "for: %q is not allowed; allowed are %s", brief(f.For), strings.Join(targets(), ", "))
	check(given == 1, "%d of do, latency, status, slow and huge are given; allowed is one", given)
	plain := []string{string(kindHang), string(kindReset), string(kindGarbage), string(kindInvalid), string(kindUndelivered), string(kindUnreported), string(kindRefused)}
	check(f.Do == "" || slices.Contains(plain, f.Do), "do: %q is not allowed; allowed are %s", brief(f.Do), strings.Join(plain, ", "))
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"latency", f.Latency}, {"up_to", f.UpTo}, {"slow", f.Slow}} {
		check(d.value >= 0 && d.value <= time.Hour, "%s: %s is not allowed; allowed are durations above 0, up to 1h", d.name, d.value)
	}
	check(f.UpTo == 0 || k == kindLatency && f.UpTo >= f.Latency, "up_to: %s is not allowed; allowed are times with latency, and not below it", f.UpTo)
	lowest := 300
	if f.For == string(SMTP) {
		lowest = 400
	}
	check(f.Status == 0 || f.Status >= lowest && f.Status <= 599, "status: %d is not allowed; allowed are %d to 599", f.Status, lowest)
	check(f.RetryAfter == 0 || k == kindStatus && f.For != string(SMTP), "retry_after: is not allowed; allowed is it with status, and not for smtp, which has no word for it")
	check(f.RetryAfter >= 0 && f.RetryAfter <= 24*time.Hour && f.RetryAfter%time.Second == 0, "retry_after: %s is not allowed; allowed are whole seconds from 1s to 24h", f.RetryAfter)
	check(f.Huge >= 0 && f.Huge <= 1024, "huge: %d is not allowed; allowed are 1 to 1024", f.Huge)
	check(f.Share >= 0 && f.Share <= 1, "share: %v is not allowed; allowed are numbers above 0, up to 1", f.Share)
	check(f.Count >= 0, "count: %d is not allowed; allowed are whole numbers from 1", f.Count)
	check(f.Skip >= 0, "skip: %d is not allowed; allowed are whole numbers from 1", f.Skip)
	for _, p := range [][2]string{{"address", f.Address}, {"key", f.Key}} {
		_, err := regexp.Compile(p[1])
		check(err == nil, "%s: %q is not allowed; allowed are regular expressions", p[0], brief(p[1]))
	}
	check(f.Accepted == nil || k == kindStatus || k == kindHang || k == kindReset, "accepted: is not allowed with %s; allowed is it with status, hang, reset", k)
	aside := f.For == targetToken || f.For == targetReceipts
	check(k != kindUndelivered && k != kindUnreported && k != kindRefused || f.For == string(AlimTalk), "do: %s is not allowed for %s; allowed is alimtalk", k, f.For)
	check(k != kindInvalid || !aside, "do: %s is not allowed for %s; allowed are providers and all", k, f.For)
	check(k != kindInvalid || f.For != string(SMTP) || f.Key == "", "key: is not allowed with invalid-address for smtp, where the address comes first; allowed is address")
	check(!aside || f.Address == "" && f.Key == "", "address, key: are not allowed for %s, whose calls name none", f.For)
	return errors.Join(problems...)
}

// taken reports whether the provider takes a message that meets the fault.
func (f Fault) taken() bool {
	if f.Accepted != nil {
		return *f.Accepted
	}
	k := f.kind()
	return k != kindStatus && k != kindHang && k != kindInvalid && k != kindRefused
}

// brief keeps a text that somebody gave at a length that can be printed.
func brief(text string) string {
	if len(text) > 120 {
		return text[:117] + "..."
	}
	return text
}

// subject is whom a call is about.
type subject struct{ address, key string }

// scope chooses kinds of faults.
type scope func(kind) bool

func anyKind(kind) bool { return true }

// ofMessage are the faults of one message in a batch, ofCall all others.
func ofMessage(k kind) bool {
	return k == kindInvalid || k == kindUndelivered || k == kindUnreported || k == kindRefused
}
func ofCall(k kind) bool { return !ofMessage(k) }

// plan is the faults in force. It is safe for concurrent use.
type plan struct {
	mu     sync.Mutex
	random *rand.Rand
	orders []*order
}

// order is a fault and what is left of it.
type order struct {
	Fault

	address, key     *regexp.Regexp
	left, skip, hits int64
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
		p.orders[i] = &order{Fault: f, left: f.Count, skip: f.Skip, address: regexp.MustCompile(f.Address), key: regexp.MustCompile(f.Key)}
	}
}

// drawn is what the plan has for one call.
type drawn struct {
	late  time.Duration
	fault Fault // its kind is kindNone if the call goes well
}

// draw decides about one call: the latencies that apply add up, and of the others
// the first that applies decides.
func (p *plan) draw(target string, among scope, of ...subject) (d drawn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, o := range p.orders {
		k := o.kind()
		decided := d.fault.kind() != kindNone && k != kindLatency
		aimed := o.For == target || o.For == targetAll && played(target)
		if decided || !aimed || !among(k) || !o.matches(of) || !p.hits(o) {
			continue
		}
		if k != kindLatency {
			d.fault = o.Fault
			continue
		}
		d.late += o.Latency
		if span := o.UpTo - o.Latency; span > 0 {
			d.late += time.Duration(p.random.Int64N(int64(span) + 1))
		}
	}
	return d
}

// matches reports whether one of the subjects is meant. Calls for a token have none,
// and faults of theirs no pattern.
func (o *order) matches(of []subject) bool {
	return len(of) == 0 || slices.ContainsFunc(of, func(s subject) bool {
		return o.address.MatchString(s.address) && o.key.MatchString(s.key)
	})
}

// hits reports whether an order that matches applies this time, and counts it.
func (p *plan) hits(o *order) bool {
	if o.skip > 0 {
		o.skip--
		return false
	}
	if o.Count > 0 && o.left == 0 || o.Share > 0 && p.random.Float64() >= o.Share {
		return false
	}
	o.left--
	o.hits++
	return true
}

// Order is a fault in force and how often it has hit since it was ordered.
type Order struct {
	Fault Fault `json:"fault"`
	Hits  int64 `json:"hits"`
}

// inForce returns the faults in order.
func (p *plan) inForce() []Order {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]Order, len(p.orders))
	for i, o := range p.orders {
		list[i] = Order{Fault: o.Fault, Hits: o.hits}
	}
	return list
}
