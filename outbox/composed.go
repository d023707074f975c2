package outbox

import (
	"crypto/sha256"
	"time"

	"github.com/belfryhq/belfry/outbox/sender"
)

// Action is the next step for a composed message.
type Action string

// The actions.
const (
	ActionSend   Action = "send"   // hand Delivery to a sender of its medium
	ActionRefuse Action = "refuse" // finish it with Status and Reason
	ActionDefer  Action = "defer"  // defer it by Wait, with Reason
)

// Composed is a composed message with the action that the relay must take.
type Composed struct {
	Claimed Claimed
	Action  Action
	// Delivery is complete with ActionSend.
	Delivery sender.Delivery
	// Category and Route are empty when the content is gone.
	Category string
	Route    []string
	// With ActionSend, Step is the step of Delivery.Medium and Attempts the number of its calls so far.
	// Otherwise they are Claimed's values.
	Step, Attempts int
	// Record lists the skipped media. The relay stores it before the record of the call, and discards it if
	// the call is deferred, because they are then evaluated again.
	Record []Attempt
	// Status, with ActionRefuse, is DEAD or CANCELLED.
	Status Status
	Reason Reason // with ActionRefuse and ActionDefer
	// Wait, with ActionDefer, counts from the database's present time.
	Wait time.Duration
}

// AddressHash returns the SHA-256 of Delivery.Address, the key of belfry.invalid_addresses.
func AddressHash(address string) []byte {
	sum := sha256.Sum256([]byte(address))
	return sum[:]
}
