package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

const (
	goalEnqueueP99MS = 50
	// hintTimeout is how long an enqueued job may take before the hint is taken for
	// lost, which is an error: nothing but the hint wakes this runner.
	hintTimeout = 30 * time.Second
	// restFor is the least and the spread of the pauses between enqueues, so that
	// jobs meet a runner that waits and not one that is about to look for more.
	restFor = 10 * time.Millisecond
)

// seen is what a daemon's observer saw, and when.
type seen struct {
	at    time.Time
	event string
	job   job.Job
}

// daemon is a Runner.Run in this process.
type daemon struct {
	events chan seen
	stop   func() error // ends it and waits
}

func (e *env) startDaemon(ctx context.Context, config job.Config) (*daemon, error) {
	// Room for the events of one job; the reader keeps up between jobs.
	d := &daemon{events: make(chan seen, 64)}
	ctx, cancel := context.WithCancel(ctx)
	runner, err := job.NewRunner(e.pool, config, outbox.Types(e.store), job.WithObserver(func(p job.Progress) {
		select {
		case d.events <- seen{time.Now(), p.Event, p.Job}:
		case <-ctx.Done():
		}
	}), job.WithLogger(zerolog.New(e.Progress).Level(zerolog.WarnLevel))) // why a job does not come
	if err != nil {
		cancel()
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- runner.Run(ctx) }()
	d.stop = func() error { cancel(); return <-ended }
	return d, nil
}

// await returns the next event of the kind that belongs to the job.
func (d *daemon) await(ctx context.Context, id int64, event string, limit time.Duration) (seen, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		select {
		case s := <-d.events:
			if s.job.ID == id && s.event == event {
				return s, nil
			}
		case <-timer.C:
			return seen{}, fmt.Errorf("job %d: no event %q within %s", id, event, limit)
		case <-ctx.Done():
			return seen{}, ctx.Err()
		}
	}
}

// latency times tiny jobs from the call that enqueues them, its own commit
// included, to the moment their first chunk is committed. The runner's poll
// interval is an hour: without the hint no job would be found.
func latency(ctx context.Context, e *env, r *Result) (err error) {
	config := job.DefaultConfig()
	config.PollInterval, config.Listen = time.Hour, true
	d, err := e.startDaemon(ctx, config)
	if err != nil {
		return err
	}
	defer func() {
		if errStop := d.stop(); err == nil {
			err = errStop
		}
	}()
	if err := e.clear(ctx); err != nil {
		return err
	}
	spec := everyone(outbox.TypeInbox)
	spec.Audience = channels.WithIDs(1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
	store := job.NewStore(e.pool)
	var whole, woken []float64
	for n := range e.Enqueues + 1 {
		rest(ctx)
		began := time.Now()
		id, err := store.Enqueue(ctx, spec)
		if err != nil {
			return err
		}
		enqueued := time.Now()
		first, err := d.await(ctx, id, "chunk", hintTimeout)
		if err != nil {
			return err
		}
		if _, err := d.await(ctx, id, job.EventFinished, hintTimeout); err != nil {
			return err
		}
		if n == 0 {
			continue // connects, prepares statements, may come before LISTEN
		}
		whole = append(whole, milliseconds(first.at.Sub(began)))
		woken = append(woken, milliseconds(first.at.Sub(enqueued)))
	}
	r.figure("first_chunk_p50", "enqueue to first chunk, p50", percentile(whole, 50), unitMS, nil)
	r.figure("first_chunk_p99", "enqueue to first chunk, p99", percentile(whole, 99), unitMS, atMost(goalEnqueueP99MS))
	r.figure("first_chunk_max", "enqueue to first chunk, slowest", percentile(whole, 100), unitMS, nil)
	r.figure("after_enqueue_p50", "of it after the enqueue's commit, p50", percentile(woken, 50), unitMS, nil)
	r.figure("enqueues", "jobs timed", float64(len(whole)), unitCount, nil)
	return nil
}

// rest pauses between one and two restFor.
func rest(ctx context.Context) {
	timer := time.NewTimer(restFor + rand.N(restFor)) //nolint:gosec // not for secrets
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
