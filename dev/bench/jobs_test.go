package bench

import (
	"cmp"
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// BenchmarkJobs measures the engine: a job from its claim to PROCESSED.
func BenchmarkJobs(b *testing.B) {
	e := open(b, cmp.Or(*channelCount, size[int64](1_000_000, 4000)), true)
	e.run("walk=inbox", func(e *env) { e.walk(outbox.TypeInbox) })
	e.run("walk=push", func(e *env) { e.walk(outbox.TypePush) })
	e.run("offset", (*env).offset)
	e.run("level", (*env).level)
	e.run("memory", (*env).memory)
	e.run("latency", (*env).latency)
	e.run("idle", (*env).idle)
	e.run("radius", (*env).radius)
	e.run("load", (*env).load)
	e.run("lists", (*env).lists) // the last: it fills the database with history
}

// everyone is a job to all channels.
func everyone(kind string) job.Spec {
	return job.Spec{Type: kind, Category: "popular_content", Title: "bench", Audience: channels.Everyone()}
}

// constant sets one chunk size.
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

// enqueue enqueues a job, and runs statements with its id in the same transaction.
func (e *env) enqueue(spec job.Spec, statements ...string) (id int64) {
	require.NoError(e, pgx.BeginFunc(e.Context(), e.pool, func(tx pgx.Tx) (err error) {
		id, err = job.EnqueueTx(e.Context(), tx, spec)
		for _, sql := range statements {
			if err == nil {
				_, err = tx.Exec(e.Context(), sql, pgx.StrictNamedArgs{"job_id": id})
			}
		}
		return err
	}))
	return id
}

// runDue runs the due jobs and returns the duration.
func (e *env) runDue(ctx context.Context, config job.Config, options ...job.Option) time.Duration {
	runner, err := job.NewRunner(e.pool, config, outbox.Types(e.store), options...)
	require.NoError(e, err)
	began := time.Now()
	_, err = runner.RunDue(ctx)
	require.NoError(e, err)
	return time.Since(began)
}

// jobRun is a job's run from claim to PROCESSED.
type jobRun struct {
	job      job.Job
	took     time.Duration
	chunks   []float64 // ms of each
	mostKeys int64     // examined in one chunk
}

func (r jobRun) speed() float64 { return perSecond(r.job.RowsWritten, r.took) }

// runJob runs one job on an empty outbox and counts its rows. For statements see enqueue.
func (e *env) runJob(spec job.Spec, config job.Config, statements ...string) (r jobRun) {
	e.clear()
	id := e.enqueue(spec, statements...)
	e.checkpoint()
	var read int64
	r.took = e.runDue(e.Context(), config, job.WithObserver(func(p job.Progress) {
		if p.Event == "chunk" {
			r.chunks, r.mostKeys = append(r.chunks, milliseconds(p.Elapsed)), max(r.mostKeys, p.Job.ChannelsRead-read)
			read = p.Job.ChannelsRead
		}
	}))
	var err error
	r.job, err = job.NewStore(e.pool).Get(e.Context(), id)
	require.NoError(e, err)
	require.Equal(e, job.Processed, r.job.Status)
	e.requireRows(id, r.job.RowsWritten)
	return r
}

func (e *env) runEveryone(kind string, config job.Config) jobRun {
	r := e.runJob(everyone(kind), config)
	require.Equal(e, e.active, r.job.RowsWritten)
	return r
}

func (e *env) requireRows(id, want int64) {
	var have int64
	e.read(queries.rowCount, pgx.StrictNamedArgs{"job_id": id}, &have)
	require.Equal(e, want, have, "rows of job %d", id)
}

// walk compares a job to everyone with one statement that writes the same rows.
func (e *env) walk(kind string) {
	var chunks []float64
	speeds := sideBySide(func() float64 {
		r := e.runEveryone(kind, job.DefaultConfig())
		chunks = r.chunks
		return r.speed()
	}, func() float64 { return e.insertAll(kind) })
	e.report(speeds[0], "job-rows/s")
	e.report(speeds[1], "statement-rows/s")
	e.report(speeds[0]/speeds[1], "ratio", atLeast(0.95))
	e.report(percentile(chunks, 99), "chunk-p99-ms", atMost(250))
}

// insertAll writes the rows of a job to everyone by one statement and returns rows/s.
func (e *env) insertAll(kind string) float64 {
	e.clear()
	sql := queries.notificationInsertAll
	if kind == outbox.TypePush {
		sql = queries.messageInsertAll
	}
	began := time.Now()
	tag, err := e.pool.Exec(e.Context(), sql, pgx.StrictNamedArgs{"job_id": int64(1)})
	took := time.Since(began)
	require.NoError(e, err)
	require.Equal(e, e.active, tag.RowsAffected())
	return perSecond(e.active, took)
}

// pageRows is the size of pages and chunks of one size: at least a hundred pages.
func (e *env) pageRows() int64 { return min(10_000, e.size/100) }

// offset compares an inbox job with a loop over LIMIT and OFFSET pages.
func (e *env) offset() {
	var pages []float64
	speeds := sideBySide(
		func() float64 { return e.runEveryone(outbox.TypeInbox, job.DefaultConfig()).speed() },
		func() (speed float64) { pages, speed = e.insertByOffset(); return speed })
	first, last := tenths(pages)
	e.report(speeds[0]/speeds[1], "ratio")
	e.report(percentile(last, 50)/percentile(first, 50), "offset-last-to-first")
}

// insertByOffset writes all rows by OFFSET pages and returns each page's duration and rows/s.
func (e *env) insertByOffset() (ms []float64, speed float64) {
	e.clear()
	began := time.Now()
	for offset, read := int64(0), int64(1); read > 0; offset += e.pageRows() {
		page := time.Now()
		e.read(queries.notificationInsertOffset, pgx.StrictNamedArgs{"limit": e.pageRows(), "offset": offset, "job_id": int64(1)}, &read)
		if read > 0 {
			ms = append(ms, milliseconds(time.Since(page)))
		}
	}
	speed = perSecond(e.active, time.Since(began))
	e.requireRows(1, e.active)
	return ms, speed
}

// level compares the last tenth of an inbox job's chunks with the first tenth.
func (e *env) level() {
	r := e.runEveryone(outbox.TypeInbox, constant(job.DefaultConfig(), e.pageRows()))
	first, last := tenths(r.chunks[:len(r.chunks)-1]) // the last chunk may be short
	e.report(percentile(last, 50)/percentile(first, 50), "last-to-first", atMost(1.1))
}

// latency measures small jobs from the enqueue to the commit of their first chunk.
// The runner polls once an hour, so only NOTIFY wakes it.
func (e *env) latency() {
	e.clear()
	config := job.DefaultConfig()
	config.PollInterval, config.Listen = time.Hour, true
	chunks, finished := make(chan time.Time, 1), make(chan struct{}, 1)
	runner, err := job.NewRunner(e.pool, config, outbox.Types(e.store), job.WithObserver(func(p job.Progress) {
		switch p.Event {
		case "chunk":
			chunks <- time.Now()
		case job.EventFinished:
			finished <- struct{}{}
		}
	}))
	require.NoError(e, err)
	running, stop := e.start(runner.Run)
	defer stop()
	spec := everyone(outbox.TypeInbox)
	spec.Audience = channels.WithIDs(1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
	var took []float64
	for n := range size(200, 3) + 1 {
		// The runner has to wait when the job comes, not poll for more after the last one.
		require.NoError(e, lifecycle.Pause(running, 10*time.Millisecond+rand.N(10*time.Millisecond)))
		began := time.Now()
		e.enqueue(spec)
		first := receive(running, e, chunks)
		receive(running, e, finished)
		if n > 0 { // the first run connects and prepares its statements
			took = append(took, milliseconds(first.Sub(began)))
		}
	}
	e.report(percentile(took, 50), "p50-ms")
	e.report(percentile(took, 99), "p99-ms", atMost(50))
}

// radius runs inbox jobs to circles, to sparse audiences and to everyone. A job's
// cost has to follow its matches.
func (e *env) radius() {
	e.do(queries.platformRare)
	for _, a := range []struct {
		name   string
		who    channels.Audience
		sparse bool
	}{
		{name: "Seoul-1km", who: channels.Within(37.566, 126.978, 1_000)},
		{name: "Seoul-10km", who: channels.Within(37.566, 126.978, 10_000)},
		{name: "Seoul-100km", who: channels.Within(37.566, 126.978, 100_000)},
		{name: "Seoul-1000km", who: channels.Within(37.566, 126.978, 1_000_000)},
		{name: "Seoul-6000km", who: channels.Within(37.566, 126.978, 6_000_000)},
		{name: "ocean-2600km", who: channels.Within(-48.877, -123.393, 2_600_000), sparse: true}, // around Point Nemo
		{name: "platform-kiosk", who: channels.OnPlatforms("kiosk"), sparse: true},
		{name: "everyone", who: channels.Everyone()},
	} {
		e.run(a.name, func(e *env) {
			spec := everyone(outbox.TypeInbox)
			spec.Audience = a.who
			r := e.runJob(spec, job.DefaultConfig())
			matches, err := e.store.Count(e.Context(), e.pool, a.who)
			require.NoError(e, err)
			require.Equal(e, matches, r.job.RowsWritten)
			e.report(float64(matches), "matches")
			e.report(float64(r.job.ChannelsRead), "keys")
			e.report(milliseconds(r.took), "ms")
			e.report(float64(r.mostKeys), "chunk-keys", atMost(float64(job.DefaultConfig().Chunk.MaxRows)))
			if a.sparse && len(r.chunks) > 0 {
				e.report(percentile(r.chunks, 100), "chunk-max-ms", atMost(250))
			}
		})
	}
}
