// Package sender says what a provider client is: it takes deliveries, calls its
// provider once for each or once for all, and says of each what became of it. It keeps
// no state of messages, retries nothing and decides nothing: the relay does.
//
//	Send: accepted ─────────────► the message is SENT
//	      pending, with a receipt ► the result comes later, by Receipts
//	      retryable ──────────────► surely not accepted; may be tried again
//	      unknown ────────────────► may have been accepted: the call was cut short
//	      permanent ──────────────► surely not accepted, and never will be
//	      invalid address ────────► as permanent, and the provider says that the address is no good
//
// # Rules for a client
//
//  1. unknown whenever the provider may have taken the message: the request may have
//     gone out, and no answer came that says otherwise. retryable only when it surely
//     did not: no connection, or an answer that says so.
//  2. Every attempt of one message by one medium carries the same Delivery.Key, sent
//     where the provider has a place for it.
//  3. A call ends with its context. What it reads is bounded.
//  4. Never an address, a secret or content in an error text.
//  5. invalid address only for a provider's answer about that address. It is recorded
//     permanently. An answer about the sender, its credentials, its reputation or the content is
//     permanent or retryable, and so is a client's own refusal (Result.Refusal).
package sender

import (
	"context"
	"encoding/json"
	"time"
)

// Class says what became of one delivery.
type Class string

// The classes. The zero value is none and counts as Unknown.
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

// The refusals. The empty text means that the client refused nothing: the result is that of
// a call, or of the attempt to make it.
const (
	// RefusedAddress is a refusal of one channel's address, such as a browser without a
	// subscription. It tells nothing of the provider, the sender or the job.
	RefusedAddress Refusal = "address"
	// RefusedContent is a refusal of a message that the provider would not take, such as one
	// above its size limit, or that the settings cannot express.
	RefusedContent Refusal = "content"
)

// Delivery is one message to one address by one medium.
type Delivery struct {
	// Key is the idempotency key, a UUID in lower-case text, the same in every attempt.
	Key        string
	JobID      int64 // negative: an activity
	ChannelID  int64
	ExternalID string // the service's own user id
	Category   string
	Medium     string
	Platform   string
	Locale     string // of the content, "" for the default
	// Address is the value of the channel's addresses for this medium: a text, or for
	// one that is a JSON object, as a Web Push subscription, its JSON.
	Address string
	Title   string
	Body    string
	Data    json.RawMessage // a JSON object, never empty
	Attempt int             // from 1, of this medium
	// UnsubscribeURL is where the recipient opts out of the category by the medium; "": there
	// is no such link.
	UnsubscribeURL string
}

// Result is what became of one delivery.
type Result struct {
	Class Class
	// Code is the provider's short code: an HTTP status, an error name. At most 100
	// characters are kept.
	Code string
	// Detail is for people, without addresses and secrets. At most 1,000 characters are
	// kept.
	Detail string
	// RetryAfter is how long the provider asked to wait, from now; zero: it did not.
	RetryAfter time.Duration
	// Receipt is what the provider calls this message: required with Pending, kept for
	// support with Accepted.
	Receipt string
	// Refusal is set, with Permanent, when the client refused the delivery itself.
	Refusal Refusal
}

// Sender is a provider client. It is safe for concurrent use.
type Sender interface {
	// MaxBatch is how many deliveries one Send takes, at least 1.
	MaxBatch() int
	// Send calls the provider and returns one result per delivery, in order.
	Send(ctx context.Context, batch []Delivery) []Result
}

// ReceiptReader is a Sender whose results may come later.
type ReceiptReader interface {
	// Receipts asks for the results of receipts, at most MaxBatch of them. Each result
	// is Accepted, Permanent or InvalidAddress when it is known, and Pending while it is
	// not, whatever stood in the way of knowing.
	Receipts(ctx context.Context, receipts []string) []Result
}
