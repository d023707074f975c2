package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/relay"
)

const (
	messageSpeed = "messages/s"
	// calls is the sender's concurrency: it does nothing, so the relay is the limit.
	calls = 1000
)

// delivery is what one round of delivering came to.
type delivery struct {
	messages int64
	took     time.Duration
	claims   []float64 // in ms, in their order
}

func (d delivery) speed() float64 { return perSecond(d.messages, d.took) }

// deliverOnce delivers the messages of one job and returns how many a second it was.
func (e *env) deliverOnce(ctx context.Context) (float64, error) {
	d, err := e.deliver(ctx, 1, func() error { return nil })
	return d.speed(), err
}

// deliver writes the messages of a number of push jobs to everyone and has a relay deliver
// them. before is called when they are written.
func (e *env) deliver(ctx context.Context, jobs int, before func() error) (d delivery, err error) {
	if err := errors.Join(do(ctx, e.pool, queries.outboxEmpty, nil), do(ctx, e.pool, queries.jobsEmpty, nil)); err != nil {
		return d, err
	}
	for range jobs {
		if _, err := job.NewStore(e.pool).Enqueue(ctx, everyone(outbox.TypePush)); err != nil {
			return d, err
		}
	}
	runner, err := job.NewRunner(e.pool, ungoverned(), outbox.Types(e.store))
	if err != nil {
		return d, err
	}
	if _, err := runner.RunDue(ctx); err != nil {
		return d, err
	}
	if err := do(ctx, e.pool, queries.messagesVacuum, nil); err != nil {
		return d, err
	}
	if err := errors.Join(before(), e.checkpoint(ctx)); err != nil {
		return d, err
	}
	var sent int64
	if err := look(ctx, e.pool, queries.messagesSent, nil, &sent, &d.messages); err != nil {
		return d, err
	}
	if d.took, d.claims, err = e.relayAll(ctx, d.messages); err != nil {
		return d, err
	}
	err = look(ctx, e.pool, queries.messagesSent, nil, &sent, &d.messages)
	if err == nil && sent != d.messages {
		err = fmt.Errorf("the relay sent %d of %d messages", sent, d.messages)
	}
	return d, err
}

// relayAll runs a relay until it has settled n messages.
func (e *env) relayAll(ctx context.Context, n int64) (took time.Duration, claims []float64, err error) {
	seen := &watch{}
	pool, err := e.connect(ctx, e.dsn, application, seen)
	if err != nil {
		return 0, nil, err
	}
	defer pool.Close()
	r, err := e.newRelay(pool, provider{}, calls)
	if err != nil {
		return 0, nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	began, ended := time.Now(), make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	for r.Stats().Sent < n {
		select {
		case <-time.After(2 * time.Millisecond):
		case err := <-ended:
			return 0, nil, errors.Join(errors.New("the relay ended"), context.Cause(ctx), err)
		}
	}
	took = time.Since(began)
	stop()
	return took, seen.claims, <-ended
}

// claims compares claims at the beginning and at the end, with and without a transaction that
// holds back vacuum.
func claims(ctx context.Context, e *env, r *result) error {
	free, err := e.deliver(ctx, 2, func() error { return nil })
	if err != nil {
		return err
	}
	tx, err := e.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	held, err := e.deliver(ctx, 2, func() error {
		_, err := tx.Exec(ctx, queries.snapshotTake)
		return err
	})
	if err != nil {
		return err
	}
	if len(free.claims) == 0 || len(held.claims) == 0 {
		return errors.New("no claim was seen")
	}
	figures := func(name, label string, d delivery) (last99 float64) {
		first, last := tenths(d.claims)
		first99, last99 := percentile(first, 99), percentile(last, 99)
		r.figure(name+"_speed", label+": speed", d.speed(), messageSpeed)
		r.figure(name+"_first_p50", label+": claim p50, first tenth", percentile(first, 50), unitMS)
		r.figure(name+"_last_p50", label+": claim p50, last tenth", percentile(last, 50), unitMS)
		r.figure(name+"_first_p99", label+": claim p99, first tenth", first99, unitMS)
		r.figure(name+"_last_p99", label+": claim p99, last tenth", last99, unitMS)
		r.figure(name+"_p99_ratio", label+": claim p99, last to first tenth", last99/first99, unitRatio)
		return last99
	}
	without := figures("free", "nothing else", free)
	with := figures("held", "vacuum held back", held)
	r.figure("held_to_free", "claim p99 of the last tenth, held back to not", with/without, unitRatio)
	r.note("%d messages each, %d and %d claims of up to %d.", free.messages, len(free.claims), len(held.claims), relay.DefaultConfig().Batch)
	return nil
}

// stock compares the relay on the server that everything else is measured on with the relay
// on one that is tuned as belfry's own is, in turns.
func stock(ctx context.Context, e *env, r *result) (err error) {
	if e.databaseURL != "" {
		r.note("Skipped: it compares two private servers; leave --database-url out.")
		return nil
	}
	tuned, err := openEnv(ctx, e.config, e.size, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tuned.close()) }()
	p, err := e.inTurns("stock messages", func() (float64, error) { return e.deliverOnce(ctx) },
		"tuned", func() (float64, error) { return tuned.deliverOnce(ctx) })
	if err != nil {
		return err
	}
	r.figure("stock_speed", "stock", median(p.a), messageSpeed)
	r.figure("tuned_speed", "tuned", median(p.b), messageSpeed)
	r.figure("ratio", "ratio", median(p.ratio), unitRatio)
	r.note("Stock: PostgreSQL's defaults, jit on. Tuned: what belfry sets for its private server (internal/pgserver). Both durable.")
	return nil
}
