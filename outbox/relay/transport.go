package relay

import (
	"context"
	"errors"
	"time"

	"github.com/belfryhq/belfry/outbox"
)

// Transport is where a relay's messages come from: belfry.messages itself, or a carrier of
// ids beside it. PostgreSQL is the truth in every case. A transport claims there what it
// hands out, and whatever else it remembers may be lost or come twice: the claim decides.
//
//	PENDING, due ──────────────── Receive ──► PROCESSING, under a lease ──► the pipeline
//	PENDING ── Push ──► QUEUED ── Receive ──┘                                  │
//	     ▲                                                                     │
//	     └─────── with a due time, or final ◄── Settled ◄── recorded ◄─────────┘
//
// A carrier gets ids by Push and claims by key what it takes out. A key that is QUEUED, or
// PENDING and due, is claimed; one that is due later, finished, another's or held is not,
// and what becomes of its copy is the carrier's business. Package outboxtest has the tests
// that every transport passes. Its methods may be called from several goroutines, Receive
// from one at a time.
//
// Receive carries the claim by key with its verdicts, batches that mix jobs and activities, no
// prefetch beyond the credits, the sweep of what is stuck, waking instead of polling
// (Credits.Changed), and what was taken when a stop came. Settled carries due times. Push
// carries the number of a hand-over, and the answers done, gap and full. Since when a message
// is queued, and by which push, is for the carrier's own tables to keep: the relay never asks.
type Transport interface {
	// Receive claims messages that are due, of jobs and activities in any mixture, each with
	// its LeaseID and Lane, and never more than credits grants: what is prefetched would wait
	// where no relay can send it. It waits until it has some, ctx ends, or credits change, and
	// looks by itself for what is stuck behind it. What it has taken when ctx ends or
	// something fails it returns beside the error. errors.Is(err, ErrNothingDue) ends a drain.
	Receive(ctx context.Context, credits Credits) ([]outbox.Claimed, error)
	// Settled says what was recorded about messages, of this transport or another's, after
	// the COMMIT: a carrier drops its copies, or keeps those that are due again. It may be
	// called twice, and is not called by a relay that dies. An error is logged.
	Settled(ctx context.Context, outcomes []Settled) error
	// Push hands over what PostgreSQL has recorded as QUEUED by a push of that number. It is
	// idempotent by number. What the transport cannot do is an answer, not an error.
	Push(ctx context.Context, p Push) (Pushed, error)
	// String names the transport in the log.
	String() string
}

// Credits are the messages that a relay takes now: its senders grant them, as their free
// queue slots, and what is received spends them. Each answer is of the moment. It is safe
// for concurrent use.
type Credits interface {
	// Activities is how many messages of activities.
	Activities() int
	// Bulk is how many messages of jobs, all together.
	Bulk() int
	// Job is how many of these of one job, in one of so many lanes with messages.
	Job(id int64, lane string, lanes int) int
	// Idle reports that nothing is in flight.
	Idle() bool
	// Changed wakes who waits for credits, or for messages: a hint says there may be some.
	Changed() <-chan struct{}
}

// Settled is what was recorded about a message.
type Settled struct {
	outbox.Key
	Status outbox.Status // that it has now; "": it had another owner, and nothing was recorded
	Reason outbox.Reason // why
	Wait   time.Duration // with PENDING: until it is due, from the database's now
}

// Queue is one of the two queues of a carrier: activities do not wait behind bulk.
type Queue string

// The queues.
const (
	Activities Queue = "activities"
	Bulk       Queue = "bulk"
)

// Push is one hand-over of ids. The pushes of a queue are numbered from 1, without gaps, by
// one dispatcher at a time.
type Push struct {
	Queue  Queue
	Number int64
	Keys   []outbox.Key
}

// Pushed is the answer to a Push.
type Pushed struct {
	Answer PushAnswer
	// From is, with PushGap, the number of the push that is missing: those from there on are
	// to be made again.
	From int64
}

// PushAnswer says what became of a Push.
type PushAnswer string

// The answers.
const (
	PushDone PushAnswer = "done" // now, or by the same push before
	PushGap  PushAnswer = "gap"  // one before it is not known: it was lost
	PushFull PushAnswer = "full" // nothing was taken: try again when something has left
)

// ErrNothingDue reports to a drain that no message is due, but what no sender takes now.
var ErrNothingDue = errors.New("no message is due")
