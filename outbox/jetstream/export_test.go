package jetstream

import (
	"context"
	"time"

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

// Wait has its pulls wait for so long, and be heard of as often as that.
func (b *Broker) Wait(pull, heartbeat time.Duration) { b.pace.pull, b.pace.heartbeat = pull, heartbeat }

// Hurry has its pulls wait for so long at most, and for copies that are ready twice as long.
func (b *Broker) Hurry(pull time.Duration) {
	b.pace.pull, b.pace.heartbeat, b.pace.silent = pull, pull/4, 2*pull
}
