package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// tenure is one job run from claim to PROCESSED, and what it cost.
type tenure struct {
	job    job.Job
	took   time.Duration // RunDue: registering, claim, chunks, finish, the look for more
	chunks []chunk
}

// chunk is one committed chunk.
type chunk struct {
	keys, rows int64         // examined, written
	took       time.Duration // begin to commit, as the runner measures it
}

func (t tenure) chunkMS() []float64 {
	ms := make([]float64, 0, len(t.chunks))
	for _, c := range t.chunks {
		ms = append(ms, milliseconds(c.took))
	}
	return ms
}

// longest is the duration of the longest chunk, mostKeys the most keys one chunk
// examined, inChunks the time in all of them.
func (t tenure) longest() (d time.Duration) {
	for _, c := range t.chunks {
		d = max(d, c.took)
	}
	return d
}

func (t tenure) mostKeys() (n int64) {
	for _, c := range t.chunks {
		n = max(n, c.keys)
	}
	return n
}

func (t tenure) inChunks() (d time.Duration) {
	for _, c := range t.chunks {
		d += c.took
	}
	return d
}

func (t tenure) speed() float64 { return perSecond(t.job.RowsWritten, t.took) }

// everyone is an inbox or push job to all channels.
func everyone(kind string) job.Spec {
	return job.Spec{Type: kind, Category: "popular_content", Title: "bench", Audience: channels.Everyone()}
}

// constant is the default configuration with chunks of one size.
func constant(rows int64) job.Config {
	c := job.DefaultConfig()
	c.Chunk.MinRows, c.Chunk.InitialRows, c.Chunk.MaxRows = int(rows), int(rows), int(rows)
	return c
}

// runJob enqueues a job and runs it in this process, as `belfry run` does.
func (e *env) runJob(ctx context.Context, spec job.Spec, config job.Config) (tenure, error) {
	id, err := job.NewStore(e.pool).Enqueue(ctx, spec)
	if err != nil {
		return tenure{}, err
	}
	var t tenure
	var read int64
	runner, err := job.NewRunner(e.pool, config, outbox.Types(e.store), job.WithObserver(func(p job.Progress) {
		if p.Event == "chunk" {
			t.chunks = append(t.chunks, chunk{keys: p.Job.ChannelsRead - read, rows: p.Rows, took: p.Elapsed})
			read = p.Job.ChannelsRead
		}
	}))
	if err != nil {
		return tenure{}, err
	}
	began := time.Now()
	outcome, err := runner.RunDue(ctx)
	t.took = time.Since(began)
	if err != nil {
		return tenure{}, fmt.Errorf("job %d: %w", id, err)
	}
	if len(outcome.Jobs) != 1 || outcome.Jobs[0].ID != id || outcome.Jobs[0].Status != job.Processed {
		return tenure{}, fmt.Errorf("job %d did not run to its end: %+v", id, outcome)
	}
	t.job = outcome.Jobs[0]
	return t, e.checkRows(ctx, t.job, t.job.RowsWritten)
}

// checkRows compares the rows in the outbox with what should be there.
func (e *env) checkRows(ctx context.Context, j job.Job, want int64) error {
	var have int64
	var err error
	if j.Type == outbox.TypePush {
		have, err = e.countRows(ctx, "MessageCount", j.ID)
	} else {
		have, err = e.countRows(ctx, "NotificationCount", j.ID)
	}
	if err != nil {
		return err
	}
	if have != want {
		return fmt.Errorf("job %d has %d rows, not %d", j.ID, have, want)
	}
	return nil
}

func (e *env) countRows(ctx context.Context, statement string, id int64) (n int64, err error) {
	err = e.pool.QueryRow(ctx, queries.Get(statement).SQL, pgx.StrictNamedArgs{"job_id": id}).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count rows of job %d: %w", id, err)
	}
	return n, nil
}

// runEveryone is runJob for a job to all channels on an empty outbox, with the
// count of its rows checked against the channels.
func (e *env) runEveryone(ctx context.Context, kind string, config job.Config) (tenure, error) {
	if err := e.clear(ctx); err != nil {
		return tenure{}, err
	}
	t, err := e.runJob(ctx, everyone(kind), config)
	if err != nil {
		return tenure{}, err
	}
	return t, e.checkRows(ctx, t.job, e.active)
}
