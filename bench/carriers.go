package main

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"golang.org/x/sync/errgroup"

	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/internal/redisdb"
	"github.com/belfryhq/belfry/outbox/jetstream"
	"github.com/belfryhq/belfry/outbox/redislist"
	"github.com/belfryhq/belfry/outbox/redisstream"
	"github.com/belfryhq/belfry/outbox/relay"
)

// transport is what relays receive their messages from.
type transport struct {
	name string
	// open opens the broker; nil: PostgreSQL itself.
	open func(on servers) (relay.Broker, error)
	// cluster: its servers need machines of their own, so that it has no goals on one.
	cluster bool
}

// servers are those of carriers, and part of what a relay process is told.
type servers struct {
	Redis string   `json:"redis,omitempty"` // "": none is installed
	NATS  []string `json:"nats,omitempty"`  // URLs
}

// redis is how to reach the Redis server.
func (on servers) redis() redisdb.Config {
	c := redisdb.DefaultConfig()
	c.URL = "redis://" + on.Redis
	return c
}

// transports are those that carriers compares on these servers, PostgreSQL first.
func (on servers) transports() []transport {
	const queued = 1_000_000 // as belfry's configuration has it
	lease := relay.DefaultConfig().Lease
	all := []transport{
		{name: "postgres"},
		{name: "redislist", open: func(on servers) (relay.Broker, error) {
			return redislist.New(on.redis(), redislist.Options{MaxQueued: queued})
		}},
		{name: "redisstream", open: func(on servers) (relay.Broker, error) {
			return redisstream.New(on.redis(), redisstream.Options{MaxQueued: queued, Lease: lease})
		}},
	}
	if len(on.NATS) > 0 {
		all = append(all, transport{name: "jetstream", cluster: true, open: func(on servers) (relay.Broker, error) {
			c := jetstream.DefaultConfig()
			c.URLs, c.Replicas = on.NATS, len(on.NATS)
			return jetstream.New(c, jetstream.Options{MaxQueued: queued, Lease: lease})
		}})
	}
	return all
}

// processes are how many relay processes deliver at the same time.
func processes() []int { return []int{1, 2, 4} }

func processesOf(n int) string {
	if n == 1 {
		return "1 process"
	}
	return strconv.Itoa(n) + " processes"
}

// asynqShare is the part of a round's messages that asynq gets as tasks: it is slower, and its
// speed is that of each task.
const asynqShare = 10

// carriers compares the transports, each with some relay processes, with asynq on the same
// Redis server.
func carriers(ctx context.Context, e *env, r *result) {
	on := servers{Redis: e.redis(ctx)}
	if on.Redis == "" {
		r.note("Skipped: no redis-server or valkey-server is installed.")
		return
	}
	if on.NATS = e.nats(ctx); on.NATS == nil {
		r.note("Without jetstream: nats-server cannot be built here (go tool -modfile=tools/go.mod nats-server).")
	}
	transports := on.transports()
	var turns []turn
	for _, t := range transports {
		for _, n := range processes() {
			turns = append(turns, turn{fmt.Sprintf("%s %d", t.name, n), func() float64 { return e.deliverApart(ctx, t, n, on) }})
		}
	}
	workers := []int{10, 100}
	for _, n := range workers {
		turns = append(turns, turn{fmt.Sprintf("asynq %d", n), func() float64 { return e.asynqRound(ctx, on.Redis, n) }})
	}
	speeds := e.inTurns("/s", turns...)
	at := func(t, p int) []float64 { return speeds[t*len(processes())+p] }
	rival := speeds[len(speeds)-1]
	if ten := speeds[len(speeds)-2]; median(ten) > median(rival) {
		rival = ten
	}
	for i, t := range transports {
		for p, n := range processes() {
			r.figure(fmt.Sprintf("%s_%d", t.name, n), t.name+", "+processesOf(n), median(at(i, p)), messageSpeed)
		}
		if t.open == nil {
			continue
		}
		var one, several []goal
		if !t.cluster {
			one, several = []goal{atLeast(0.7)}, []goal{atLeast(1)}
			r.figure(t.name+"_to_asynq", t.name+", 1 process, to asynq", ratio(at(i, 0), rival), unitRatio, atLeast(4))
		}
		r.figure(t.name+"_to_postgres", t.name+" to postgres, 1 process", ratio(at(i, 0), at(0, 0)), unitRatio, one...)
		for p, n := range processes()[1:] {
			r.figure(fmt.Sprintf("%s_to_postgres_%d", t.name, n), t.name+" to postgres, "+processesOf(n), ratio(at(i, p+1), at(0, p+1)), unitRatio, several...)
		}
	}
	for _, t := range transports {
		if t.open != nil && !t.cluster {
			r.figure(t.name+"_idle", t.name+", statements a second while nothing is due", e.idleOn(ctx, t, on), "/s", atMost(1))
		}
	}
	for i, n := range workers {
		r.figure(fmt.Sprintf("asynq_%d", n), fmt.Sprintf("asynq, %d workers", n), median(speeds[len(speeds)-len(workers)+i]), "tasks/s")
	}
	r.note("belfry: the messages of one push job, in PostgreSQL with fsync on, composed from their channels, no-op sender; timed from the go to relay processes that wait for it until they have sent all.")
	r.note("asynq keeps its state in Redis only, and records no attempt before it is made: no-op tasks, a %dth as many, enqueued beforehand, timed from Start to the last one handled. Redis writes an append-only file, fsync every second.", asynqShare)
}

// deliverApart writes the messages of a push job to everyone and has relay processes deliver
// them. It returns their speed.
func (e *env) deliverApart(ctx context.Context, t transport, n int, on servers) float64 {
	defer e.within(t.name + ", " + processesOf(n))
	if t.open != nil {
		defer func(b relay.Broker) { e.check(b.Close()) }(e.openBroker(ctx, t, on))
	}
	messages := e.writeMessages(ctx, 1, func() {})
	ctx, cancel := context.WithCancel(ctx)
	var children []*relayProcess
	defer func() {
		cancel()
		for _, c := range children {
			_ = c.cmd.Wait() // it was killed, or has ended before
		}
	}()
	for range n {
		children = append(children, e.startRelay(ctx, childSpec{DSN: e.dsn, Relation: "belfry.channels", Transport: t.name, Servers: on}))
	}
	for _, c := range children {
		e.check(c.ready())
	}
	var sent, took atomic.Int64
	enough := make(chan struct{})
	began := time.Now()
	var running errgroup.Group
	for _, c := range children {
		running.Go(func() error {
			err := c.run(enough, func(more int64) {
				if sent.Add(more) >= messages && took.CompareAndSwap(0, int64(time.Since(began))) {
					close(enough)
				}
			})
			if err != nil {
				cancel() // the others
			}
			return err
		})
	}
	e.check(running.Wait())
	var inBase, all int64
	e.look(ctx, e.pool, queries.messagesSent, nil, &inBase, &all)
	e.demand(inBase == all && all == messages, "the relays sent %d of %d messages", inBase, all)
	return perSecond(messages, time.Duration(took.Load()))
}

// idleOn is how many statements a second one relay on a carrier asks PostgreSQL, with nothing
// to do: BEGIN, COMMIT and settings of a transaction counted.
func (e *env) idleOn(ctx context.Context, t transport, on servers) float64 {
	defer e.within(t.name + ", idle")
	e.do(ctx, e.pool, queries.outboxEmpty, queries.jobsEmpty)
	b, err := t.open(on)
	e.check(err)
	defer func() { e.check(b.Close()) }()
	asked := &watch{}
	pool := e.connect(ctx, e.dsn, application, asked)
	defer pool.Close()
	_, stop := e.start(ctx, e.newRelay(pool, provider{}, calls, relay.WithBroker(b, relay.RequeueAfter)).Run)
	defer stop()
	before, during := e.idleTimes()
	e.check(lifecycle.Pause(ctx, before))
	n, began := asked.statements.Load(), time.Now()
	e.check(lifecycle.Pause(ctx, during))
	return float64(asked.statements.Load()-n) / time.Since(began).Seconds()
}

// asynqRound has asynq work no-op tasks on the Redis server and returns its speed.
func (e *env) asynqRound(ctx context.Context, addr string, workers int) float64 {
	defer e.within("asynq")
	to := asynq.RedisClientOpt{Addr: addr}
	client := asynq.NewClient(to)
	tasks := max(e.messages/asynqShare, 1)
	const clients = 16
	enqueuing, ctx2 := errgroup.WithContext(ctx)
	for c := range int64(clients) {
		enqueuing.Go(func() error {
			for i := c; i < tasks; i += clients {
				if _, err := client.EnqueueContext(ctx2, asynq.NewTask("noop", strconv.AppendInt(nil, i, 10))); err != nil {
					return err
				}
			}
			return nil
		})
	}
	e.check(enqueuing.Wait())
	e.check(client.Close())
	e.checkpoint(ctx)
	var handled atomic.Int64
	done := make(chan struct{})
	server := asynq.NewServer(to, asynq.Config{Concurrency: workers, LogLevel: asynq.FatalLevel})
	began := time.Now()
	e.check(server.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		if handled.Add(1) == tasks {
			close(done)
		}
		return nil
	})))
	defer server.Shutdown()
	select {
	case <-done:
	case <-ctx.Done():
		e.check(context.Cause(ctx))
	}
	return perSecond(tasks, time.Since(began))
}

// transport finds one by its name.
func (on servers) transport(name string) (transport, error) {
	for _, t := range on.transports() {
		if t.name == name {
			return t, nil
		}
	}
	return transport{}, fmt.Errorf("there is no transport %q here", name)
}
