// Package sender defines provider clients. A client calls its provider for deliveries, individually or in
// one batch, and returns one result per delivery. It stores no state of messages and does not retry: the
// relay does.
//
//	Send: accepted ─────────────► the message is SENT
//	      pending, with a receipt ► the result comes later, by Receipts
//	      retryable ──────────────► certainly not accepted; may be retried
//	      unknown ────────────────► may have been accepted, for example after a broken connection
//	      permanent ──────────────► certainly not accepted, and never will be
//	      invalid address ────────► like permanent; the provider rejects the address itself
//
// # Rules for a client
//
//  1. Return unknown whenever the provider may have accepted the message: the request may have been sent,
//     and no answer excludes acceptance. Return retryable only if it was certainly not accepted, because
//     there was no connection or the answer reports it.
//  2. Every attempt of a message by the same medium has the same Delivery.Key. Send it if the provider has a
//     field for it.
//  3. A call ends with its context. Limit the size of answers.
//  4. An error text contains no address, secret or content.
//  5. Return invalid address only for a provider's answer about that address; it is recorded permanently. An
//     answer about the sender, its credentials, its reputation or the content is permanent or retryable, and
//     so is a client's own refusal (Result.Refusal).
//  6. Call Check directly before the step after which the provider may accept the message, as connecting can take longer
//     than the relay's claim to the message lasts. If it returns an error, return Untried.
//  7. A Send that makes several calls, for a batch that its provider refused as a whole, returns Untried for messages
//     that it has no time left for.
package sender

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

// ErrLate reports that the messages of a call may no longer be sent: the relay stops, or its claim to them may have
// ended, because its process was suspended or lost its database. They may have been recalled or erased, or sent by
// another relay.
var ErrLate = errors.New("the claim to the message may have ended")

type checkKey struct{}

// WithCheck returns a context for Send whose messages may be sent as long as check returns nil.
func WithCheck(ctx context.Context, check func() error) context.Context {
	return context.WithValue(ctx, checkKey{}, check)
}

// Check returns ErrLate if the messages of this call to Send may no longer be sent. Without WithCheck they may.
func Check(ctx context.Context) error {
	if check, ok := ctx.Value(checkKey{}).(func() error); ok {
		return check()
	}
	return nil
}

// Class is the outcome of one delivery.
type Class string

// The classes. The zero value counts as Unknown.
const (
	Accepted       Class = "accepted"
	Pending        Class = "pending"
	Retryable      Class = "retryable"
	Unknown        Class = "unknown"
	Permanent      Class = "permanent"
	InvalidAddress Class = "invalid_address"
)

// Refusal is the reason why a client refused a delivery without calling its provider.
type Refusal string

// The refusals. An empty Refusal means that the client refused nothing, and the result is from a call or from
// the attempt to call.
const (
	// RefusedAddress is a refusal of one channel's address, such as a browser without a
	// subscription. It is unrelated to the provider, the sender and the job.
	RefusedAddress Refusal = "address"
	// RefusedContent is a refusal of a message that the provider would reject, for example because of its
	// size, or that the settings cannot express.
	RefusedContent Refusal = "content"
)

// Delivery is one message to one address by one medium.
type Delivery struct {
	// Key is the idempotency key, a UUID in lower-case text, the same in every attempt.
	Key        string
	JobID      int64 // negative for an activity
	ChannelID  int64
	ExternalID string // the service's own user id
	Category   string
	Medium     string
	Platform   string
	Locale     string // of the content; empty for the default
	// Address is the channel's address for this medium: a text, or the JSON of an object such as a Web
	// Push subscription.
	Address string
	Title   string
	Body    string
	Data    json.RawMessage // a JSON object, never empty
	Attempt int             // from 1, of this medium
	// UnsubscribeURL is the link by which the recipient opts out of the category for the medium. It is empty
	// if there is no link.
	UnsubscribeURL string
}

// Result is the result of one delivery.
type Result struct {
	Class Class
	// Code is the provider's short code, such as an HTTP status or an error name. At most 100 characters are
	// stored.
	Code string
	// Detail is a text for operators, without addresses and secrets. At most 1,000 characters are stored.
	Detail string
	// RetryAfter is the pause that the provider requested, or zero.
	RetryAfter time.Duration
	// Receipt is the provider's id of the message. It is required with Pending, and stored for support with
	// Accepted.
	Receipt string
	// Refusal is set, with Permanent, when the client refused the delivery itself.
	Refusal Refusal
	// AboutAddress is set, with Retryable, if the provider temporarily refused only this address, for example because
	// its mailbox is full. The breaker counts it as a sign of life.
	AboutAddress bool
	// Untried is set, with Retryable, if this Send ends without an answer about the delivery, and its provider has
	// certainly not accepted it: the relay sends the message again, and counts no attempt.
	Untried bool
}

// Sender is a provider client. It is safe for concurrent use.
type Sender interface {
	// MaxBatch returns the maximum number of deliveries per Send, at least 1.
	MaxBatch() int
	// Send calls the provider and returns one result per delivery, in order.
	Send(ctx context.Context, batch []Delivery) []Result
}

// ReceiptReader is a Sender whose results may be available later.
type ReceiptReader interface {
	// Receipts returns the results of up to MaxBatch receipts. A known result is Accepted, Permanent or
	// InvalidAddress. A result that is not available, for any reason, is Pending.
	Receipts(ctx context.Context, receipts []string) []Result
}
