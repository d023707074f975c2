package job

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/cursor"
	"github.com/belfryhq/belfry/job/governor"
)

// run is one runner's time with a job, from its claim to its end, under one fence.
type run struct {
	*Runner
	claimed
	job      Job
	kind     Type
	log      zerolog.Logger
	walker   walker          // nil until the walk is open
	after    cursor.Position // the job's cursor as this run knows it
	bound    cursor.Position
	governor governor.Governor
	pace     pace
	poison   poison
	meter    meter
	failed   int       // errors in a row since the last progress
	short    int       // of these, the shortages
	since    time.Time // the first of them
	retrying bool      // skipped recipients must be retried first
	overdue  bool      // some waiting jobs did not start in time
	outcome  *Outcome

	deafUntil time.Time // the abort cache did not answer and is not queried before this time; zero if it answered
}

// errInterrupted reports a soft or hard stop. The job must be handed back.
var errInterrupted = errors.New("interrupted")

// cleanupTimeout bounds the statements that end a run after its context did.
const cleanupTimeout = 5 * time.Second

// run takes the claimed job to the end of its run and returns the job's row then.
// ctx is the soft stop, hard the hard one; jobs that expire meanwhile are added to
// out. An error means that the database does not answer any more.
func (r *Runner) run(ctx, hard context.Context, t claimed, out *Outcome) (Job, error) {
	u := &run{
		Runner: r, claimed: t, job: Job{ID: t.id, Fence: t.fence}, outcome: out,
		log: r.log.With().Int64("job_id", t.id).Int64("fence", t.fence).Logger(),
	}
	defer t.conn.Drop()
	err := u.begin(context.WithoutCancel(hard)) // the job belongs to this run: a stop must hand it back
	if err == nil {
		err = u.walk(ctx, hard)
	}
	if lost := errors.Is(err, ErrUnreachable); lost && !errors.As(err, new(givenUpError)) {
		u.log.WithLevel(u.quietly(err)).Err(err).Msg("run lost the database")
		u.report("lost", 0, 0)
		return u.job, err
	}
	if errEnd := u.end(err); errEnd != nil {
		u.log.WithLevel(u.quietly(errEnd)).Err(errEnd).Msg("end of run not recorded")
		if errors.Is(err, errInterrupted) {
			return u.job, nil // stays RUNNING and becomes stale; the stop goes on
		}
		return u.job, errEnd
	}
	return u.job, nil
}

// begin terminates the connections of a stale run, reads the claimed job, and announces the run. An
// unreadable row, or a job that no longer belongs to this run, ends it.
func (u *run) begin(ctx context.Context) error {
	if u.resumed {
		u.terminateOldBackends(ctx)
	}
	j, err := u.read(ctx)
	switch {
	case errors.Is(err, ErrNotFound):
		return errRunOver
	case err != nil && retryable(err):
		return fmt.Errorf("%w: begin run: %w", ErrUnreachable, err) // RUNNING under our name: the next claim resumes it
	case err != nil:
		return givenUpError{fmt.Errorf("read the job: %w", err)}
	case !u.owns(j):
		return errRunOver
	}
	u.job, u.kind = j, u.types[j.Type]
	u.governor = governor.New(u.settings(j.settings()), u.learnt(j.Type))
	u.log = u.log.With().Str("job_type", j.Type).Logger()
	u.meter.start(j.ChannelsRead)
	event := EventClaimed
	if u.resumed {
		event = EventResumed
	}
	u.log.Info().Str("cursor", j.Cursor).Int64("rows", j.RowsWritten).Msg(phrase(event))
	u.report(event, 0, 0)
	return nil
}

// read returns the job's row as it is now, without its Version.
func (u *run) read(ctx context.Context) (j Job, err error) {
	err = u.conn.act(ctx, storeTimeout, func(ctx context.Context, tx pgx.Tx) error {
		j, err = find(ctx, tx, u.id, false)
		return err
	})
	return j, mapError(err)
}

// owns reports whether the job, as read, is this run's: RUNNING under its fence.
func (u *run) owns(j Job) bool { return j.Status == Running && j.Fence == u.fence }

// walk runs chunks until the keys are exhausted and the job is PROCESSED (nil), or
// until a stop, the end of the run, or an error that ends it.
func (u *run) walk(ctx, hard context.Context) error {
	for {
		if ctx.Err() != nil || hard.Err() != nil {
			return errInterrupted
		}
		done, err := u.step(ctx, hard)
		if err == nil {
			u.failed = 0
			if done {
				return nil
			}
			continue
		}
		if hard.Err() == nil {
			err = u.isolate(hard, err)
		}
		switch {
		case err == nil:
			continue
		case errors.Is(err, errRunOver), errors.As(err, new(yieldError)), errors.As(err, new(exceedsError)):
			return err
		case hard.Err() != nil:
			return fmt.Errorf("%w: %w", errInterrupted, context.Cause(hard))
		}
		if err := u.recover(ctx, hard, err); err != nil {
			return err
		}
	}
}

// step takes the next step: it opens the walk, waits because of the load, retries a skipped recipient, runs
// a chunk, or finishes.
func (u *run) step(soft, ctx context.Context) (done bool, err error) {
	if err := u.flagged(ctx); err != nil {
		return false, err
	}
	if u.walker == nil {
		return false, u.open(ctx)
	}
	if u.overdue {
		u.overdue = false // until the check before the next chunk
		u.expireOverdue(ctx)
		return false, nil
	}
	if waited, err := u.hold(soft, ctx); waited || err != nil {
		return false, err
	}
	if u.retrying {
		return false, u.retrySkip(ctx)
	}
	exhausted, err := u.chunk(ctx)
	if err != nil || !exhausted {
		return false, err
	}
	return true, u.finish(ctx)
}

// expireOverdue makes jobs that did not start in time EXPIRED, at most expireLimit. A run may take hours, and the check
// for a more urgent job before each chunk would read over all of them. After a failure the next chunk tries again.
func (u *run) expireOverdue(ctx context.Context) {
	var expired []int64
	err := u.conn.act(ctx, u.config.StatementTimeout, func(ctx context.Context, tx pgx.Tx) (err error) {
		expired, err = u.expire(ctx, tx)
		return err
	})
	if err != nil {
		u.log.WithLevel(u.quietly(err)).Err(err).Msg("overdue jobs not expired")
		return
	}
	u.logExpired(expired, u.outcome)
}

// open begins the walk at the job's cursor; the first run of a job freezes its
// bound. The row is read again, because an earlier try may have frozen it although
// its COMMIT seemed to fail. The bound is found before the row is locked, so an
// abort never waits for it.
func (u *run) open(ctx context.Context) error {
	var (
		j            Job
		walker       walker
		after, bound cursor.Position
		retrying     bool
	)
	err := u.inTx(ctx, false, func(ctx context.Context, tx pgx.Tx) (err error) {
		if j, err = find(ctx, tx, u.id, false); err != nil {
			return err
		}
		if !u.owns(j) {
			return errRunOver
		}
		keyset := u.kind.keyset
		if after, err = keyset.Decode(j.Cursor); err != nil {
			return fmt.Errorf("cursor: %w", err)
		}
		if j.Bound != nil {
			if bound, err = keyset.Decode(*j.Bound); err != nil {
				return fmt.Errorf("bound: %w", err)
			}
		} else if bound, err = u.kind.bound(ctx, tx, j); err != nil {
			return fmt.Errorf("find bound: %w", err)
		}
		if walker, err = u.kind.open(ctx, tx, j, after, bound); err != nil {
			return fmt.Errorf("open walk: %w", err)
		}
		if retrying, err = u.retryWanted(ctx, tx); err != nil {
			return err
		}
		if j.Bound == nil || j.ChannelsTotal == nil && walker.total() > 0 {
			return u.freeze(ctx, tx, &j, keyset.Encode(bound), walker.total())
		}
		return nil
	})
	if err != nil {
		return err
	}
	u.job, u.walker, u.after, u.bound, u.retrying = j, walker, after, bound, retrying
	return nil
}

func (u *run) freeze(ctx context.Context, tx pgx.Tx, j *Job, bound string, total int64) error {
	j.Bound = &bound
	if total > 0 {
		total += j.ChannelsRead // the remainder of an audience that was edited since
		j.ChannelsTotal = &total
	}
	tag, err := tx.Exec(ctx, queries.runFreeze, pgx.StrictNamedArgs{
		"id": u.id, "fence": u.fence, "bound": bound, "total": j.ChannelsTotal,
	})
	if err != nil {
		return fmt.Errorf("freeze bound: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return errMoved
	}
	return nil
}

// finish makes the job PROCESSED, in its own synchronous transaction, unless its counts disagree.
func (u *run) finish(ctx context.Context) error {
	err := u.change(ctx, queries.runFinish, pgx.StrictNamedArgs{"before": u.job.Cursor})
	if !errors.Is(err, errMoved) {
		return err
	}
	j, errGet := u.read(ctx)
	if errGet == nil && u.owns(j) && j.Cursor == u.job.Cursor {
		return givenUpError{fmt.Errorf(
			"the counts do not agree: read %d, matched %d, written %d, declined %d, skipped %d; `belfry jobs audit %d` shows the recipients",
			j.ChannelsRead, j.ChannelsMatched, j.RowsWritten, j.Declined, j.Skipped, j.ID)}
	}
	return err
}

// change runs one guarded statement that ends the run.
func (u *run) change(ctx context.Context, statement string, args pgx.StrictNamedArgs) error {
	args["id"], args["fence"] = u.id, u.fence
	return u.wait(ctx, func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, statement, args)
		if err == nil && tag.RowsAffected() == 0 {
			return errMoved
		}
		return err
	})
}

// handBack makes the job PENDING again, and records the reason if the run yields.
func (u *run) handBack(ctx context.Context, why yieldError) error {
	return u.wait(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, queries.actAs, pgx.StrictNamedArgs{"actor": u.config.Name, "reason": why.reason, "kind": why.kind})
		if err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, queries.runHandBack, pgx.StrictNamedArgs{"id": u.id, "fence": u.fence})
		if err == nil && tag.RowsAffected() == 0 {
			return errMoved
		}
		return err
	})
}

// end records how the run ended and reads the job as it is then.
func (u *run) end(cause error) error {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
	defer cancel()
	var err error
	var yield yieldError
	var exceeds exceedsError
	switch {
	case cause == nil, errors.Is(cause, errRunOver):
	case errors.Is(cause, errInterrupted):
		err = u.handBack(ctx, yieldError{})
	case errors.As(cause, &yield):
		err = u.handBack(ctx, yield)
	case errors.As(cause, &exceeds):
		err = u.exceed(ctx, exceeds)
	default:
		err = u.change(ctx, queries.runFail, pgx.StrictNamedArgs{"error": errorText(cause)})
	}
	if err != nil && !errors.Is(err, errMoved) {
		return fmt.Errorf("end run of job %d: %w", u.id, mapError(err))
	}
	j, err := u.read(ctx)
	switch {
	case err != nil && retryable(err):
		return err
	case errors.Is(err, ErrNotFound): // deleted under the run
		u.report("lost", 0, 0)
		return nil
	case err != nil: // a row that cannot be read: it is FAILED now
		u.job.Status, u.job.LastError = Failed, err.Error()
	default:
		u.job = j
	}
	u.announce(cause)
	return nil
}

// announce logs and reports the end of the run.
func (u *run) announce(cause error) {
	event := "lost"
	if u.job.Fence == u.fence {
		switch u.job.Status {
		case Processed:
			event = EventFinished
		case Aborted:
			event = EventAborted
		case Failed:
			event = EventFailed
		case Pending:
			event = EventInterrupted
			var yield yieldError
			if errors.As(cause, &yield) {
				event = yield.kind
			}
		case Running, Expired:
		}
	}
	level := zerolog.InfoLevel
	switch event {
	case EventFailed:
		level, cause = zerolog.ErrorLevel, errors.New(u.job.LastError)
	case "lost":
		level = zerolog.WarnLevel
	case EventAborted:
		if errors.As(cause, new(exceedsError)) {
			level = zerolog.WarnLevel
		} else {
			cause = nil
		}
	default:
		cause = nil
	}
	u.log.WithLevel(level).AnErr("error", cause).Str("cursor", u.job.Cursor).Int64("chunk", u.job.Chunks).
		Int64("rows", u.job.RowsWritten).Msg(phrase(event))
	u.report(event, 0, 0)
}

// phrase is the log message of a run's transition.
func phrase(event string) string {
	switch event {
	case EventClaimed:
		return "job claimed"
	case EventResumed:
		return "job taken over from a dead run"
	case EventInterrupted:
		return "job handed back"
	case EventPreempted:
		return "job handed back for a more urgent one"
	case EventLanePaused:
		return "job handed back: its lane is paused"
	case EventHalted:
		return "job handed back: belfry is halted"
	case EventAborted:
		return "job aborted"
	case EventFinished:
		return "job processed"
	case EventFailed:
		return "job failed"
	}
	return "job lost"
}
