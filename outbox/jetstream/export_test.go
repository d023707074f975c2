package jetstream

import (
	"context"

	"github.com/belfryhq/belfry/outbox/relay"
)

// Ready counts the copies that no worker has taken out.
func (b *Broker) Ready(ctx context.Context) (n int, err error) {
	for _, q := range queues() {
		s, err := b.lines[q].status(ctx)
		if err != nil {
			return 0, err
		}
		n += int(s.Ready)
	}
	return n, nil
}

// Stream names the stream of a queue.
func (b *Broker) Stream(q relay.Queue) string { return b.lines[q].stream }
