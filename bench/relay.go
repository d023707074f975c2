package main

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/outbox/compose"
	"github.com/belfryhq/belfry/outbox/relay"
	"github.com/belfryhq/belfry/outbox/sender"
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
	results := make([]sender.Result, len(batch))
	for i := range results {
		results[i] = answer
	}
	return results
}

// newRelay is a relay with one sender and default settings, but so many calls at once; 0:
// as many as by default.
func (e *env) newRelay(pool *pgxpool.Pool, client provider, calls int) (*relay.Relay, error) {
	composer, err := compose.New(pool, e.store, compose.DefaultConfig(), nil)
	if err != nil {
		return nil, err
	}
	to := relay.DefaultSenderConfig()
	to.Name, to.Medium = "bench", "push"
	if calls > 0 {
		to.Concurrency = calls
	}
	return relay.New(pool, composer, relay.DefaultConfig(), []relay.Sender{{SenderConfig: to, Client: client}})
}

// watch counts the statements of a pool and times a relay's claims.
type watch struct {
	mu         sync.Mutex
	statements int
	claims     []float64 // in ms, in their order
}

func (w *watch) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.statements
}

type batchKey struct{}

// batch is one in progress.
type batch struct {
	began   time.Time
	claimed int64 // messages
}

// TraceQueryStart implements pgx.QueryTracer.
func (w *watch) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.statements++
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
	w.mu.Lock()
	defer w.mu.Unlock()
	w.statements++
	//sqlfile:allow what a claim is known by
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
