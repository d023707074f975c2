package sender

import (
	"context"
	"io"
)

// OneByOne is a Sender whose provider takes one message per call.
type OneByOne struct {
	// Closer ends the connections that are idle. Calls in progress go on.
	io.Closer
	// Deliver calls the provider once.
	Deliver func(context.Context, Delivery) Result
}

// MaxBatch implements Sender.
func (o *OneByOne) MaxBatch() int { return 1 }

// Send implements Sender.
func (o *OneByOne) Send(ctx context.Context, batch []Delivery) []Result {
	results := make([]Result, len(batch))
	for i, d := range batch {
		results[i] = o.Deliver(ctx, d)
	}
	return results
}
