package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/internal/redisdb"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/jetstream"
	"github.com/belfryhq/belfry/outbox/redislist"
	"github.com/belfryhq/belfry/outbox/redisstream"
	"github.com/belfryhq/belfry/outbox/relay"
)

// servers are the brokers' servers.
type servers struct {
	Redis redisdb.Config
	NATS  []string
}

// startServers starts Redis, with an append-only file like its users have, and a
// cluster of three NATS servers.
func (e *env) startServers() (on servers) {
	on.Redis = redisdb.DefaultConfig()
	on.Redis.URL = dbtest.StartRedis(e, "--appendonly", "yes").URL
	for _, s := range dbtest.StartNATS(e, 3) {
		on.NATS = append(on.NATS, s.URL)
	}
	return on
}

// transports are the names of the compared transports. PostgreSQL needs no broker.
var transports = []string{"postgres", "redislist", "redisstream", "jetstream"}

// brokers returns how to open each transport's broker.
func (on servers) brokers() map[string]func() (outbox.Broker, error) {
	const queued = 1_000_000 // like belfry's configuration
	lease := relay.DefaultConfig().Lease
	return map[string]func() (outbox.Broker, error){
		"redislist": func() (outbox.Broker, error) {
			return redislist.New(on.Redis, redislist.Options{MaxQueued: queued})
		},
		"redisstream": func() (outbox.Broker, error) {
			return redisstream.New(on.Redis, redisstream.Options{MaxQueued: queued, Lease: lease})
		},
		"jetstream": func() (outbox.Broker, error) {
			c := jetstream.DefaultConfig()
			c.URLs, c.Replicas = on.NATS, len(on.NATS)
			return jetstream.New(c, jetstream.Options{MaxQueued: queued, Lease: lease})
		},
	}
}

// openBroker returns an empty broker and its end; nil for PostgreSQL. A new cluster
// has no leader for some seconds.
func (e *env) openBroker(on servers, transport string) (broker outbox.Broker, closeBroker func()) {
	open := on.brokers()[transport]
	if open == nil {
		return nil, func() {}
	}
	broker, err := open()
	require.NoError(e, err)
	for {
		if err = broker.Empty(e.Context()); err == nil {
			_, err = broker.Check(e.Context())
		}
		if err == nil {
			return broker, func() { require.NoError(e, broker.Close()) }
		}
		if lifecycle.Pause(e.Context(), 100*time.Millisecond) != nil {
			require.NoError(e, err)
		}
	}
}

// carriers compares the transports, each with 1, 2 and 4 relay processes, with
// PostgreSQL alone and with asynq on the same Redis.
func (e *env) carriers() {
	on := e.startServers()
	type side struct {
		transport string
		processes int
	}
	var sides []side
	var measures []func() float64
	for _, processes := range []int{1, 2, 4} {
		for _, t := range transports {
			sides = append(sides, side{t, processes})
			measures = append(measures, func() float64 { return e.deliverApart(t, processes, on) })
		}
	}
	for _, workers := range []int{10, 100} {
		sides = append(sides, side{"asynq", workers})
		measures = append(measures, func() float64 { return e.asynqRound(on.Redis.URL, workers) })
	}
	speeds := make(map[side]float64)
	for i, speed := range sideBySide(measures...) {
		speeds[sides[i]] = speed
		e.report(speed, fmt.Sprintf("%s-%d/s", sides[i].transport, sides[i].processes))
	}
	asynq := max(speeds[side{"asynq", 10}], speeds[side{"asynq", 100}])
	for _, t := range transports[1:] {
		one, four := speeds[side{t, 1}]/speeds[side{"postgres", 1}], speeds[side{t, 4}]/speeds[side{"postgres", 4}]
		if t == "jetstream" { // its three servers need machines of their own
			e.report(one, t+"-to-postgres")
			e.report(four, t+"-to-postgres-4")
			continue
		}
		e.report(speeds[side{t, 1}]/asynq, t+"-to-asynq", atLeast(4))
		e.report(one, t+"-to-postgres", atLeast(0.7))
		e.report(four, t+"-to-postgres-4", atLeast(1))
	}
}

// deliverApart writes the messages of a push job to everyone, lets relay processes
// deliver them, and returns messages/s.
func (e *env) deliverApart(transport string, processes int, on servers) float64 {
	_, closeBroker := e.openBroker(on, transport)
	defer closeBroker()
	messages := e.writeMessages(1)
	ctx, cancel := context.WithCancel(e.Context())
	defer cancel()
	var children []*child
	for range processes {
		c := e.startChild(ctx, childSpec{DSN: e.dsn, Relation: "belfry.channels", Transport: transport, Servers: on})
		children = append(children, c)
	}
	for _, c := range children {
		_, ready := c.next()
		require.True(e, ready, "a relay process has ended")
	}
	var sent, took atomic.Int64
	began := time.Now()
	var running errgroup.Group
	for _, c := range children {
		running.Go(func() error {
			if _, err := fmt.Fprintln(c.in); err != nil {
				return err
			}
			for more, ok := c.next(); ok; more, ok = c.next() {
				if sent.Add(more) >= messages && took.CompareAndSwap(0, int64(time.Since(began))) {
					for _, c := range children {
						_ = c.in.Close() // they end
					}
				}
			}
			return c.cmd.Wait()
		})
	}
	require.NoError(e, running.Wait())
	e.requireSent(messages)
	return perSecond(messages, time.Duration(took.Load()))
}

// asynqRound enqueues tasks without work, a tenth as many as messages because asynq is
// slower, and returns tasks/s.
func (e *env) asynqRound(url string, workers int) float64 {
	to, err := asynq.ParseRedisURI(url)
	require.NoError(e, err)
	client := asynq.NewClient(to)
	tasks := e.active / 10
	var enqueuing errgroup.Group
	enqueuing.SetLimit(16)
	for i := range tasks {
		enqueuing.Go(func() error {
			_, err := client.EnqueueContext(e.Context(), asynq.NewTask("noop", strconv.AppendInt(nil, i, 10)))
			return err
		})
	}
	require.NoError(e, enqueuing.Wait())
	require.NoError(e, client.Close())
	e.checkpoint()
	var handled atomic.Int64
	done := make(chan struct{})
	server := asynq.NewServer(to, asynq.Config{Concurrency: workers, LogLevel: asynq.FatalLevel})
	defer server.Shutdown()
	began := time.Now()
	require.NoError(e, server.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		if handled.Add(1) == tasks {
			close(done)
		}
		return nil
	})))
	receive(e.Context(), e, done)
	return perSecond(tasks, time.Since(began))
}

// due measures a relay on each transport: its statements a second without work, and
// single messages from their due time to the provider's call.
func (e *env) due() {
	on := e.startServers()
	for _, t := range transports {
		e.run(t, func(e *env) {
			e.do(queries.outboxEmpty, queries.jobsEmpty)
			broker, closeBroker := e.openBroker(on, t)
			defer closeBroker()
			client := provider{called: make(chan time.Time)}
			counted := &tracer{}
			running, stop := e.start(newRelay(e.connect(e.dsn, counted), e.store, client, calls, broker).Run)
			defer stop()
			if broker != nil && t != "jetstream" {
				e.report(e.whileIdle(counted), "idle-statements/s", atMost(1))
			}
			var took []float64
			var to []int64
			e.read(queries.channelSample, pgx.StrictNamedArgs{"limit": size(200, 3) + 1}, &to)
			for n, channel := range to {
				var at time.Time
				e.read(queries.activityInsertLater, pgx.StrictNamedArgs{"channel": channel, "seconds": 0.05 + rand.Float64()/10}, &at)
				called := receive(running, e, client.called)
				if n > 0 { // the first connects and prepares statements
					took = append(took, milliseconds(called.Sub(at)))
				}
			}
			e.report(percentile(took, 50), "p50-ms")
			e.report(percentile(took, 99), "p99-ms", atMost(20))
		})
	}
}
