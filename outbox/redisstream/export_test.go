package redisstream

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belfryhq/belfry/outbox/relay"
)

// Hurry has a broker do by the clock what it does, but more often. It is called before the first
// Carrier.
func (b *Broker) Hurry(tick, alive, idle time.Duration) {
	b.pace.tick, b.pace.alive, b.pace.idle = tick, alive, idle
}

// Client is the broker's own for commands.
func (b *Broker) Client() redis.UniversalClient { return b.db.Do }

// Keys are those of the bulk queue.
type Keys struct{ Stream, State, Waiting, Returned, Consumers, Dead string }

// Keys are those of the bulk queue.
func (b *Broker) Keys() Keys {
	q := b.queues[bulk]
	return Keys{q.stream, q.state, q.waiting, q.returned, q.consumers, q.dead}
}

// Beat shows that a consumer of the bulk queue lives, and returns who does.
func (b *Broker) Beat(ctx context.Context, consumer string) ([]string, error) {
	return b.beat(ctx, bulk, consumer)
}

// Reclaim takes over what is idle in the bulk queue as a tick does, with those alive.
func Reclaim(ctx context.Context, of relay.Carrier, alive []string) (int, error) {
	return of.(*carrier).reclaim(ctx, bulk, alive)
}

// Chosen is who takes over an idle entry.
func Chosen(id string, deliveries int64, alive []string) string { return chosen(id, deliveries, alive) }

// Text is a copy as the stream has it.
var Text = text

// Block has each take wait so long for entries.
func (b *Broker) Block(d time.Duration) { b.pace.block = d }
