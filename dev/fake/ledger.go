package fake

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"
	"time"
)

// Outcome is what a call came to, on the provider's side.
type Outcome string

// The outcomes.
const (
	Accepted Outcome = "accepted"
	Repeated Outcome = "repeated" // accepted before, and keys are honoured
	Refused  Outcome = "refused"
	Dropped  Outcome = "dropped" // neither accepted nor answered
)

// Call is one message that somebody tried to hand over.
type Call struct {
	At       time.Time `json:"at"` // when it had arrived, in the process's clock
	Provider Provider  `json:"provider"`
	Key      string    `json:"key"` // "": it had none
	Address  string    `json:"address"`
	Title    string    `json:"title"` // at most 500 bytes
	Body     string    `json:"body"`  // at most 500 bytes
	Outcome  Outcome   `json:"outcome"`
	Code     string    `json:"code,omitempty"`   // the provider's, of what it refused
	Fault    string    `json:"fault,omitempty"`  // the kind of fault that decided
	Number   int64     `json:"number,omitempty"` // of this key's accepted calls, from 1
	Early    bool      `json:"early,omitempty"`  // before its Retry-After was over
}

// message is one message of a call, as its provider reads it.
type message struct {
	key, address, title, body string
	// Of AlimTalk: what tells messages without a key apart, and the country.
	unkeyed, country string

	fault  kind  // of this message alone
	number int64 // of its acceptance
}

// identity is the same for two calls of one message.
func (m *message) identity(p Provider) string {
	return string(p) + "\x00" + cmp.Or(m.key, "\x00"+m.unkeyed)
}

// id is what the provider calls an accepted message.
func (m *message) id(p Provider) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s", m.number, m.identity(p)))
	return fmt.Sprintf("%x", sum[:16])
}

// kept bounds the texts that a Call keeps.
func kept(text string) string { return strings.ToValidUTF8(text[:min(len(text), 500)], "") }

// ledger is what the providers know of the calls they had. It is safe for
// concurrent use.
type ledger struct {
	now    func() time.Time
	honour bool
	size   int // of recent

	mu       sync.Mutex
	tally    map[Provider]*Tally
	accepted map[string]int64     // calls by identity, repeats aside
	due      map[string]time.Time // when a message may come again, after a Retry-After
	recent   []Call               // a ring of the last calls
	next     int                  // where the ring goes on
}

func newLedger(c Config) *ledger {
	l := &ledger{now: c.Now, honour: c.HonourKeys, size: c.RecentCalls}
	l.reset()
	return l
}

// reset forgets every call.
func (l *ledger) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tally = make(map[Provider]*Tally)
	for _, p := range Providers() {
		l.tally[p] = newTally(p)
	}
	l.accepted, l.due = make(map[string]int64), make(map[string]time.Time)
	l.recent, l.next = nil, 0
}

// verdict is what a provider decided about one message.
type verdict struct {
	accepted   bool
	code       string // of what is refused; "": dropped
	lost       bool   // if accepted, the answer does not say so
	retryAfter time.Duration
}

// record enters one message and what became of it, and returns the number of its
// acceptance: with keys honoured, of the first one. It comes before any answer, so
// that nothing is answered that is not recorded.
func (l *ledger) record(p Provider, m *message, arrived time.Time, k kind, v verdict) (number int64) {
	call := Call{
		At: arrived, Provider: p, Key: m.key, Address: m.address, Title: kept(m.title), Body: kept(m.body),
		Fault: string(k), Code: v.code,
	}
	identity := m.identity(p)
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tally[p]
	t.Calls++
	if call.Early = arrived.Before(l.due[identity]); call.Early {
		t.Early++
	}
	delete(l.due, identity)
	switch {
	case v.accepted:
		call.Outcome, call.Number = l.accept(t, m, identity)
		if v.lost {
			t.Unanswered++
		}
	case v.code == "":
		call.Outcome = Dropped
		t.Dropped++
	default:
		call.Outcome = Refused
		t.Refused[v.code]++
	}
	if v.retryAfter > 0 {
		l.due[identity] = l.now().Add(v.retryAfter)
	}
	l.remember(call)
	return call.Number
}

// accept counts an accepted call by its key.
func (l *ledger) accept(t *Tally, m *message, identity string) (Outcome, int64) {
	t.Accepted++
	switch before := l.accepted[identity]; {
	case m.key == "" && m.unkeyed == "":
		t.Keyless++
		return Accepted, 1
	case before > 0 && l.honour:
		t.Repeats++
		return Repeated, 1
	case before > 0:
		t.Duplicates++
	default:
		t.DistinctKeys++
	}
	l.accepted[identity]++
	return Accepted, l.accepted[identity]
}

func (l *ledger) remember(c Call) {
	if len(l.recent) < l.size {
		l.recent = append(l.recent, c)
		return
	}
	l.recent[l.next] = c
	l.next = (l.next + 1) % l.size
}

// calls returns the last calls of a provider, or of all for "", oldest first.
func (l *ledger) calls(p Provider) []Call {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]Call, 0, len(l.recent))
	for i := range l.recent {
		if c := l.recent[(l.next+i)%len(l.recent)]; p == "" || c.Provider == p {
			list = append(list, c)
		}
	}
	return list
}

// summary copies the tallies.
func (l *ledger) summary() []Tally {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]Tally, 0, len(l.tally))
	for _, p := range Providers() {
		list = append(list, l.tally[p].copied())
	}
	return list
}
