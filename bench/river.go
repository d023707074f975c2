package main

import (
	"context"
	"errors"
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

// throughput compares belfry's relay with River, in turns, in a database each.
func throughput(ctx context.Context, e *env, r *result) {
	pool := e.connect(ctx, e.database(ctx), application, nil)
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	e.check(err)
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	e.check(err)
	speeds := e.inTurns("/s", turn{"belfry messages", func() float64 { return e.delivered(ctx) }},
		turn{"River jobs", func() float64 { return e.riverRound(ctx, pool) }})
	r.figure("belfry_speed", "belfry's relay", median(speeds[0]), messageSpeed)
	r.figure("river_speed", "River", median(speeds[1]), messageSpeed)
	r.figure("ratio", "ratio", ratio(speeds[0], speeds[1]), unitRatio, atLeast(2))
	r.note("River: InsertMany beforehand, 2,000 workers, FetchCooldown 2ms, FetchPollInterval 20ms, timed from Start to the last completion that its subscription reports.")
	r.note("belfry: the messages of one push job, composed from their channels; timed from Run to the last SENT that is committed.")
}

// riverRound has River work as many jobs as a round has messages and returns its speed.
func (e *env) riverRound(ctx context.Context, pool *pgxpool.Pool) float64 {
	defer e.within("River")
	e.do(ctx, pool, queries.riverEmpty)
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(context.Context, *river.Job[noArgs]) error { return nil }))
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		FetchCooldown: 2 * time.Millisecond, FetchPollInterval: 20 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 2000}}, Workers: workers,
	})
	e.check(err)
	const batch = 5000
	for left := e.messages; left > 0; left -= batch {
		params := make([]river.InsertManyParams, min(batch, left))
		for i := range params {
			params[i].Args = noArgs{Num: i}
		}
		_, err := client.InsertMany(ctx, params)
		e.check(err)
	}
	e.do(ctx, pool, queries.riverVacuum)
	e.checkpoint(ctx)
	done, cancel := client.SubscribeConfig(&river.SubscribeConfig{ChanSize: 75_000, Kinds: []river.EventKind{
		river.EventKindJobCancelled, river.EventKindJobCompleted, river.EventKindJobFailed,
	}})
	defer cancel()
	began := time.Now()
	e.check(client.Start(ctx))
	for range e.messages {
		select {
		case event := <-done:
			if event == nil || event.Kind != river.EventKindJobCompleted {
				e.check(errors.Join(errors.New("a job was not completed"), client.Stop(ctx)))
			}
		case <-ctx.Done():
			e.check(context.Cause(ctx))
		}
	}
	took := time.Since(began)
	e.check(client.Stop(ctx))
	var completed, all int64
	e.look(ctx, pool, queries.riverCompleted, nil, &completed, &all)
	e.demand(completed == e.messages && all == e.messages, "completed %d of %d jobs", completed, all)
	return perSecond(e.messages, took)
}
