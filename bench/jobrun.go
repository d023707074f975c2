package main

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// jobRun is one job run from claim to PROCESSED, and what it cost.
type jobRun struct {
	job    job.Job
	took   time.Duration // RunDue: registering, claim, chunks, finish, the look for more
	chunks []chunk
}

// chunk is one committed chunk.
type chunk struct {
	keys int64   // examined
	ms   float64 // begin to commit, as the runner measures it
}

func (t jobRun) speed() float64 { return perSecond(t.job.RowsWritten, t.took) }

// whole are the durations of the chunks that examined at least so many keys.
func (t jobRun) whole(keys int64) (ms []float64) {
	for _, c := range t.chunks {
		if c.keys >= keys {
			ms = append(ms, c.ms)
		}
	}
	return ms
}

// everyone is an inbox or push job to all channels.
func everyone(kind string) job.Spec {
	return job.Spec{Type: kind, Category: "popular_content", Title: "bench", Audience: channels.Everyone()}
}

// constant is a configuration with chunks of one size.
func constant(c job.Config, rows int64) job.Config {
	c.Chunk.MinRows, c.Chunk.InitialRows, c.Chunk.MaxRows = int(rows), int(rows), int(rows)
	return c
}

// ungoverned is the default configuration without health checks.
func ungoverned() job.Config {
	c := job.DefaultConfig()
	c.Load.Health.Enabled = false
	return c
}

// enqueue writes a job.
func (e *env) enqueue(ctx context.Context, spec job.Spec) int64 {
	id, err := job.NewStore(e.pool).Enqueue(ctx, spec)
	e.check(err)
	return id
}

// runDue runs what is due in this process, as `belfry run` does, and returns how long it took.
func (e *env) runDue(ctx context.Context, config job.Config, options ...job.Option) (job.Outcome, time.Duration) {
	runner, err := job.NewRunner(e.pool, config, outbox.Types(e.store), options...)
	e.check(err)
	began := time.Now()
	outcome, err := runner.RunDue(ctx)
	e.check(err)
	return outcome, time.Since(began)
}

// runJob runs one job on an empty outbox.
func (e *env) runJob(ctx context.Context, spec job.Spec, config job.Config) (t jobRun) {
	e.clear(ctx)
	id := e.enqueue(ctx, spec)
	var read int64
	outcome, took := e.runDue(ctx, config, job.WithObserver(func(p job.Progress) {
		if p.Event == "chunk" {
			t.chunks = append(t.chunks, chunk{keys: p.Job.ChannelsRead - read, ms: milliseconds(p.Elapsed)})
			read = p.Job.ChannelsRead
		}
	}))
	e.demand(len(outcome.Jobs) == 1 && outcome.Jobs[0].ID == id && outcome.Jobs[0].Status == job.Processed,
		"job %d did not run to its end: %+v", id, outcome)
	t.job, t.took = outcome.Jobs[0], took
	e.checkRows(ctx, id, t.job.RowsWritten)
	return t
}

// runEveryone is runJob for a job to all channels, with the count of its rows checked
// against the channels.
func (e *env) runEveryone(ctx context.Context, kind string, config job.Config) jobRun {
	t := e.runJob(ctx, everyone(kind), config)
	e.checkRows(ctx, t.job.ID, e.active)
	return t
}

// checkRows compares a job's rows in the outbox with what should be there.
func (e *env) checkRows(ctx context.Context, id, want int64) {
	var have int64
	e.look(ctx, e.pool, queries.rowCount, pgx.StrictNamedArgs{"job_id": id}, &have)
	e.demand(have == want, "job %d has %d rows, not %d", id, have, want)
}
