package main

import (
	"context"
	"fmt"
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

// enqueue writes a job on an empty outbox.
func (e *env) enqueue(ctx context.Context, spec job.Spec) (id int64, err error) {
	if err := e.clear(ctx); err != nil {
		return 0, err
	}
	return job.NewStore(e.pool).Enqueue(ctx, spec)
}

// runJob enqueues a job and runs it in this process, as `belfry run` does.
func (e *env) runJob(ctx context.Context, spec job.Spec, config job.Config) (t jobRun, err error) {
	id, err := e.enqueue(ctx, spec)
	if err != nil {
		return t, err
	}
	var read int64
	runner, err := job.NewRunner(e.pool, config, outbox.Types(e.store), job.WithObserver(func(p job.Progress) {
		if p.Event == "chunk" {
			t.chunks = append(t.chunks, chunk{keys: p.Job.ChannelsRead - read, ms: milliseconds(p.Elapsed)})
			read = p.Job.ChannelsRead
		}
	}))
	if err != nil {
		return t, err
	}
	began := time.Now()
	outcome, err := runner.RunDue(ctx)
	t.took = time.Since(began)
	if err != nil {
		return t, fmt.Errorf("job %d: %w", id, err)
	}
	if len(outcome.Jobs) != 1 || outcome.Jobs[0].ID != id || outcome.Jobs[0].Status != job.Processed {
		return t, fmt.Errorf("job %d did not run to its end: %+v", id, outcome)
	}
	t.job = outcome.Jobs[0]
	return t, e.checkRows(ctx, id, t.job.RowsWritten)
}

// runEveryone is runJob for a job to all channels, with the count of its rows checked
// against the channels.
func (e *env) runEveryone(ctx context.Context, kind string, config job.Config) (jobRun, error) {
	t, err := e.runJob(ctx, everyone(kind), config)
	if err != nil {
		return t, err
	}
	return t, e.checkRows(ctx, t.job.ID, e.active)
}

// checkRows compares a job's rows in the outbox with what should be there.
func (e *env) checkRows(ctx context.Context, id, want int64) error {
	var have int64
	if err := look(ctx, e.pool, queries.rowCount, pgx.StrictNamedArgs{"job_id": id}, &have); err != nil {
		return err
	}
	if have != want {
		return fmt.Errorf("job %d has %d rows, not %d", id, have, want)
	}
	return nil
}
