package bench

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry"
	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/outbox/relay"
)

// idle counts the statements of a process without work that has a name for its
// runner and its relay: runner, schedules, relay and retention with default settings.
func (e *env) idle() {
	e.clear()
	counted := &tracer{}
	config := belfry.DefaultConfig()
	config.Runner.Name, config.Delivery.Relay.Name = application, application
	to := relay.DefaultSenderConfig()
	to.Name, to.Medium = "bench", "push"
	process, err := belfry.New(config, belfry.WithPool(e.connect(e.dsn, counted)), belfry.WithSenders(relay.Sender{SenderConfig: to, Client: provider{}}))
	require.NoError(e, err)
	_, stop := e.start(process.Run)
	defer stop()
	e.report(e.whileIdle(counted), "statements/s", atMost(2))
}

// tracer counts the statements of a pool, including BEGIN, COMMIT and the settings
// of transactions, and times the claims of a relay.
type tracer struct {
	statements atomic.Int64
	mu         sync.Mutex
	claims     []float64 // in ms, in order
}

// whileIdle returns the statements a second of a minute without work.
func (e *env) whileIdle(t *tracer) float64 {
	require.NoError(e, lifecycle.Pause(e.Context(), size(15*time.Second, time.Second)))
	n, began := t.statements.Load(), time.Now()
	require.NoError(e, lifecycle.Pause(e.Context(), size(time.Minute, 2*time.Second)))
	return perSecond(t.statements.Load()-n, time.Since(began))
}

type batchKey struct{}

// batch is a batch in progress.
type batch struct {
	began   time.Time
	claimed int64 // messages
}

// TraceQueryStart implements pgx.QueryTracer.
func (t *tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	t.statements.Add(1)
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (*tracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TraceBatchStart implements pgx.BatchTracer.
func (*tracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return context.WithValue(ctx, batchKey{}, &batch{began: time.Now()})
}

// TraceBatchQuery implements pgx.BatchTracer. A relay claims in batches.
func (t *tracer) TraceBatchQuery(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	t.statements.Add(1)
	//sql:allow how a claim is recognized
	if b, ok := ctx.Value(batchKey{}).(*batch); ok && strings.Contains(data.SQL, "INSERT INTO belfry.leases") && strings.Contains(data.SQL, "m.job_id > 0") {
		b.claimed += data.CommandTag.RowsAffected()
	}
}

// TraceBatchEnd implements pgx.BatchTracer. It times only claims that returned messages.
func (t *tracer) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchEndData) {
	if b, ok := ctx.Value(batchKey{}).(*batch); ok && b.claimed > 0 {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.claims = append(t.claims, milliseconds(time.Since(b.began)))
	}
}
