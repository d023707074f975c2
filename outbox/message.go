package outbox

import (
	"cmp"

	"github.com/jackc/pgx/v5/pgtype"
)

// Status is the state of a message.
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

// edges are the allowed transitions of a message, with the cause of each.
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
		Processing, // accepted; it awaits the provider's receipt
		Pending,    // another attempt, the next medium, a deferral, or a relay that died
		Sent,       // the provider accepted it
		Dead,       // the relay gave up, with a reason
		Cancelled,  // refused before it was sent, or recalled and the attempt failed
	},
	Dead: {
		Pending,   // an operator's redrive
		Cancelled, // an operator's discard
	},
	Sent:      {}, // permanently (I8)
	Cancelled: {},
}

// May reports whether the transition from s to next is allowed.
func (s Status) May(next Status) bool {
	for _, to := range edges[s] {
		if to == next {
			return true
		}
	}
	return false
}

// Final reports whether s is a final state for relays.
func (s Status) Final() bool { return s == Sent || s == Dead || s == Cancelled }

// Why a message is DEAD.
const (
	ReasonPermanent      Reason = "permanent"       // the provider refused it permanently
	ReasonInvalidAddress Reason = "invalid_address" // the provider does not know the address
	ReasonExhausted      Reason = "exhausted"       // the last medium reached its maximum of attempts
	ReasonUnknown        Reason = "unknown"         // as exhausted, but the provider may have accepted an attempt
	ReasonCrashed        Reason = "crashed"         // relays died sending it
	ReasonNoAddress      Reason = "no_address"      // the channel has no address for any medium of the route
	ReasonBadContent     Reason = "bad_content"     // its content cannot be rendered
)

// Why a message is CANCELLED.
const (
	ReasonRecalled  Reason = "recalled"
	ReasonOptedOut  Reason = "opted_out"
	ReasonCapped    Reason = "capped"
	ReasonDiscarded Reason = "discarded" // a dead letter that an operator discarded
)

// The reasons for which a PENDING message waits.
const (
	ReasonRetry        Reason = "retry"         // the next attempt
	ReasonFailover     Reason = "failover"      // its first attempt by the next medium
	ReasonQuietHours   Reason = "quiet_hours"   // the end of the channel's quiet hours
	ReasonUncounted    Reason = "uncounted"     // fewer jobs or activities in the window of the category's cap
	ReasonBreakerOpen  Reason = "breaker_open"  // the provider to recover
	ReasonSenderBusy   Reason = "sender_busy"   // its turn within the sender's rate
	ReasonSenderPaused Reason = "sender_paused" // an operator
	ReasonNoSender     Reason = "no_sender"     // a relay that has a sender for the platform
	ReasonRedriven     Reason = "redriven"      // its turn, after an operator returned it
)

// Key identifies a message. A negative JobID is the id of an activity.
type Key struct{ JobID, ChannelID int64 }

// Compare orders keys by job, then channel.
func (k Key) Compare(other Key) int {
	return cmp.Or(cmp.Compare(k.JobID, other.JobID), cmp.Compare(k.ChannelID, other.ChannelID))
}

// Claimed is a message in flight: claimed by a relay, without a recorded result.
type Claimed struct {
	Key
	LeaseID  int64
	Lane     string // of its job, set by the caller of the claim; "" for an activity
	Step     int    // index into the route
	Attempts int    // calls of this step so far
	Crashes  int    // relays that died sending it
	Reason   Reason // the reason for which it waited; "" before the first attempt
	// Ambiguous means that an attempt by any medium is recorded as unknown or crashed, so that a provider
	// may have accepted the message.
	Ambiguous bool

	// Revision is the revision of the content that the message was composed from. The composer sets it, and
	// Recheck compares it with the job's revision.
	Revision int

	tid pgtype.TID // position of its row when it was claimed; a hint that can be wrong or NULL
}
