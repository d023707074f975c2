package outbox

import (
	"crypto/sha256"
	"time"

	"github.com/belfryhq/belfry/outbox/sender"
)

// Action is what is to be done with a message that was composed.
type Action string

// The actions.
const (
	ActionSend   Action = "send"   // hand Delivery to a sender of its medium
	ActionRefuse Action = "refuse" // it ends as Status, for Reason
	ActionDefer  Action = "defer"  // it is due again after Wait, for Reason
)

// Composed is one message and what is to be done with it now: package compose says it,
// the relay does it.
type Composed struct {
	Claimed Claimed
	Action  Action
	// Delivery is complete with ActionSend.
	Delivery sender.Delivery
	// Category and Route are empty when the content is gone.
	Category string
	Route    []string
	// Step and Attempts are, with ActionSend, the step of Delivery.Medium and how many
	// calls it has had; otherwise those of Claimed.
	Step, Attempts int
	// Record is the media that were bypassed. It belongs before the record of the call,
	// and nowhere when the call is deferred: they are looked at again then.
	Record []Attempt
	// Status, with ActionRefuse, is DEAD or CANCELLED.
	Status Status
	Reason Reason // with ActionRefuse and ActionDefer
	// Wait, with ActionDefer, is from the database's now.
	Wait time.Duration
}

// AddressHash is how belfry.invalid_addresses knows an address: the SHA-256 of
// Delivery.Address.
func AddressHash(address string) []byte {
	sum := sha256.Sum256([]byte(address))
	return sum[:]
}
