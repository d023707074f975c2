package outbox

import (
	"cmp"

	"github.com/jackc/pgx/v5/pgtype"
)

// Status is where a message stands.
type Status string

// The statuses, as in the database.
const (
	Pending    Status = "PENDING"
	Queued     Status = "QUEUED"
	Processing Status = "PROCESSING"
	Sent       Status = "SENT"
	Dead       Status = "DEAD"
	Cancelled  Status = "CANCELLED"
)

// edges are the legal transitions of a message, and who causes each.
var edges = map[Status][]Status{
	Pending: {
		Queued,     // a carrier takes its id
		Processing, // a relay claims it
		Cancelled,  // a recall
	},
	Queued: {
		Processing, // a relay claims it
		Pending,    // the carrier lost its id, or dropped it because it is held
		Cancelled,  // a recall
	},
	Processing: {
		Processing, // accepted, and the provider's receipt is awaited
		Pending,    // another attempt, the next medium, a deferral, or a relay that died
		Sent,       // the provider took it
		Dead,       // gave up, with a reason
		Cancelled,  // refused before it was sent, or recalled and the attempt failed
	},
	Dead: {
		Pending,   // an operator's redrive
		Cancelled, // an operator's discard
	},
	Sent:      {}, // permanently (I8)
	Cancelled: {},
}

// May reports whether a message may go from s to next.
func (s Status) May(next Status) bool {
	for _, to := range edges[s] {
		if to == next {
			return true
		}
	}
	return false
}

// Final reports whether relays are done with a message.
func (s Status) Final() bool { return s == Sent || s == Dead || s == Cancelled }

// Why a message is DEAD.
const (
	ReasonPermanent      Reason = "permanent"       // the provider refused it permanently
	ReasonInvalidAddress Reason = "invalid_address" // the provider does not know the address
	ReasonExhausted      Reason = "exhausted"       // the last medium failed as often as it may
	ReasonUnknown        Reason = "unknown"         // as exhausted, and an attempt may have been accepted
	ReasonCrashed        Reason = "crashed"         // relays died sending it
	ReasonNoAddress      Reason = "no_address"      // the channel has no address for any medium of the route
	ReasonBadContent     Reason = "bad_content"     // its content cannot be made
)

// Why a message is CANCELLED.
const (
	ReasonRecalled  Reason = "recalled"
	ReasonOptedOut  Reason = "opted_out"
	ReasonCapped    Reason = "capped"
	ReasonDiscarded Reason = "discarded" // a dead letter that an operator discarded
)

// What a PENDING message waits for.
const (
	ReasonRetry        Reason = "retry"         // the next attempt
	ReasonFailover     Reason = "failover"      // its first attempt by the next medium
	ReasonQuietHours   Reason = "quiet_hours"   // the end of the channel's quiet hours
	ReasonBreakerOpen  Reason = "breaker_open"  // the provider to recover
	ReasonSenderBusy   Reason = "sender_busy"   // its turn within the sender's rate
	ReasonSenderPaused Reason = "sender_paused" // an operator
	ReasonNoSender     Reason = "no_sender"     // a relay that has a sender for the platform
	ReasonRedriven     Reason = "redriven"      // its turn, after an operator returned it
)

// Key names a message. A negative JobID is an activity's id.
type Key struct{ JobID, ChannelID int64 }

// Compare orders keys by job, then channel.
func (k Key) Compare(other Key) int {
	return cmp.Or(cmp.Compare(k.JobID, other.JobID), cmp.Compare(k.ChannelID, other.ChannelID))
}

// Claimed is a message in flight: a relay has claimed it and not recorded yet what became
// of it.
type Claimed struct {
	Key
	LeaseID  int64
	Lane     string // of its job, set by who claims; "" of an activity
	Step     int    // index into the route
	Attempts int    // calls of this step so far
	Crashes  int    // relays that died sending it
	Reason   Reason // what it has waited for, "" for a first attempt
	// Ambiguous tells that an attempt by any medium is recorded as unknown or crashed:
	// the message may have been accepted.
	Ambiguous bool

	// Revision is that of the content which the message was composed from: the composer
	// sets it, and Look compares it with the job's.
	Revision int

	tid pgtype.TID // where its row was when it was claimed; a hint that may be wrong or NULL
}
