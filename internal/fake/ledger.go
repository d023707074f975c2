package fake

import (
	"crypto/sha256"
	"fmt"
	"sync"
	"time"
	"unicode/utf8"
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

	hash  [32]byte // of provider and key, or of unkeyed where there is no key
	id    string   // the provider's name for it
	fault kind     // of this message of a batch
}

func (m *message) subject() subject { return subject{m.address, m.key} }

// seal computes the hash.
func (m *message) seal(p Provider) {
	text := m.key
	if text == "" {
		text = "\x00" + m.unkeyed
	}
	m.hash = sha256.Sum256([]byte(string(p) + "\x00" + text))
}

// name is what the provider calls the n-th acceptance of a message.
func (m *message) name(n int64) string {
	h := m.hash
	if n > 1 {
		h = sha256.Sum256(fmt.Appendf(h[:], "%d", n))
	}
	return fmt.Sprintf("%x-%x-%x-%x-%x", h[0:4], h[4:6], h[6:8], h[8:10], h[10:16])
}

// maxKept bounds the texts that a Call keeps.
const maxKept = 500

func kept(text string) string {
	if len(text) <= maxKept {
		return text
	}
	cut := maxKept
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut]
}

// ledger is what the providers know of the calls they had. It is safe for
// concurrent use.
type ledger struct {
	now    func() time.Time
	honour bool
	most   int // keys that are kept

	mu     sync.Mutex
	tally  map[Provider]*Tally
	keys   map[[32]byte]uint32    // accepted calls by key, repeats aside
	due    map[[32]byte]time.Time // when a key may come again, after a Retry-After
	recent []Call                 // a ring of the last calls
	next   int                    // where the ring goes on
	size   int
}

func newLedger(c Config) *ledger {
	l := &ledger{now: c.Now, honour: c.HonourKeys, most: c.MaxKeys, size: c.RecentCalls}
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
	l.keys, l.due = make(map[[32]byte]uint32), make(map[[32]byte]time.Time)
	l.recent, l.next = nil, 0
}

// verdict is what a provider decided about one message.
type verdict struct {
	accepted   bool
	code       string // of what is refused; "": dropped
	lost       bool   // accepted, and the answer does not say so
	retryAfter time.Duration
}

// request counts a call, of one message or of many, and what was drawn for it.
func (l *ledger) request(p Provider, d drawn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tally[p]
	t.Requests++
	if d.late > 0 {
		t.Faults[string(kindLatency)]++
	}
	if k := d.fault.kind(); k != kindNone {
		t.Faults[string(k)]++
	}
}

// fault counts a fault that was drawn for one message of a call.
func (l *ledger) fault(p Provider, k kind) {
	if k == kindNone {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tally[p].Faults[string(k)]++
}

// record enters one message and what became of it, and returns the number of its
// acceptance: with keys honoured, of the first one. It comes before any answer, so
// that nothing is answered that is not recorded.
func (l *ledger) record(p Provider, m *message, arrived time.Time, k kind, v verdict) (number int64) {
	call := Call{
		At: arrived, Provider: p, Key: m.key, Address: m.address, Title: kept(m.title), Body: kept(m.body),
		Fault: string(k), Code: v.code,
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tally[p]
	t.Calls++
	if due, ok := l.due[m.hash]; ok {
		delete(l.due, m.hash)
		if call.Early = arrived.Before(due); call.Early {
			t.Early++
		}
	}
	switch {
	case v.accepted:
		call.Outcome, call.Number = l.accept(t, m)
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
	if v.retryAfter > 0 && len(l.due) < l.most {
		l.due[m.hash] = l.now().Add(v.retryAfter)
	}
	l.remember(call)
	return call.Number
}

// accept counts an accepted call by its key.
func (l *ledger) accept(t *Tally, m *message) (Outcome, int64) {
	t.Accepted++
	if m.key == "" && t.Provider != AlimTalk {
		t.Keyless++
		return Accepted, 1
	}
	before, known := l.keys[m.hash]
	switch {
	case known && l.honour:
		t.Repeats++
		return Repeated, 1
	case known:
		t.Duplicates++
	case len(l.keys) >= l.most:
		t.Untracked++
		return Accepted, 1
	default:
		t.DistinctKeys++
	}
	l.keys[m.hash] = before + 1
	return Accepted, int64(before) + 1
}

// unanswered counts an accepted call whose answer turned out not to arrive.
func (l *ledger) unanswered(p Provider, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tally[p].Unanswered += int64(n)
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
