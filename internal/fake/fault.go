package fake

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// kind is what a fault does.
type kind string

const (
	kindNone        kind = ""
	kindLatency     kind = "latency"
	kindStatus      kind = "status"
	kindHang        kind = "hang"
	kindReset       kind = "reset"
	kindSlow        kind = "slow"
	kindHuge        kind = "huge"
	kindGarbage     kind = "garbage"
	kindInvalid     kind = "invalid-address"
	kindUndelivered kind = "undelivered"
	kindUnreported  kind = "unreported"
	kindRefused     kind = "refused"
)

// kinds returns the names of all kinds.
func kinds() []string {
	return []string{
		string(kindLatency), string(kindStatus), string(kindHang), string(kindReset), string(kindSlow), string(kindHuge),
		string(kindGarbage), string(kindInvalid), string(kindUndelivered), string(kindUnreported), string(kindRefused),
	}
}

// Fault is one order to go wrong. ParseFault makes it, from the text that String
// returns; the zero value does nothing.
type Fault struct {
	target     string
	kind       kind
	low, high  time.Duration // of latency; high of slow
	status     int
	size       int64
	retryAfter time.Duration
	share      float64        // 0: always
	count      int64          // 0: without end
	skip       int64          // so many calls that match are left alone first
	address    *regexp.Regexp // nil: any
	key        *regexp.Regexp
	accepted   bool // whether the provider takes the message all the same
}

// String is the fault as ParseFault reads it.
func (f Fault) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", f.target, f.kind)
	switch f.kind {
	case kindLatency:
		b.WriteString(" " + f.low.String())
		if f.high != f.low {
			b.WriteString("-" + f.high.String())
		}
	case kindSlow:
		b.WriteString(" " + f.high.String())
	case kindStatus:
		fmt.Fprintf(&b, " %d", f.status)
	case kindHuge:
		b.WriteString(" " + sizeText(f.size))
	case kindNone, kindHang, kindReset, kindGarbage, kindInvalid, kindUndelivered, kindUnreported, kindRefused:
	}
	if f.retryAfter > 0 {
		fmt.Fprintf(&b, " retry-after %s", f.retryAfter)
	}
	if f.share > 0 {
		b.WriteString(" share " + strconv.FormatFloat(f.share, 'g', -1, 64))
	}
	for _, n := range []struct {
		name  string
		value int64
	}{{"count", f.count}, {"skip", f.skip}} {
		if n.value > 0 {
			fmt.Fprintf(&b, " %s %d", n.name, n.value)
		}
	}
	if f.address != nil {
		b.WriteString(" address " + f.address.String())
	}
	if f.key != nil {
		b.WriteString(" key " + f.key.String())
	}
	if takesAccepted(f.kind) && f.accepted != acceptedByDefault(f.kind) {
		b.WriteString(" accepted " + map[bool]string{true: "yes", false: "no"}[f.accepted])
	}
	return b.String()
}

// takesAccepted reports whether an order may say if the message was taken.
func takesAccepted(k kind) bool { return k == kindStatus || k == kindHang || k == kindReset }

// acceptedByDefault reports whether the provider takes a message that meets a fault.
func acceptedByDefault(k kind) bool {
	return k != kindStatus && k != kindHang && k != kindInvalid && k != kindRefused
}

// aims reports whether f is ordered for target.
func (f *Fault) aims(target string) bool {
	return f.target == target || f.target == targetAll && played(target)
}

// subject is whom a call is about.
type subject struct{ address, key string }

// matches reports whether one of the subjects is meant. Calls without a subject,
// for a token, match only where neither pattern is given.
func (f *Fault) matches(of []subject) bool {
	if f.address == nil && f.key == nil {
		return true
	}
	return slices.ContainsFunc(of, func(s subject) bool {
		return (f.address == nil || f.address.MatchString(s.address)) && (f.key == nil || f.key.MatchString(s.key))
	})
}

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

	left, skip int64
	hits       int64
}

func newPlan(seed uint64, faults []Fault) *plan {
	p := &plan{random: rand.New(rand.NewPCG(seed, seed))} //nolint:gosec // faults to order, not secrets
	p.replace(faults)
	return p
}

// replace puts other faults in force. Their counts begin anew.
func (p *plan) replace(faults []Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.orders = make([]*order, len(faults))
	for i, f := range faults {
		p.orders[i] = &order{Fault: f, left: f.count, skip: f.skip}
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
		decided := d.fault.kind != kindNone && o.kind != kindLatency
		if decided || !o.aims(target) || !among(o.kind) || !o.matches(of) || !p.hits(o) {
			continue
		}
		if o.kind != kindLatency {
			d.fault = o.Fault
			continue
		}
		d.late += o.low
		if span := o.high - o.low; span > 0 {
			d.late += time.Duration(p.random.Int64N(int64(span) + 1))
		}
	}
	return d
}

// hits reports whether an order that matches applies this time, and counts it.
func (p *plan) hits(o *order) bool {
	if o.skip > 0 {
		o.skip--
		return false
	}
	if o.count > 0 && o.left == 0 || o.share > 0 && p.random.Float64() >= o.share {
		return false
	}
	o.left--
	o.hits++
	return true
}

// Order is a fault in force and how often it has hit since it was ordered.
type Order struct {
	Fault string `json:"fault"`
	Hits  int64  `json:"hits"`
}

// inForce returns the faults in order.
func (p *plan) inForce() []Order {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]Order, len(p.orders))
	for i, o := range p.orders {
		list[i] = Order{Fault: o.String(), Hits: o.hits}
	}
	return list
}
