package fake

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"
	"time"
)

// Outcome is the result of a call for the provider.
type Outcome string

// The outcomes.
const (
	Accepted Outcome = "accepted"
	Repeated Outcome = "repeated" // accepted before; only if keys are honoured
	Refused  Outcome = "refused"
	Dropped  Outcome = "dropped" // neither accepted nor answered
)

// Call is one message in a call of a sender.
type Call struct {
	At       time.Time `json:"at"` // the time of its arrival, by the process's clock
	Provider Provider  `json:"provider"`
	Key      string    `json:"key"` // "" without a key
	Address  string    `json:"address"`
	Title    string    `json:"title"` // at most 500 bytes
	Body     string    `json:"body"`  // at most 500 bytes
	Outcome  Outcome   `json:"outcome"`
	Code     string    `json:"code,omitempty"`   // the provider's error code of a refusal
	Fault    string    `json:"fault,omitempty"`  // the kind of the fault that applied
	Number   int64     `json:"number,omitempty"` // among this key's accepted calls, from 1
	Early    bool      `json:"early,omitempty"`  // before the end of its Retry-After
}

// message is one message of a call, as its provider reads it.
type message struct {
	key, address, title, body string
	// For AlimTalk: the identity of a message without a key, and the country.
	unkeyed, country string

	fault  kind  // of this message alone
	number int64 // of its acceptance
}

// identity returns the same value for all calls of one message.
func (m *message) identity(p Provider) string {
	return string(p) + "\x00" + cmp.Or(m.key, "\x00"+m.unkeyed)
}

// id returns the provider's id of an accepted message.
func (m *message) id(p Provider) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s", m.number, m.identity(p)))
	return fmt.Sprintf("%x", sum[:16])
}

// kept shortens the texts of a Call.
func kept(text string) string { return strings.ToValidUTF8(text[:min(len(text), 500)], "") }

// ledger records the calls of the providers. It is safe for concurrent use.
type ledger struct {
	now    func() time.Time
	honour bool
	size   int // of recent

	mu       sync.Mutex
	tally    map[Provider]*Tally
	accepted map[string]int64     // calls by identity, without repeats
	due      map[string]time.Time // the end of a message's Retry-After
	recent   []Call               // a ring buffer of the last calls
	next     int                  // the next index in recent
}

func newLedger(c Config) *ledger {
	l := &ledger{now: c.Now, honour: c.HonourKeys, size: c.RecentCalls}
	l.reset()
	return l
}

// reset deletes every call.
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

// verdict is the decision of a provider about one message.
type verdict struct {
	accepted   bool
	code       string // of a refusal; "" means dropped
	lost       bool   // the caller gets no valid answer
	retryAfter time.Duration
}

// record stores one message and its outcome, and returns the number of its acceptance, which is the
// first one's if keys are honoured. Callers call it before they answer (P1).
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
