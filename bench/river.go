package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog" //nolint:depguard // River takes no other logger, and this one is silenced
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// noArgs are the arguments of a job that does nothing, as in River's own benchmark.
type noArgs struct {
	Num int `json:"num"`
}

// Kind implements river.JobArgs.
func (noArgs) Kind() string { return "benchmark" }

type noWorker struct {
	river.WorkerDefaults[noArgs]
}

// Work implements river.Worker.
func (noWorker) Work(context.Context, *river.Job[noArgs]) error { return nil }

// throughput compares belfry's relay with River, in turns, in a database each.
func throughput(ctx context.Context, e *env, r *result) error {
	dsn, err := e.database(ctx)
	if err != nil {
		return err
	}
	pool, err := e.connect(ctx, dsn, application, nil)
	if err != nil {
		return err
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return fmt.Errorf("migrate River: %w", err)
	}
	p, err := e.inTurns("belfry messages", func() (float64, error) { return e.deliverOnce(ctx) },
		"River jobs", func() (float64, error) { return e.riverRound(ctx, pool) })
	if err != nil {
		return err
	}
	r.figure("belfry_speed", "belfry's relay", median(p.a), messageSpeed)
	r.figure("river_speed", "River", median(p.b), messageSpeed)
	r.figure("ratio", "ratio", median(p.ratio), unitRatio)
	r.note("River: InsertMany beforehand, 2,000 workers, FetchCooldown 2ms, FetchPollInterval 20ms, timed from Start to the last completion that its subscription reports.")
	r.note("belfry: the messages of one push job, composed from their channels; timed from Run to the last SENT that is committed.")
	return nil
}

// riverRound has River work as many jobs as a round has messages and returns its speed.
func (e *env) riverRound(ctx context.Context, pool *pgxpool.Pool) (float64, error) {
	if err := do(ctx, pool, queries.riverEmpty, nil); err != nil {
		return 0, err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &noWorker{})
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		FetchCooldown: 2 * time.Millisecond, FetchPollInterval: 20 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 2000}}, Workers: workers,
	})
	if err != nil {
		return 0, err
	}
	const batch = 5000
	for left := e.messages; left > 0; left -= batch {
		params := make([]river.InsertManyParams, min(batch, left))
		for i := range params {
			params[i].Args = noArgs{Num: i}
		}
		if _, err := client.InsertMany(ctx, params); err != nil {
			return 0, fmt.Errorf("insert River's jobs: %w", err)
		}
	}
	if err := errors.Join(do(ctx, pool, queries.riverVacuum, nil), e.checkpoint(ctx)); err != nil {
		return 0, err
	}
	done, cancel := client.SubscribeConfig(&river.SubscribeConfig{ChanSize: 75_000, Kinds: []river.EventKind{
		river.EventKindJobCancelled, river.EventKindJobCompleted, river.EventKindJobFailed,
	}})
	defer cancel()
	began := time.Now()
	if err := client.Start(ctx); err != nil {
		return 0, fmt.Errorf("start River: %w", err)
	}
	for range e.messages {
		select {
		case event := <-done:
			if event == nil || event.Kind != river.EventKindJobCompleted {
				return 0, errors.Join(errors.New("a job of River's was not completed"), client.Stop(ctx))
			}
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
	took := time.Since(began)
	if err := client.Stop(ctx); err != nil {
		return 0, fmt.Errorf("stop River: %w", err)
	}
	var completed, all int64
	if err := look(ctx, pool, queries.riverCompleted, nil, &completed, &all); err != nil {
		return 0, err
	}
	if completed != e.messages || all != e.messages {
		return 0, fmt.Errorf("river completed %d of %d jobs", completed, all)
	}
	return perSecond(e.messages, took), nil
}
