package relay_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/outboxtest"
	"github.com/belfryhq/belfry/outbox/relay"
	"github.com/belfryhq/belfry/outbox/sender"
)

// I13: the texts of messages in flight have a bound in bytes, however many jobs and activities they are
// of, and all are delivered.
func TestRelay_HoldsTextsUpToABound(t *testing.T) {
	t.Parallel()
	const jobs, activities, size, limit = 40, 40, 10_000, 100_000
	for name, run := range map[string]func(*testing.T, *bundle, relay.Sender, ...relay.Option) *relay.Relay{
		"run": func(t *testing.T, b *bundle, to relay.Sender, options ...relay.Option) *relay.Relay {
			r := b.start(t, config("r"), []relay.Sender{to}, options...)
			b.Delivered(t)
			r.end(t)
			return r.Relay
		},
		"carrier": func(t *testing.T, b *bundle, to relay.Sender, options ...relay.Option) *relay.Relay {
			r := b.start(t, config("r"), []relay.Sender{to}, append(options, on(outboxtest.NewMemory(1000), time.Hour))...)
			b.Delivered(t)
			r.end(t)
			return r.Relay
		},
		"drain": func(t *testing.T, b *bundle, to relay.Sender, options ...relay.Option) *relay.Relay {
			r := b.relay(t, config("r"), []relay.Sender{to}, options...)
			_, err := r.Drain(t.Context())
			require.NoError(t, err)
			return r
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, activities)
			for range jobs {
				b.job(t, "default", 1, 1)
			}
			b.past(t, `UPDATE belfry.jobs SET body = repeat('x', $1)`, size)
			b.exec(t, `INSERT INTO belfry.activities (channel_id, title, body) SELECT g, 'a like', repeat('y', $2) FROM generate_series(1, $1) g`, activities, size)
			var of atomic.Pointer[relay.Relay]
			var most atomic.Int64
			s := &script{answer: func(context.Context, sender.Delivery) sender.Result {
				<-time.After(5 * time.Millisecond) // others are claimed meanwhile
				for r := of.Load(); r != nil; {
					now, held := most.Load(), r.Content()
					if held <= now || most.CompareAndSwap(now, held) {
						break
					}
				}
				return sender.Result{Class: sender.Accepted}
			}}
			r := run(t, b, push(s), relay.WithMaxContent(limit), func(r *relay.Relay) { of.Store(r) })
			require.Equal(t, map[string]int{"SENT": jobs + activities}, b.statuses(t))
			require.GreaterOrEqual(t, most.Load(), int64(size))
			require.LessOrEqual(t, most.Load(), int64(limit+2*(size+100)), "each of two composers may exceed it by one message")
			require.Zero(t, r.Content())
			for _, c := range s.all() {
				require.Len(t, c.Body, size)
			}
		})
	}
}
