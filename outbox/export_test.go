package outbox

import "github.com/jackc/pgx/v5/pgtype"

// Anywhere returns messages without where their claim left them.
func Anywhere(claimed []Claimed) []Claimed {
	bare := make([]Claimed, len(claimed))
	for i, c := range claimed {
		c.tid = pgtype.TID{}
		bare[i] = c
	}
	return bare
}

// Misplaced returns a message with where the claim left another one.
func Misplaced(c, other Claimed) Claimed {
	c.tid = other.tid
	return c
}

// What an audit says of a channel.
const (
	ReasonUnread        = reasonUnread
	ReasonRead          = reasonRead
	ReasonWithdrawn     = reasonWithdrawn
	ReasonSent          = reasonSent
	ReasonSkipped       = reasonSkipped
	ReasonInactive      = reasonInactive
	ReasonOutOfAudience = reasonOutOfAudience
	ReasonNotReached    = reasonNotReached
	ReasonArrivedLater  = reasonArrivedLater
	ReasonJoinedSince   = reasonJoinedSince
)

// What an audit and a recall refuse.
var (
	ErrPruned        = errPruned
	ErrRecallStopped = errRecallStopped
)

// AuditTypeError reports a job of another type.
type AuditTypeError = auditTypeError
