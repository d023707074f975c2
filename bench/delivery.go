package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/bench"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/compose"
	"github.com/belfryhq/belfry/outbox/relay"
	"github.com/belfryhq/belfry/outbox/sender"
)

const (
	goalClaims = 1.5 // times the p99 of the beginning
	// calls is the sender's concurrency: it does nothing, so the relay is the limit.
	calls = 1000
)

// nothing is a sender that accepts everything at once.
type nothing struct{}

// MaxBatch implements sender.Sender.
func (nothing) MaxBatch() int { return 1 }

// Send implements sender.Sender.
func (nothing) Send(_ context.Context, batch []sender.Delivery) []sender.Result {
	results := make([]sender.Result, len(batch))
	for i := range results {
		results[i] = sender.Result{Class: sender.Accepted}
	}
	return results
}

// delivery is what one round of delivering came to.
type delivery struct {
	messages int64
	took     time.Duration
	claims   []float64 // in ms, in their order
}

func (d delivery) speed() float64 { return float64(d.messages) / d.took.Seconds() }

// speed delivers the messages of one job and returns how many a second it was.
func (e *env) speed(ctx context.Context) (float64, error) {
	d, err := e.deliver(ctx, 1, nil)
	return d.speed(), err
}

// deliver writes the messages of a number of push jobs to everyone and has a relay
// deliver them. before is called when they are written; nil: nothing is.
func (e *env) deliver(ctx context.Context, jobs int, before func(context.Context) error) (d delivery, err error) {
	if err := e.do(ctx, e.pool, "OutboxEmpty", "JobsEmpty"); err != nil {
		return d, err
	}
	store := job.NewStore(e.pool)
	for i := range jobs {
		_, err := store.Enqueue(ctx, job.Spec{
			Type: outbox.TypePush, Category: "popular_content", Title: fmt.Sprintf("Bench %d", i+1),
			Body: "Hello", Audience: channels.Everyone(), RequestedBy: "bench",
		})
		if err != nil {
			return d, err
		}
	}
	settings := job.DefaultConfig()
	settings.Load.Health.Enabled = false
	runner, err := job.NewRunner(e.pool, settings, outbox.Types(e.who))
	if err != nil {
		return d, err
	}
	if _, err := runner.RunDue(ctx); err != nil {
		return d, err
	}
	if err := e.do(ctx, e.pool, "MessagesVacuum"); err != nil {
		return d, err
	}
	if before != nil {
		if err := before(ctx); err != nil {
			return d, err
		}
	}
	if err := e.do(ctx, e.pool, "ServerCheckpoint"); err != nil {
		return d, err
	}
	var sent int64
	if err := e.pool.QueryRow(ctx, queries.SQL("MessagesSent")).Scan(&sent, &d.messages); err != nil {
		return d, err
	}
	d.took, d.claims, err = e.relayAll(ctx, d.messages)
	if err != nil {
		return d, err
	}
	if err := e.pool.QueryRow(ctx, queries.SQL("MessagesSent")).Scan(&sent, &d.messages); err != nil {
		return d, err
	}
	if sent != d.messages {
		return d, fmt.Errorf("the relay sent %d of %d messages", sent, d.messages)
	}
	return d, nil
}

// relayAll runs a relay until it has settled n messages.
func (e *env) relayAll(ctx context.Context, n int64) (took time.Duration, claims []float64, err error) {
	watch := &watch{}
	pool, err := e.connect(ctx, e.dsn, watch)
	if err != nil {
		return 0, nil, err
	}
	defer pool.Close()
	composer, err := compose.New(pool, e.who, compose.DefaultConfig(), nil)
	if err != nil {
		return 0, nil, err
	}
	to := relay.DefaultSenderConfig()
	to.Name, to.Medium, to.Concurrency = "nothing", "push", calls
	r, err := relay.New(pool, composer, relay.DefaultConfig(), []relay.Sender{{SenderConfig: to, Client: nothing{}}})
	if err != nil {
		return 0, nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	began, ended := time.Now(), make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for r.Stats().Sent < n {
		select {
		case <-look.C:
		case err := <-ended:
			return 0, nil, errors.Join(errors.New("the relay ended"), err)
		case <-ctx.Done():
			return 0, nil, errors.Join(context.Cause(ctx), <-ended)
		}
	}
	took = time.Since(began)
	stop()
	return took, watch.claims, <-ended
}

// watch times the relay's claims.
type watch struct {
	mu     sync.Mutex
	claims []float64 // in ms
}

type claimKey struct{}

// claim is one in progress.
type claim struct {
	began time.Time
	rows  int64
}

// TraceQueryStart implements pgx.QueryTracer. Claims are sent as batches.
func (*watch) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (*watch) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TraceBatchStart implements pgx.BatchTracer.
func (*watch) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return context.WithValue(ctx, claimKey{}, &claim{began: time.Now()})
}

// TraceBatchQuery implements pgx.BatchTracer.
func (*watch) TraceBatchQuery(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	if c, ok := ctx.Value(claimKey{}).(*claim); ok && strings.Contains(data.SQL, "INSERT INTO belfry.leases") && strings.Contains(data.SQL, "m.job_id > 0") {
		c.rows += data.CommandTag.RowsAffected()
	}
}

// TraceBatchEnd implements pgx.BatchTracer. Claims that found nothing are not counted.
func (w *watch) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchEndData) {
	c, ok := ctx.Value(claimKey{}).(*claim)
	if !ok || c.rows == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.claims = append(w.claims, milliseconds(time.Since(c.began)))
}

// claims compares claims at the beginning and at the end, with and without a
// transaction that holds back vacuum.
func claims(ctx context.Context, e *env, r *bench.Result) error {
	if err := e.fill(ctx); err != nil {
		return err
	}
	free, err := e.deliver(ctx, 2, nil)
	if err != nil {
		return err
	}
	if len(free.claims) == 0 {
		return errors.New("no claim was seen")
	}
	var tx pgx.Tx
	defer func() {
		if tx != nil {
			_ = tx.Rollback(context.WithoutCancel(ctx))
		}
	}()
	held, err := e.deliver(ctx, 2, func(ctx context.Context) (err error) {
		if tx, err = e.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}); err != nil {
			return err
		}
		var n int64
		return tx.QueryRow(ctx, queries.SQL("SnapshotTake")).Scan(&n)
	})
	if err != nil {
		return err
	}
	if len(held.claims) == 0 {
		return errors.New("no claim was seen")
	}
	report := func(name, label string, d delivery) (first99 float64) {
		tenth := max(len(d.claims)/10, 1)
		first, last := d.claims[:tenth], d.claims[len(d.claims)-tenth:]
		first99 = percentile(first, 99)
		figure(r, name+"_speed", label+": speed", d.speed(), unitSpeed, nil)
		figure(r, name+"_first_p50", label+": claim p50, first tenth", percentile(first, 50), unitMS, nil)
		figure(r, name+"_last_p50", label+": claim p50, last tenth", percentile(last, 50), unitMS, nil)
		figure(r, name+"_first_p99", label+": claim p99, first tenth", first99, unitMS, nil)
		figure(r, name+"_last_p99", label+": claim p99, last tenth", percentile(last, 99), unitMS, nil)
		figure(r, name+"_p99_ratio", label+": claim p99, last to first tenth", percentile(last, 99)/first99, unitRatio, atMost(goalClaims))
		return percentile(last, 99)
	}
	without := report("free", "nothing else", free)
	with := report("held", "vacuum held back", held)
	figure(r, "held_to_free", "claim p99 of the last tenth, held back to not", with/without, unitRatio, atMost(goalClaims))
	r.Notes = append(r.Notes, fmt.Sprintf("%d messages each, %d and %d claims of up to %d.", free.messages, len(free.claims), len(held.claims), relay.DefaultConfig().Batch))
	return nil
}
