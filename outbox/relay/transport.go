package relay

import (
	"context"
	"errors"
	"time"

	"github.com/belfryhq/belfry/outbox"
)

// Transport is where a relay's messages come from: belfry.messages itself, or a Carrier of
// ids beside it. PostgreSQL is the truth in every case. A transport claims there what it
// hands out, and whatever else it remembers may be lost or come twice: the claim decides.
//
//	PENDING, due ─────────────────── Receive ──► PROCESSING, under a lease ──► the pipeline
//	PENDING ── dispatcher ─► QUEUED ─ Receive ──┘                                  │
//	   ▲         └ Push ──► carrier ──┘                                            │
//	   └──────── with a due time, or final ◄──── Settled ◄──── recorded ◄──────────┘
//
// Package outboxtest has the tests that every transport passes. Its methods may be called from
// several goroutines, Receive from one at a time.
type Transport interface {
	// Receive claims messages that are due, of jobs and activities in any mixture, each with
	// its LeaseID and Lane, and never more than credits grants: what is prefetched would wait
	// where no relay can send it. It waits until it has some, ctx ends, or credits change, and
	// looks by itself for what is stuck behind it. What it has taken when ctx ends or
	// something fails it returns beside the error. errors.Is(err, ErrNothingDue) ends a drain.
	Receive(ctx context.Context, credits Credits) ([]outbox.Claimed, error)
	// Settled says what was recorded about messages, of this transport or another's, after
	// the COMMIT: a carrier drops its copies, or keeps those that are due again. Of what was
	// not recorded, because the message is not this relay's, it puts the copy back: the
	// message may be another's, but it may as well be QUEUED, when a crash of the server has
	// forgotten the claim, and this copy all that there is of it. It may be called twice, and
	// is not called by a relay that dies. An error is logged.
	Settled(ctx context.Context, outcomes []Settled) error
	// String names the transport in the log.
	String() string
}

// Carrier is a transport that holds copies of ids outside PostgreSQL. A dispatcher hands them
// over, in one relay at a time (Dispatch); Receive claims by key, with a Claim, what it takes
// out, and does with each copy what the answer's verdict says. A copy is dropped when its
// message is settled or by such a verdict, and never because a provider has been called.
type Carrier interface {
	Transport
	// Push hands over the ids of one push. It is idempotent by number. What the carrier
	// cannot do is an answer, not an error; after an error it is not known what was done.
	Push(ctx context.Context, p Push) (PushAnswer, error)
	// Inside says how much of what one of its queues was told the carrier remembers.
	Inside(ctx context.Context, q Queue) (Inside, error)
	// Keep does what is to be done beside Receive as long as its relay runs: it shows that the
	// worker lives, and looks after what is due later and what dead workers have left. It
	// returns when ctx ends, which is after the last Settled, and takes back then that this
	// worker lives. What fails is logged and tried again. It is called once.
	Keep(ctx context.Context)
}

// Broker is the server of a carrier, or the cluster of servers, as one process sees it: its
// connections are those of all carriers of the process. It connects when it is first used, and
// what uses it goes on by itself after the server was away.
type Broker interface {
	// Carrier is what the relay of that name has of it for one Run, Keep included. The name is
	// that of the worker in the carrier: no two relays have the same at the same time.
	Carrier(name string, claim Claim) Carrier
	// Check says what of the server's version, settings and rights makes it unfit, each with
	// what to do, in one error, or that it does not answer: ErrAway. warnings are what may be
	// meant so, and what could not be found out.
	Check(ctx context.Context) (warnings []string, err error)
	// Queues says what is inside, for operators: Activities and Bulk in that order.
	Queues(ctx context.Context) ([]QueueStatus, error)
	// Empty forgets everything: copies, numbers, epochs. No relay may use the carrier. Whose
	// messages are still QUEUED in the database are pushed again by the next dispatcher.
	Empty(ctx context.Context) error
	// Close ends the connections. Nothing of the broker or its carriers is used any more.
	Close() error
}

// QueueStatus is what is inside of one queue of a carrier.
type QueueStatus struct {
	Queue Queue
	Inside
	Ready   int64 // copies that may be taken out
	Later   int64 // copies that are due later, or wait to be looked at again
	Taken   int64 // copies that a worker has taken out and that are not settled
	Most    int64 // how many may be Taken and Later together; 0: as many as there are
	Dead    int64 // ids that are kept for a look at them, of messages that are DEAD
	Workers []WorkerStatus
	Full    bool // pushes are answered with PushFull now
}

// WorkerStatus is one relay that takes from a queue, or that did and has left something.
type WorkerStatus struct {
	Name  string
	Taken int64
	Seen  time.Time // when it showed last that it lives; zero: it does not
}

// Claim claims by key: up to outbox.MaxBatch copies, one answer each, in their order. A soft
// stop does not cut it short.
type Claim func(copies []outbox.Copy) ([]outbox.Answer, error)

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
	Status outbox.Status // that it has now, or QUEUED: by another copy, soon; "": nothing was recorded
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

// Push is one hand-over of ids: of one job, or of activities. The pushes of a queue are
// numbered without gaps, whoever makes them. A carrier compares and counts in the same step
// that takes the ids:
//
//	Epoch is the carrier's     Number = last + 1 ► done, last = Number
//	                           at most last ► done, nothing is taken: it was before
//	                           above last + 1 ► gap
//	Epoch is another, or none  Number = First ► done, last = Number, the epoch is the carrier's
//	                           else ► gap
//
// What a carrier has of epochs before it may keep or drop: the claim decides.
type Push struct {
	Queue  Queue
	Epoch  string // a UUID
	First  int64  // number of the epoch
	Number int64
	Lane   string       // of the job; "" of activities
	Keys   []outbox.Key // none: all are dealt with, and the number counts
}

// PushAnswer says what became of a Push.
type PushAnswer string

// The answers.
const (
	PushDone PushAnswer = "done" // now, or by the same push before
	PushGap  PushAnswer = "gap"  // one before it, or the epoch, is not known: Inside says what is
	PushFull PushAnswer = "full" // nothing was taken: try again when something has left
)

// Inside is what a queue of a carrier remembers.
type Inside struct {
	Epoch string // of the last push; "": of none
	Last  int64  // number of the last push
	// Oldest is the number of the earliest push of which a copy may be inside, waiting, or
	// taken out and not settled; Last+1: there is no copy.
	Oldest int64
}

// ErrAway reports that the server of a carrier does not answer now.
var ErrAway = errors.New("the carrier's server does not answer")

// ErrNothingDue reports to a drain that no message is due, but what no sender takes now.
var ErrNothingDue = errors.New("no message is due")
