package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/belfryhq/belfry/internal/bench"
)

const goalRiver = 2 // times River's speed

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

// throughput compares the two in turns.
func throughput(ctx context.Context, e *env, r *bench.Result) error {
	dsn, err := e.database(ctx, "river")
	if err != nil {
		return err
	}
	pool, err := e.connect(ctx, dsn, nil)
	if err != nil {
		return err
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: quiet()})
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return fmt.Errorf("migrate River: %w", err)
	}
	if err := e.fill(ctx); err != nil {
		return err
	}
	mine, theirs, ratio, err := e.inTurns(
		func() (float64, error) { return e.speed(ctx) },
		func() (float64, error) { return e.riverRound(ctx, pool) },
		func(round int, belfry, river, ratio float64) {
			e.tell("  %d/%d: belfry %.0f messages/s, River %.0f jobs/s, ratio %.2f", round, e.rounds, belfry, river, ratio)
		})
	if err != nil {
		return err
	}
	figure(r, "belfry_speed", "belfry's relay", percentile(mine, 50), unitSpeed, nil)
	figure(r, "river_speed", "River", percentile(theirs, 50), unitSpeed, nil)
	figure(r, "ratio", "ratio", percentile(ratio, 50), unitRatio, atLeast(goalRiver))
	r.Notes = append(r.Notes,
		"River: InsertMany beforehand, 2,000 workers, FetchCooldown 2ms, FetchPollInterval 20ms, timed from Start to the last completion that its subscription reports.",
		"belfry: the messages of one push job, composed from their channels; timed from Run to the last SENT that is committed.")
	return nil
}

// quiet is a logger for what nobody reads.
func quiet() *slog.Logger {
	return slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelError}))
}

// riverRound has River work as many jobs as a round has messages and returns its speed.
func (e *env) riverRound(ctx context.Context, pool *pgxpool.Pool) (float64, error) {
	if err := e.do(ctx, pool, "RiverEmpty"); err != nil {
		return 0, err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &noWorker{})
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		FetchCooldown: 2 * time.Millisecond, FetchPollInterval: 20 * time.Millisecond, Logger: quiet(),
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
	if err := e.do(ctx, pool, "RiverVacuum", "ServerCheckpoint"); err != nil {
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
	for n := int64(0); n < e.messages; n++ {
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
	if err := pool.QueryRow(ctx, queries.SQL("RiverCompleted")).Scan(&completed, &all); err != nil {
		return 0, err
	}
	if completed != e.messages || all != e.messages {
		return 0, fmt.Errorf("river completed %d of %d jobs", completed, all)
	}
	return float64(e.messages) / took.Seconds(), nil
}
