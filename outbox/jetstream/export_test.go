package jetstream

import (
	"context"
	"time"

	"github.com/belfryhq/belfry/outbox"
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

// Stream returns the name of a queue's stream.
func (b *Broker) Stream(q outbox.Queue) string { return b.lines[q].stream }

// Wait sets the timeout and the heartbeat interval of pulls.
func (b *Broker) Wait(pull, heartbeat time.Duration) { b.pace.pull, b.pace.heartbeat = pull, heartbeat }

// Hurry shortens the timeout of pulls, and the wait for copies that are ready to twice the timeout.
func (b *Broker) Hurry(pull time.Duration) {
	b.pace.pull, b.pace.heartbeat, b.pace.silent = pull, pull/4, 2*pull
}

// Refuse acts as after a push that the leader refuses, although the count is unchanged.
func (b *Broker) Refuse(ctx context.Context, q outbox.Queue) error {
	l := b.lines[q]
	l.pushing.Lock()
	defer l.pushing.Unlock()
	return l.with(ctx, func(ctx context.Context, to *opened) error {
		k, err := l.read(ctx, to)
		if err == nil {
			l.replaceLeader(ctx, to, k.seq)
		}
		return err
	})
}
