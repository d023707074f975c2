package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// seen is what a daemon's observer saw, and when.
type seen struct {
	at    time.Time
	event string
	job   int64
}

// startDaemon does Runner.Run in this process; stop ends it and waits. There is room for the
// events of one job: the reader keeps up between jobs.
func (e *env) startDaemon(ctx context.Context, config job.Config) (events chan seen, stop func()) {
	events = make(chan seen, 64)
	_, stop = e.start(ctx, func(ctx context.Context) error {
		runner, err := job.NewRunner(e.pool, config, outbox.Types(e.store), job.WithObserver(func(p job.Progress) {
			select {
			case events <- seen{time.Now(), p.Event, p.Job.ID}:
			case <-ctx.Done():
			}
		}), job.WithLogger(zerolog.New(e.progress).Level(zerolog.WarnLevel))) // why a job does not come
		if err != nil {
			return err
		}
		return runner.Run(ctx)
	})
	return events, stop
}

// eventTimeout is when an event that has not come is an error.
const eventTimeout = time.Minute

// await returns when the job's next event of the kind came.
func (e *env) await(ctx context.Context, events <-chan seen, id int64, event string) time.Time {
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	for {
		select {
		case s := <-events:
			if s.job == id && s.event == event {
				return s.at
			}
		case <-ctx.Done():
			e.check(fmt.Errorf("job %d: no event %q: %w", id, event, context.Cause(ctx)))
		}
	}
}

// rest is the least and the spread of the pauses between enqueues, so that jobs meet a runner
// that waits and not one that is about to look for more.
const rest = 10 * time.Millisecond

// latency times tiny jobs from the call that enqueues them, its own commit included, to the
// moment their first chunk is committed. The runner's poll interval is an hour: without the
// hint no job would be found.
func latency(ctx context.Context, e *env, r *result) {
	config := job.DefaultConfig()
	config.PollInterval, config.Listen = time.Hour, true
	events, stop := e.startDaemon(ctx, config)
	defer stop()
	e.clear(ctx)
	spec := everyone(outbox.TypeInbox)
	spec.Audience = channels.WithIDs(1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
	var whole, woken []float64
	for n := range e.enqueues + 1 {
		e.check(lifecycle.Pause(ctx, rest+rand.N(rest)))
		began := time.Now()
		id := e.enqueue(ctx, spec)
		enqueued := time.Now()
		first := e.await(ctx, events, id, "chunk")
		e.await(ctx, events, id, job.EventFinished)
		if n > 0 { // the first connects, prepares statements, may come before LISTEN
			whole = append(whole, milliseconds(first.Sub(began)))
			woken = append(woken, milliseconds(first.Sub(enqueued)))
		}
	}
	r.figure("first_chunk_p50", "enqueue to first chunk, p50", percentile(whole, 50), unitMS)
	r.figure("first_chunk_p99", "enqueue to first chunk, p99", percentile(whole, 99), unitMS, atMost(50))
	r.figure("first_chunk_max", "enqueue to first chunk, slowest", percentile(whole, 100), unitMS)
	r.figure("after_enqueue_p50", "of it after the enqueue's commit, p50", percentile(woken, 50), unitMS)
	r.figure("enqueues", "jobs timed", float64(len(whole)), unitCount)
}

const (
	staleAfter = 2 * time.Second
	// killTries is how often a kill may miss because the job was done already.
	killTries = 4
	// victimChunks is how many chunks the runner that is killed has before it, at least:
	// enough to be killed in the middle of them.
	victimChunks = 100
)

var errMissedKill = errors.New("the job was done before its runner was killed")

// takeover kills runner processes in the middle of a job to everyone while another runner
// waits, and times the way to the successor's first committed chunk. The stale limit is
// short, so that what is added to it shows: the rest of the poll interval and the resumption
// itself. Each job has to end with exactly its rows.
func takeover(ctx context.Context, e *env, r *result) {
	config := job.DefaultConfig()
	config.StaleAfter, config.StatementTimeout = staleAfter, staleAfter/2
	config.Retry.Max = staleAfter / 2
	rows := min(2000, e.size/victimChunks)
	var whole, resumed []float64
	for n := range e.kills {
		var all, after time.Duration
		err := errMissedKill
		for try := 0; errors.Is(err, errMissedKill) && try < killTries; try++ {
			err = e.attempt(func() { all, after = e.kill(ctx, config, rows, 2+rand.N(e.size/rows*6/10)) })
		}
		e.check(err)
		whole, resumed = append(whole, milliseconds(all)), append(resumed, milliseconds(after))
		e.say("  %d/%d: %s ms, %s ms of it from resuming to the chunk", n+1, e.kills, number(milliseconds(all)), number(milliseconds(after)))
	}
	r.figure("takeover_p50", "kill -9 to the successor's first chunk, p50", median(whole), unitMS)
	r.figure("takeover_max", "slowest", percentile(whole, 100), unitMS)
	r.figure("excess_p50", fmt.Sprintf("beyond stale_after (%s), p50", staleAfter), median(whole)-milliseconds(staleAfter), unitMS)
	r.figure("excess_max", "slowest", percentile(whole, 100)-milliseconds(staleAfter), unitMS)
	r.figure("resume_p50", "of it from resuming to the chunk, p50", median(resumed), unitMS)
	r.figure("kills", "runners killed, every job exact", float64(len(whole)), unitCount)
	r.note("The heartbeat is up to one chunk older than the kill; the successor polls every %s.", config.PollInterval)
}

// kill kills one runner process after so many chunks of so many rows and returns the time
// from there to the successor's first committed chunk, and what of it came after the claim.
// The successor starts to poll at the first chunk, so the kill falls anywhere between two
// polls when the job is long enough.
func (e *env) kill(ctx context.Context, config job.Config, rows, after int64) (whole, resumed time.Duration) {
	e.clear(ctx)
	id := e.enqueue(ctx, everyone(outbox.TypeInbox))
	var successor <-chan seen
	var stop func()
	var killed time.Time
	peak, err := e.runApart(ctx, channels.DefaultRelation, constant(config, rows), func(chunks int64, victim *os.Process) {
		switch {
		case successor == nil:
			successor, stop = e.startDaemon(ctx, config) // there before the kill, and finds the lane held
		case chunks >= after && killed.IsZero():
			killed = time.Now()
			_ = victim.Kill() // how it ended is what runApart returns
		}
	})
	if successor != nil {
		defer stop()
	}
	if err == nil || peak > 0 {
		err = errMissedKill
	} else if !killed.IsZero() {
		err = nil // ended as it was to end
	}
	e.check(err)
	var claimed time.Time
	if err := e.attempt(func() { claimed = e.await(ctx, successor, id, job.EventResumed) }); err != nil {
		e.check(errors.Join(err, e.missedKill(ctx, id)))
	}
	first := e.await(ctx, successor, id, "chunk")
	e.await(ctx, successor, id, job.EventFinished)
	e.checkRows(ctx, id, e.active)
	return first.Sub(killed), first.Sub(claimed)
}

// missedKill reports whether the job ended under the first runner after all.
func (e *env) missedKill(ctx context.Context, id int64) error {
	j, err := job.NewStore(e.pool).Get(ctx, id)
	if err == nil && j.Status == job.Processed && j.Fence == 1 {
		return errMissedKill
	}
	return errors.Join(err, fmt.Errorf("it is %s, fence %d, %d rows", j.Status, j.Fence, j.RowsWritten))
}
