package redisstream

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belfryhq/belfry/outbox"
)

// Hurry shortens the broker's intervals. It must be called before the first Carrier.
func (b *Broker) Hurry(tick, alive, idle time.Duration) {
	b.pace.tick, b.pace.alive, b.pace.idle = tick, alive, idle
}

// Client returns the broker's client for commands.
func (b *Broker) Client() redis.UniversalClient { return b.db.Do }

// Keys are the keys of the bulk queue.
type Keys struct{ Stream, State, Waiting, Returned, Consumers, Dead string }

// Keys returns the keys of the bulk queue.
func (b *Broker) Keys() Keys {
	q := b.queues[bulk]
	return Keys{q.stream, q.state, q.waiting, q.returned, q.consumers, q.dead}
}

// Heartbeat sends a heartbeat of a consumer of the bulk queue and returns the live consumers.
func (b *Broker) Heartbeat(ctx context.Context, consumer string) ([]string, error) {
	return b.heartbeat(ctx, bulk, consumer)
}

// Reclaim takes over idle entries of the bulk queue, given the live consumers.
func Reclaim(ctx context.Context, of outbox.Carrier, alive []string) (int, error) {
	return of.(*carrier).reclaim(ctx, bulk, alive)
}

// Assignee returns the consumer that takes over an idle entry.
func Assignee(id string, deliveries int64, alive []string) string {
	return assignee(id, deliveries, alive)
}

// Text encodes a copy for the stream.
var Text = text

// Block sets the timeout of blocking reads.
func (b *Broker) Block(d time.Duration) { b.pace.block = d }
