package main

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/internal/redisdb"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/relay"
	"github.com/belfryhq/belfry/outbox/sender"
)

// counter is a client that accepts everything, counts its calls and says when they come.
type counter struct {
	calls atomic.Int64
	at    chan time.Time // nil: nobody asks
}

// MaxBatch implements sender.Sender.
func (*counter) MaxBatch() int { return 1 }

// Send implements sender.Sender.
func (s *counter) Send(ctx context.Context, batch []sender.Delivery) []sender.Result {
	s.calls.Add(int64(len(batch)))
	if s.at != nil {
		select {
		case s.at <- time.Now():
		case <-ctx.Done():
		}
	}
	return slices.Repeat([]sender.Result{{Class: sender.Accepted}}, len(batch))
}

// due times one message after the other, each of which falls due while nothing else is to be
// done, from its due time to the call. The server's clock is compared with this one.
func due(ctx context.Context, e *env, r *result) {
	e.each(ctx, r, func(t transport, options []relay.Option, _ relay.Broker) {
		e.do(ctx, e.pool, queries.outboxEmpty, queries.jobsEmpty)
		client := &counter{at: make(chan time.Time)}
		pool := e.connect(ctx, e.dsn, application, nil)
		defer pool.Close()
		running, stop := e.start(ctx, e.newRelay(pool, client, calls, options...).Run)
		defer stop()
		var took []float64
		var to []int64
		e.look(ctx, e.pool, queries.channelSample, map[string]any{"limit": e.enqueues + 1}, &to)
		for n, channel := range to {
			var at time.Time
			e.look(ctx, e.pool, queries.activityInsertLater, map[string]any{"channel": channel, "seconds": 0.05 + rand.Float64()/10}, &at)
			select {
			case called := <-client.at:
				if n > 0 { // the first connects, and prepares statements
					took = append(took, milliseconds(called.Sub(at)))
				}
			case <-running.Done():
				e.check(context.Cause(running))
			}
		}
		r.figure(t.name+"_p50", t.name+", p50", percentile(took, 50), unitMS)
		r.figure(t.name+"_p99", t.name+", p99", percentile(took, 99), unitMS, atMost(20))
	})
	r.note("%d activities, one at a time, each due 50 to 150 ms after its commit.", e.enqueues)
}

// each does something with each transport that there is here, on servers of its own.
func (e *env) each(ctx context.Context, r *result, do func(t transport, options []relay.Option, b relay.Broker)) {
	on := servers{Redis: e.redis(ctx)}
	if on.Redis == "" {
		r.note("Skipped: no redis-server or valkey-server is installed.")
		return
	}
	if on.NATS = e.nats(ctx); on.NATS == nil {
		r.note("Without jetstream: nats-server cannot be built here (go tool -modfile=tools/go.mod nats-server).")
	}
	for _, t := range on.transports() {
		func() {
			defer e.within(t.name)
			if t.open == nil {
				do(t, nil, nil)
				return
			}
			b := e.openBroker(ctx, t, on)
			defer func() { e.check(b.Close()) }()
			do(t, []relay.Option{relay.WithBroker(b, relay.RequeueAfter)}, b)
		}()
	}
}

// openBroker returns one that is ready and empty. A cluster without a leader answers nothing,
// and has none for some seconds after its servers have started: it is asked until it has.
func (e *env) openBroker(ctx context.Context, t transport, on servers) relay.Broker {
	b, err := t.open(on)
	e.check(err)
	for {
		if err = b.Empty(ctx); err == nil {
			_, err = b.Check(ctx)
		}
		if err == nil {
			return b
		}
		if lifecycle.Pause(ctx, 100*time.Millisecond) != nil {
			e.check(err)
		}
	}
}

// loss empties the Redis server of a carrier that has all messages of a push job, first while
// nobody delivers them, to time how soon it has all of them again, and then when a relay has
// sent a tenth. Nothing is lost; what is called for twice is counted.
func loss(ctx context.Context, e *env, r *result) {
	on := servers{Redis: e.redis(ctx)}
	if on.Redis == "" {
		r.note("Skipped: no redis-server or valkey-server is installed.")
		return
	}
	server, err := redisdb.Open(on.redis(), "the bench's Redis", 1)
	e.check(err)
	defer func() { e.check(server.Close()) }()
	for _, t := range on.transports() {
		if t.open == nil {
			continue
		}
		forgotten := e.forget(ctx, t, on, server)
		r.figure(t.name+"_rebuild", t.name+", pushed again, nobody delivers", forgotten.rebuilt, messageSpeed)
		r.figure(t.name+"_speed", t.name+", delivered while it is rebuilt and after", forgotten.speed, messageSpeed)
		r.figure(t.name+"_duplicates", t.name+", calls more than messages", float64(forgotten.duplicates), unitCount)
	}
	r.note("FLUSHALL with all messages queued, and again when a tenth of them is sent; every message is SENT in the end.")
}

// forgotten is what a loss came to.
type forgotten struct {
	rebuilt, speed float64
	duplicates     int64
}

func (e *env) forget(ctx context.Context, t transport, on servers, server *redisdb.DB) (f forgotten) {
	defer e.within(t.name)
	messages := e.writeMessages(ctx, 1, func() {})
	b := e.openBroker(ctx, t, on)
	defer func() { e.check(b.Close()) }()
	config := relay.DefaultConfig()
	config.Name = "bench"
	_, stop := e.start(ctx, func(ctx context.Context) error {
		relay.Dispatch(ctx, relay.DispatchOptions{
			Ledger: outbox.NewLedger(e.pool, config.Name, config.Lease), To: b.Carrier(config.Name, nil),
			Config: func() relay.Config { return config }, RequeueAfter: relay.RequeueAfter,
		})
		return nil
	})
	for unqueued := true; unqueued; e.check(lifecycle.Pause(ctx, 100*time.Millisecond)) {
		e.look(ctx, e.pool, queries.messagesUnqueued, nil, &unqueued)
	}
	e.untilInside(ctx, b, messages)
	began := time.Now()
	e.check(server.Do.FlushAll(ctx).Err())
	e.untilInside(ctx, b, messages)
	f.rebuilt = perSecond(messages, time.Since(began))
	stop()

	client := new(counter)
	pool := e.connect(ctx, e.dsn, application, nil)
	defer pool.Close()
	working := e.newRelay(pool, client, calls, relay.WithBroker(b, relay.RequeueAfter))
	running, stop := e.start(ctx, working.Run)
	e.untilSent(running, working, messages/10)
	began = time.Now()
	e.check(server.Do.FlushAll(ctx).Err())
	e.untilSent(running, working, messages)
	f.speed = perSecond(messages-messages/10, time.Since(began))
	stop()
	var sent, all int64
	e.look(ctx, e.pool, queries.messagesSent, nil, &sent, &all)
	e.demand(sent == messages && all == messages, "%d of %d messages are sent", sent, messages)
	f.duplicates = client.calls.Load() - messages
	return f
}

// untilInside waits until a carrier has so many copies.
func (e *env) untilInside(ctx context.Context, b relay.Broker, messages int64) {
	for inside := int64(0); inside < messages; e.check(lifecycle.Pause(ctx, 10*time.Millisecond)) {
		queues, err := b.Queues(ctx)
		e.check(err)
		inside = 0
		for _, q := range queues {
			inside += q.Ready + q.Later + q.Taken
		}
	}
}

// untilSent waits until a relay has sent so many.
func (e *env) untilSent(running context.Context, r *relay.Relay, n int64) {
	for r.Stats().Sent < n {
		e.check(lifecycle.Pause(running, 2*time.Millisecond))
	}
}
