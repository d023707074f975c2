package main

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/compose"
	"github.com/belfryhq/belfry/outbox/relay"
	"github.com/belfryhq/belfry/outbox/sender"
)

const (
	messageSpeed = "messages/s"
	// calls is the sender's concurrency: it does nothing, so the relay is the limit.
	calls = 1000
)

// provider is a sender's client: it accepts everything at once, or never answers.
type provider struct{ hangs bool }

// MaxBatch implements sender.Sender.
func (provider) MaxBatch() int { return 1 }

// Send implements sender.Sender.
func (p provider) Send(ctx context.Context, batch []sender.Delivery) []sender.Result {
	answer := sender.Result{Class: sender.Accepted}
	if p.hangs {
		<-ctx.Done()
		answer = sender.Result{Class: sender.Unknown, Code: "timeout"}
	}
	return slices.Repeat([]sender.Result{answer}, len(batch))
}

// newRelay is a relay with one sender and default settings, but so many calls at once.
func (e *env) newRelay(pool *pgxpool.Pool, client sender.Sender, calls int, options ...relay.Option) *relay.Relay {
	composer, err := compose.New(pool, e.store, compose.DefaultConfig(), nil)
	e.check(err)
	to := relay.DefaultSenderConfig()
	to.Name, to.Medium, to.Concurrency = "bench", "push", calls
	r, err := relay.New(pool, composer, relay.DefaultConfig(), []relay.Sender{{SenderConfig: to, Client: client}}, options...)
	e.check(err)
	return r
}

// delivery is what one round of delivering came to.
type delivery struct {
	messages int64
	speed    float64   // messages a second
	claims   []float64 // in ms, in their order
}

// deliver writes the messages of a number of push jobs to everyone and has a relay deliver
// them. before is called when they are written.
func (e *env) deliver(ctx context.Context, jobs int, before func()) (d delivery) {
	d.messages = e.writeMessages(ctx, jobs, before)
	seen := &watch{}
	pool := e.connect(ctx, e.dsn, application, seen)
	defer pool.Close()
	r := e.newRelay(pool, provider{}, calls)
	began := time.Now()
	running, stop := e.start(ctx, r.Run)
	for alive := true; alive && r.Stats().Sent < d.messages; {
		alive = lifecycle.Pause(running, 2*time.Millisecond) == nil
	}
	d.speed = perSecond(d.messages, time.Since(began))
	stop()
	d.claims = seen.claims
	var sent int64
	e.look(ctx, e.pool, queries.messagesSent, nil, &sent, &d.messages)
	e.demand(sent == d.messages, "the relay sent %d of %d messages", sent, d.messages)
	return d
}

// writeMessages writes the messages of a number of push jobs to everyone, and returns how
// many they are. before is called when they are written, before the ground is level.
func (e *env) writeMessages(ctx context.Context, jobs int, before func()) (messages int64) {
	e.do(ctx, e.pool, queries.outboxEmpty, queries.jobsEmpty)
	for range jobs {
		e.enqueue(ctx, everyone(outbox.TypePush))
	}
	e.runDue(ctx, ungoverned())
	e.do(ctx, e.pool, queries.messagesVacuum)
	before()
	e.checkpoint(ctx)
	var sent int64
	e.look(ctx, e.pool, queries.messagesSent, nil, &sent, &messages)
	return messages
}

// delivered is the speed of one job's delivery.
func (e *env) delivered(ctx context.Context) float64 { return e.deliver(ctx, 1, func() {}).speed }

// claims compares claims at the beginning and at the end, with and without a transaction that
// holds back vacuum.
func claims(ctx context.Context, e *env, r *result) {
	free := e.deliver(ctx, 2, func() {})
	tx, err := e.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	e.check(err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	held := e.deliver(ctx, 2, func() {
		_, err := tx.Exec(ctx, queries.snapshotTake)
		e.check(err)
	})
	e.demand(len(free.claims) > 0 && len(held.claims) > 0, "no claim was seen")
	figures := func(name, label string, d delivery) (last99 float64) {
		first, last := tenths(d.claims)
		first99, last99 := percentile(first, 99), percentile(last, 99)
		r.figure(name+"_speed", label+": speed", d.speed, messageSpeed)
		r.figure(name+"_first_p50", label+": claim p50, first tenth", percentile(first, 50), unitMS)
		r.figure(name+"_last_p50", label+": claim p50, last tenth", percentile(last, 50), unitMS)
		r.figure(name+"_first_p99", label+": claim p99, first tenth", first99, unitMS)
		r.figure(name+"_last_p99", label+": claim p99, last tenth", last99, unitMS)
		r.figure(name+"_p99_ratio", label+": claim p99, last to first tenth", last99/first99, unitRatio, atMost(1.5))
		return last99
	}
	without := figures("free", "nothing else", free)
	with := figures("held", "vacuum held back", held)
	r.figure("held_to_free", "claim p99 of the last tenth, held back to not", with/without, unitRatio, atMost(1.5))
	r.note("%d messages each, %d and %d claims of up to %d.", free.messages, len(free.claims), len(held.claims), relay.DefaultConfig().Batch)
}

// stock compares the relay on the server that everything else is measured on with the relay
// on one that is tuned as belfry's own is, in turns.
func stock(ctx context.Context, e *env, r *result) {
	if e.databaseURL != "" {
		r.note("Skipped: it compares two private servers; leave --database-url out.")
		return
	}
	tuned := &env{config: e.config, failure: e.failure, size: e.size}
	defer tuned.close()
	tuned.open(ctx, false)
	speeds := e.inTurns(messageSpeed, turn{"stock", func() float64 { return e.delivered(ctx) }},
		turn{"tuned", func() float64 { return tuned.delivered(ctx) }})
	r.figure("stock_speed", "stock", median(speeds[0]), messageSpeed)
	r.figure("tuned_speed", "tuned", median(speeds[1]), messageSpeed)
	r.figure("ratio", "ratio", ratio(speeds[0], speeds[1]), unitRatio, atLeast(0.95))
	r.note("Stock: PostgreSQL's defaults, jit on. Tuned: what belfry sets for its private server (internal/pgserver). Both durable.")
}

// watch counts the statements of a pool and times a relay's claims.
type watch struct {
	statements atomic.Int64
	mu         sync.Mutex
	claims     []float64 // in ms, in their order
}

type batchKey struct{}

// batch is one in progress.
type batch struct {
	began   time.Time
	claimed int64 // messages
}

// TraceQueryStart implements pgx.QueryTracer.
func (w *watch) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	w.statements.Add(1)
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (*watch) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TraceBatchStart implements pgx.BatchTracer.
func (*watch) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return context.WithValue(ctx, batchKey{}, &batch{began: time.Now()})
}

// TraceBatchQuery implements pgx.BatchTracer. Claims are sent as batches.
func (w *watch) TraceBatchQuery(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	w.statements.Add(1)
	//sql:allow what a claim is known by
	if b, ok := ctx.Value(batchKey{}).(*batch); ok && strings.Contains(data.SQL, "INSERT INTO belfry.leases") && strings.Contains(data.SQL, "m.job_id > 0") {
		b.claimed += data.CommandTag.RowsAffected()
	}
}

// TraceBatchEnd implements pgx.BatchTracer. Claims that found nothing are not timed.
func (w *watch) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchEndData) {
	if b, ok := ctx.Value(batchKey{}).(*batch); ok && b.claimed > 0 {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.claims = append(w.claims, milliseconds(time.Since(b.began)))
	}
}
