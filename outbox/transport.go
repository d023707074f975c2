package outbox

import (
	"context"
	"errors"
	"time"
)

// Transport delivers a relay's messages: belfry.message_rows itself, or a Carrier of ids in addition.
// PostgreSQL holds the truth in both cases: a transport claims there the messages that it returns.
// Anything else that it remembers may be lost or arrive twice, and the claim decides.
//
//	PENDING, due ─────────────────── Receive ──► PROCESSING, under a lease ──► the pipeline
//	PENDING ── dispatcher ─► QUEUED ─ Receive ──┘                                  │
//	   ▲         └ Push ──► carrier ──┘                                            │
//	   └──────── with a due time, or final ◄──── Settled ◄──── recorded ◄──────────┘
//
// Package outboxtest contains the tests that every transport passes. Its methods may be called
// concurrently, except Receive.
type Transport interface {
	// Receive claims due messages of jobs and activities in any mixture, each with its LeaseID and
	// Lane, and never more than credits grants: a prefetched message would wait where no relay can send
	// it. It waits until it has messages, ctx ends or credits change, and polls for messages that
	// became due in the meantime. If ctx ends or an error occurs, it returns the claimed messages with
	// the error. errors.Is(err, ErrNothingDue) ends a drain.
	Receive(ctx context.Context, credits Credits) ([]Claimed, error)
	// Settled reports the recorded outcomes of messages, of this transport or another, after the
	// COMMIT. A carrier drops its copies, or stores copies that are due again. If nothing was recorded,
	// because the message belongs to another relay, it returns the copy to the queue: after a crash of
	// the server that lost the claim the message may be QUEUED, with this copy as its only one. Settled
	// may be called twice, and is not called by a relay that dies. Errors are logged.
	Settled(ctx context.Context, outcomes []Settled) error
	// String returns the name of the transport for logs.
	String() string
}

// Carrier is a transport that holds copies of ids outside PostgreSQL. A dispatcher in one relay at a
// time pushes them (Dispatch). Receive takes copies, claims them by key with a Claim, and applies the
// verdict to each copy. A copy is dropped when its message is settled or by such a verdict, and never
// because a provider was called.
type Carrier interface {
	Transport
	// Push hands over the ids of one push. It is idempotent by number. A push that the carrier cannot
	// accept is an answer, not an error; after an error the result is unknown.
	Push(ctx context.Context, p PushGroup) (PushAnswer, error)
	// Inside reports how many pushes of one queue the carrier remembers.
	Inside(ctx context.Context, q Queue) (Inside, error)
	// Keep runs as long as its relay, concurrently with Receive: it sends the worker's heartbeat and
	// handles delayed copies and the copies of dead workers. It returns when ctx ends, after the last
	// Settled, and then unregisters the worker. Failures are logged and retried. It is called once.
	Keep(ctx context.Context)
}

// Broker is one process's connection to the server, or cluster of servers, of a carrier, shared by all
// carriers of the process. It connects on first use and reconnects after an outage.
type Broker interface {
	// Carrier returns the carrier of a relay for one Run, including Keep. The name is the worker's name
	// in the carrier: no two running relays share a name.
	Carrier(name string, claim Claim) Carrier
	// Check returns an error that joins all reasons why the server's version, settings or permissions
	// are unfit, each with a remedy, or ErrAway if the server is unreachable. Warnings report settings
	// that may be intended, and settings that could not be read.
	Check(ctx context.Context) (warnings []string, err error)
	// Queues reports the contents of both queues for operators: Activities first, then Bulk.
	Queues(ctx context.Context) ([]QueueStatus, error)
	// Empty deletes everything: copies, numbers, epochs. No relay may be using the carrier. The next
	// dispatcher pushes messages again that are QUEUED in the database.
	Empty(ctx context.Context) error
	// Close closes the connections. The broker and its carriers must not be used afterwards.
	Close() error
}

// QueueStatus is the content of one queue of a carrier.
type QueueStatus struct {
	Queue Queue
	Inside
	Ready   int64 // copies that can be taken
	Later   int64 // delayed copies
	Taken   int64 // copies that a worker has taken and not settled
	Most    int64 // maximum of Taken and Later together; 0 means no limit
	Dead    int64 // stored ids of messages that are DEAD
	Workers []WorkerStatus
	Full    bool // pushes are currently answered with PushFull
}

// WorkerStatus is a relay that takes from a queue, or that has left copies behind.
type WorkerStatus struct {
	Name  string
	Taken int64
	Seen  time.Time // its last heartbeat; zero if it is not alive
}

// Claim claims up to outbox.MaxBatch copies by key and returns their answers in order. A soft stop does
// not interrupt it.
type Claim func(copies []Copy) ([]Answer, error)

// Credits are the messages that a relay currently accepts. Its senders grant them as their queues have
// free slots; received messages spend them. Values are momentary. Credits are safe for concurrent use.
type Credits interface {
	// Activities returns the credits for messages of activities.
	Activities() int
	// Bulk returns the credits for messages of all jobs together.
	Bulk() int
	// Job returns the part of Bulk for one job, if the given number of lanes has due messages.
	Job(id int64, lane string, lanes int) int
	// Idle reports that nothing is in flight.
	Idle() bool
	// Changed signals new credits, or a hint that there may be messages.
	Changed() <-chan struct{}
}

// Settled is the recorded outcome of a message.
type Settled struct {
	Key
	Status Status        // its new status; QUEUED: another copy follows soon; "": nothing was recorded
	Reason Reason        // why
	Wait   time.Duration // for PENDING: time until it is due, from the database's now
}

// Queue is one of the two queues of a carrier, so that activities do not wait behind bulk messages.
type Queue string

// The queues.
const (
	Activities Queue = "activities"
	Bulk       Queue = "bulk"
)

// PushGroup is one group of ids, of one job or of activities. The groups of a queue are numbered without
// gaps by whichever relay makes them. A carrier compares and records the number and adds the ids in one
// atomic step:
//
//	Epoch is the carrier's     Number = last + 1 ► done, last = Number
//	                           at most last ► done without adding the ids: it is a repetition
//	                           above last + 1 ► gap
//	Epoch is another, or none  Number = First ► done, last = Number, the epoch is the carrier's
//	                           else ► gap
//
// The carrier may keep or drop the copies of earlier epochs: the claim decides.
type PushGroup struct {
	Queue  Queue
	Epoch  string // a UUID
	First  int64  // number of the epoch
	Number int64
	Lane   string // of the job; "" of activities
	Keys   []Key  // empty if all are settled; the number still counts
}

// PushAnswer is the result of a Push.
type PushAnswer string

// The answers.
const (
	PushDone PushAnswer = "done" // by this push, or by an earlier identical push
	PushGap  PushAnswer = "gap"  // an earlier push, or the epoch, is unknown: read Inside
	PushFull PushAnswer = "full" // nothing was added: try again when copies have left
)

// Inside is a carrier's memory of one queue's pushes.
type Inside struct {
	Epoch string // of the last push; "" without a push
	Last  int64  // number of the last push
	// Oldest is the number of the earliest push that may have a copy inside, delayed, or taken and not
	// settled; Last+1 if there is no copy.
	Oldest int64
}

// ErrAway reports that the server of a carrier is unreachable.
var ErrAway = errors.New("the carrier's server does not answer")

// ErrNothingDue reports to a drain that no message is due, except messages that no sender currently
// takes.
var ErrNothingDue = errors.New("no message is due")
