package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// seen is what a daemon's observer saw, and when.
type seen struct {
	at    time.Time
	event string
	job   int64
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
		case d.events <- seen{time.Now(), p.Event, p.Job.ID}:
		case <-ctx.Done():
		}
	}), job.WithLogger(zerolog.New(e.progress).Level(zerolog.WarnLevel))) // why a job does not come
	if err != nil {
		cancel()
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- runner.Run(ctx) }()
	d.stop = func() error { cancel(); return <-ended }
	return d, nil
}

// eventTimeout is when an event that has not come is an error.
const eventTimeout = time.Minute

// await returns when the job's next event of the kind came.
func (d *daemon) await(ctx context.Context, id int64, event string) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	for {
		select {
		case s := <-d.events:
			if s.job == id && s.event == event {
				return s.at, nil
			}
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("job %d: no event %q: %w", id, event, context.Cause(ctx))
		}
	}
}

// pause waits, or returns why not.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// rest is the least and the spread of the pauses between enqueues, so that jobs meet a runner
// that waits and not one that is about to look for more.
const rest = 10 * time.Millisecond

// latency times tiny jobs from the call that enqueues them, its own commit included, to the
// moment their first chunk is committed. The runner's poll interval is an hour: without the
// hint no job would be found.
func latency(ctx context.Context, e *env, r *result) (err error) {
	config := job.DefaultConfig()
	config.PollInterval, config.Listen = time.Hour, true
	d, err := e.startDaemon(ctx, config)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.stop()) }()
	if err := e.clear(ctx); err != nil {
		return err
	}
	spec := everyone(outbox.TypeInbox)
	spec.Audience = channels.WithIDs(1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
	var whole, woken []float64
	for n := range e.enqueues + 1 {
		if err := pause(ctx, rest+rand.N(rest)); err != nil {
			return err
		}
		began := time.Now()
		id, err := job.NewStore(e.pool).Enqueue(ctx, spec)
		if err != nil {
			return err
		}
		enqueued := time.Now()
		first, err := d.await(ctx, id, "chunk")
		if err != nil {
			return err
		}
		if _, err := d.await(ctx, id, job.EventFinished); err != nil {
			return err
		}
		if n > 0 { // the first connects, prepares statements, may come before LISTEN
			whole = append(whole, milliseconds(first.Sub(began)))
			woken = append(woken, milliseconds(first.Sub(enqueued)))
		}
	}
	r.figure("first_chunk_p50", "enqueue to first chunk, p50", percentile(whole, 50), unitMS)
	r.figure("first_chunk_p99", "enqueue to first chunk, p99", percentile(whole, 99), unitMS)
	r.figure("first_chunk_max", "enqueue to first chunk, slowest", percentile(whole, 100), unitMS)
	r.figure("after_enqueue_p50", "of it after the enqueue's commit, p50", percentile(woken, 50), unitMS)
	r.figure("enqueues", "jobs timed", float64(len(whole)), unitCount)
	return nil
}

const (
	staleAfter = 2 * time.Second
	// killTries is how often a kill may miss because the job was done already.
	killTries = 4
	// victimChunks is how many chunks the runner that is killed has before it, at least:
	// enough to be killed in the middle of them.
	victimChunks = 100
)

// takeover kills runner processes in the middle of a job to everyone while another runner
// waits, and times the way to the successor's first committed chunk. The stale limit is
// short, so that what is added to it shows: the rest of the poll interval and the resumption
// itself. Each job has to end with exactly its rows.
func takeover(ctx context.Context, e *env, r *result) error {
	config := job.DefaultConfig()
	config.StaleAfter, config.StatementTimeout = staleAfter, staleAfter/2
	config.Retry.Max = staleAfter / 2
	var whole, excess, resumed []float64
	for n := range e.kills {
		all, after, err := time.Duration(0), time.Duration(0), errMissedKill
		for try := 0; errors.Is(err, errMissedKill) && try < killTries; try++ {
			all, after, err = e.kill(ctx, config)
		}
		if err != nil {
			return err
		}
		whole, resumed = append(whole, milliseconds(all)), append(resumed, milliseconds(after))
		excess = append(excess, milliseconds(all-staleAfter))
		e.say("  %d/%d: %s ms, %s ms of it from resuming to the chunk", n+1, e.kills, number(milliseconds(all)), number(milliseconds(after)))
	}
	r.figure("takeover_p50", "kill -9 to the successor's first chunk, p50", median(whole), unitMS)
	r.figure("takeover_max", "slowest", percentile(whole, 100), unitMS)
	r.figure("excess_p50", fmt.Sprintf("beyond stale_after (%s), p50", staleAfter), median(excess), unitMS)
	r.figure("excess_max", "slowest", percentile(excess, 100), unitMS)
	r.figure("resume_p50", "of it from resuming to the chunk, p50", median(resumed), unitMS)
	r.figure("kills", "runners killed, every job exact", float64(len(whole)), unitCount)
	r.note("The heartbeat is up to one chunk older than the kill; the successor polls every %s.", config.PollInterval)
	return nil
}

// kill kills one runner process at a random chunk of the first six tenths and returns the
// time from there to the successor's first committed chunk, and what of it came after the
// claim. The successor starts to poll at the first chunk, so the kill falls anywhere between
// two polls when the job is long enough.
func (e *env) kill(ctx context.Context, config job.Config) (whole, resumed time.Duration, err error) {
	id, err := e.enqueue(ctx, everyone(outbox.TypeInbox))
	if err != nil {
		return 0, 0, err
	}
	rows := min(2000, e.size/victimChunks)
	victim, err := e.startChild(ctx, channels.DefaultRelation, constant(config, rows))
	if err != nil {
		return 0, 0, err
	}
	var d *daemon
	if err = victim.awaitChunks(1); err == nil {
		d, err = e.startDaemon(ctx, config) // there before the kill, and finds the lane held
	}
	if d != nil {
		defer func() { err = errors.Join(err, d.stop()) }()
	}
	if err == nil {
		err = victim.awaitChunks(2 + rand.N(e.size/rows*6/10))
	}
	killed := time.Now()
	_ = victim.cmd.Process.Kill() // how it ended says the next line
	last, ended := victim.end()
	switch {
	case err != nil:
		return 0, 0, errors.Join(err, ended)
	case ended == nil || last.Ended:
		return 0, 0, errMissedKill
	}
	claimed, err := d.await(ctx, id, job.EventResumed)
	if err != nil {
		return 0, 0, errors.Join(err, e.missedKill(ctx, id))
	}
	first, err := d.await(ctx, id, "chunk")
	if err != nil {
		return 0, 0, err
	}
	if _, err := d.await(ctx, id, job.EventFinished); err != nil {
		return 0, 0, err
	}
	return first.Sub(killed), first.Sub(claimed), e.checkRows(ctx, id, e.active)
}

// missedKill reports whether the job ended under the first runner after all.
func (e *env) missedKill(ctx context.Context, id int64) error {
	j, err := job.NewStore(e.pool).Get(ctx, id)
	if err == nil && j.Status == job.Processed && j.Fence == 1 {
		return errMissedKill
	}
	return errors.Join(err, fmt.Errorf("it is %s, fence %d, %d rows", j.Status, j.Fence, j.RowsWritten))
}
