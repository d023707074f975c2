package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

const (
	staleAfter = 2 * time.Second
	// takeoverTimeout is when a take-over that has not come is an error.
	takeoverTimeout = time.Minute
	// killTries is how often a kill may miss because the job was done already.
	killTries = 3
)

var errMissedKill = errors.New("the job was done before its runner was killed")

// takeover kills runner processes in the middle of a job to everyone while another
// runner waits, and times the way to the successor's first committed chunk. The
// stale limit is short, so that what is added to it shows: the rest of the poll
// interval and the resumption itself. Each job has to end with exactly its rows.
func takeover(ctx context.Context, e *env, r *Result) error {
	config := job.DefaultConfig()
	config.StaleAfter, config.StatementTimeout = staleAfter, staleAfter/2
	config.Retry.Max = staleAfter / 2
	var whole, excess, resumed []float64
	for n := range e.Kills {
		s, err := e.kill(ctx, config)
		for try := 1; errors.Is(err, errMissedKill) && try < killTries; try++ {
			s, err = e.kill(ctx, config)
		}
		if err != nil {
			return err
		}
		whole = append(whole, milliseconds(s.whole))
		excess = append(excess, milliseconds(s.whole-staleAfter))
		resumed = append(resumed, milliseconds(s.resumed))
		e.progress("  %d/%d: %s ms, %s ms of it from resuming to the chunk", n+1, e.Kills, number(milliseconds(s.whole)), number(milliseconds(s.resumed)))
	}
	r.figure("takeover_p50", "kill -9 to the successor's first chunk, p50", median(whole), unitMS, nil)
	r.figure("takeover_max", "slowest", percentile(whole, 100), unitMS, nil)
	r.figure("excess_p50", fmt.Sprintf("beyond stale_after (%s), p50", staleAfter), median(excess), unitMS, nil)
	r.figure("excess_max", "slowest", percentile(excess, 100), unitMS, nil)
	r.figure("resume_p50", "of it from resuming to the chunk, p50", median(resumed), unitMS, nil)
	r.figure("kills", "runners killed, every job exact", float64(len(whole)), unitCount, nil)
	r.Notes = append(r.Notes, fmt.Sprintf("The heartbeat is up to one chunk older than the kill; the successor polls every %s.", config.PollInterval))
	return nil
}

// succession is one take-over.
type succession struct {
	whole   time.Duration // kill to the successor's first committed chunk
	resumed time.Duration // the part after the successor claimed the job
}

// victimChunks is how many chunks the runner that is killed has before it, at
// least: enough to be killed in the middle of them.
const victimChunks = 100

// kill kills one runner process at a random chunk of the first six tenths. The
// successor starts to poll at the first chunk, so the kill falls anywhere between
// two polls when the job is long enough.
func (e *env) kill(ctx context.Context, config job.Config) (s succession, err error) {
	if err := e.clear(ctx); err != nil {
		return s, err
	}
	id, err := job.NewStore(e.pool).Enqueue(ctx, everyone(outbox.TypeInbox))
	if err != nil {
		return s, err
	}
	small := config
	rows := int(min(2000, e.Channels/victimChunks))
	small.Chunk.MinRows, small.Chunk.InitialRows, small.Chunk.MaxRows = rows, rows, rows
	victim, err := e.startChild(ctx, channels.DefaultRelation, small)
	if err != nil {
		return s, err
	}
	if err := victim.awaitChunks(1); err != nil {
		_, errEnd := victim.end()
		return s, errors.Join(err, errEnd)
	}
	// The successor is there before the kill, and finds the lane held.
	d, err := e.startDaemon(ctx, config)
	if err != nil {
		return s, errors.Join(err, victim.cmd.Process.Kill(), victim.cmd.Wait())
	}
	defer func() { err = errors.Join(err, d.stop()) }()
	all := e.Channels / int64(rows)
	if err := victim.awaitChunks(2 + rand.Int64N(all*6/10)); err != nil { //nolint:gosec // not for secrets
		_, errEnd := victim.end()
		return s, errors.Join(err, errEnd)
	}
	killed := time.Now()
	if err := victim.cmd.Process.Kill(); err != nil {
		return s, fmt.Errorf("kill runner process: %w", err)
	}
	if last, err := victim.end(); err == nil || last.Ended {
		return s, errMissedKill
	}
	resumed, err := d.await(ctx, id, job.EventResumed, takeoverTimeout)
	if err != nil {
		return s, errors.Join(err, e.missedKill(ctx, id))
	}
	first, err := d.await(ctx, id, "chunk", takeoverTimeout)
	if err != nil {
		return s, err
	}
	if _, err := d.await(ctx, id, job.EventFinished, takeoverTimeout); err != nil {
		return s, err
	}
	s = succession{whole: first.at.Sub(killed), resumed: first.at.Sub(resumed.at)}
	return s, e.checkRows(ctx, job.Job{ID: id, Type: outbox.TypeInbox}, e.active)
}

// missedKill reports whether the job ended under the first runner after all.
func (e *env) missedKill(ctx context.Context, id int64) error {
	var status job.Status
	var fence, rows int64
	err := e.pool.QueryRow(ctx, queries.SQL("JobState"), pgx.StrictNamedArgs{"id": id}).Scan(&status, &fence, &rows)
	if err != nil {
		return fmt.Errorf("job %d: %w", id, err)
	}
	if status == job.Processed && fence == 1 {
		return errMissedKill
	}
	return fmt.Errorf("job %d is %s, fence %d, %d rows", id, status, fence, rows)
}

// awaitChunks reads the child's lines until it has committed n chunks.
func (c *child) awaitChunks(n int64) error {
	for {
		line, err := c.next()
		if err != nil {
			return fmt.Errorf("runner process before chunk %d: %w", n, err)
		}
		if line.Ended {
			return errMissedKill
		}
		if line.Chunks >= n {
			return nil
		}
	}
}
