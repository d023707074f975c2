package outbox

import (
	"crypto/sha256"
	"sync/atomic"
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
	// Own is the number of bytes of Delivery's title and body that no other message shares. Shared counts
	// its other texts; nil means that there are none.
	Own    int
	Shared *SharedText
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

// SharedText counts the messages that share texts in memory. It is safe for concurrent use.
type SharedText struct {
	Bytes int // of the texts

	messages atomic.Int64
}

// Hold adds a message and returns the number of bytes that are in memory because of it: all for the first
// one, then none.
func (s *SharedText) Hold() int {
	if s == nil || s.messages.Add(1) > 1 {
		return 0
	}
	return s.Bytes
}

// Drop removes a message and returns the number of bytes that are no longer needed: all after the last one.
func (s *SharedText) Drop() int {
	if s == nil || s.messages.Add(-1) > 0 {
		return 0
	}
	return s.Bytes
}

// AddressHash returns the SHA-256 of Delivery.Address, the key of belfry.invalid_addresses.
func AddressHash(address string) []byte {
	sum := sha256.Sum256([]byte(address))
	return sum[:]
}
