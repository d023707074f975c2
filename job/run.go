package job

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/cursor"
)

// run is one tenure of a job: from its claim to its end, under one fence.
type run struct {
	*Runner
	tenure
	job    Job
	kind   Type
	log    zerolog.Logger
	walker walker          // nil until the walk is open
	after  cursor.Position // the job's cursor as this run knows it
	bound  cursor.Position
	size   sizer
	meter  meter
	failed int // errors in a row since the last progress
}

// errInterrupted reports a soft or hard stop; the job is to be handed back.
var errInterrupted = errors.New("interrupted")

// cleanupTimeout bounds the statements that end a run after its context did.
const cleanupTimeout = 5 * time.Second

// run takes the claimed job to the end of its run and returns the job's row then.
// ctx is the soft stop, hard the hard one. An error means that the database does
// not answer any more.
func (r *Runner) run(ctx, hard context.Context, t tenure) (Job, error) {
	u := &run{
		Runner: r, tenure: t, job: Job{ID: t.id, Fence: t.fence}, size: newSizer(r.config.Chunk),
		log: r.log.With().Int64("job_id", t.id).Int64("fence", t.fence).Logger(),
	}
	err := u.begin(context.WithoutCancel(hard)) // the job is ours: a stop has to hand it back
	if err == nil {
		err = u.walk(ctx, hard)
	}
	if lost := errors.Is(err, ErrUnreachable); lost && !errors.As(err, new(givenUpError)) {
		u.log.Warn().Err(err).Msg("run lost the database")
		u.report("lost", 0, 0)
		return u.job, err
	}
	if errEnd := u.end(err); errEnd != nil {
		u.log.Warn().Err(errEnd).Msg("end of run not recorded")
		if errors.Is(err, errInterrupted) {
			return u.job, nil // stays RUNNING and becomes stale; the stop goes on
		}
		return u.job, errEnd
	}
	return u.job, nil
}

// begin ends what a stale run left behind, reads the claimed job, and announces
// the run. A row that cannot be read, or a job that is not this run's any more,
// ends it.
func (u *run) begin(ctx context.Context) error {
	if u.resumed {
		u.evict(ctx)
	}
	j, err := NewStore(u.pool).Get(ctx, u.id)
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

// owns reports whether the job, as read, is this run's: RUNNING under its fence.
func (u *run) owns(j Job) bool { return j.Status == Running && j.Fence == u.fence }

// walk runs chunks until the keys are exhausted and the job is PROCESSED (nil), or
// until a stop, the end of the run, or an error that ends it.
func (u *run) walk(ctx, hard context.Context) error {
	for {
		if ctx.Err() != nil || hard.Err() != nil {
			return errInterrupted
		}
		done, err := u.step(hard)
		if err == nil {
			u.failed = 0
			if done {
				return nil
			}
			continue
		}
		if errors.Is(err, errRunOver) {
			return err
		}
		if hard.Err() != nil {
			return fmt.Errorf("%w: %w", errInterrupted, context.Cause(hard))
		}
		if err := u.recover(ctx, hard, err); err != nil {
			return err
		}
	}
}

// step does the next thing: open the walk, or run a chunk, or finish.
func (u *run) step(ctx context.Context) (done bool, err error) {
	if u.walker == nil {
		return false, u.open(ctx)
	}
	exhausted, err := u.chunk(ctx)
	if err != nil || !exhausted {
		return false, err
	}
	return true, u.finish(ctx)
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
	)
	err := u.inTx(ctx, false, func(ctx context.Context, tx pgx.Tx) (err error) {
		if j, err = get(ctx, tx, u.id); err != nil {
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
		if j.Bound == nil {
			return u.freeze(ctx, tx, &j, keyset.Encode(bound), walker.total())
		}
		return nil
	})
	if err != nil {
		return err
	}
	u.job, u.walker, u.after, u.bound = j, walker, after, bound
	return nil
}

func (u *run) freeze(ctx context.Context, tx pgx.Tx, j *Job, bound string, total int64) error {
	j.Bound = &bound
	if total > 0 {
		j.ChannelsTotal = &total
	}
	tag, err := tx.Exec(ctx, queries.SQL("RunFreeze"), pgx.StrictNamedArgs{
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

// recover decides after an error: the job's row, read on a fresh connection, says
// what became of the chunk. nil means go on from the row's cursor.
func (u *run) recover(ctx, hard context.Context, cause error) error {
	for {
		u.failed++
		lost := errors.Is(mapError(cause), ErrUnreachable)
		if lost {
			u.pool.Reset() // idle connections to a server that went away fail one by one
		}
		u.evict(hard)
		now, err := u.beat(hard, cause)
		switch {
		case errors.Is(err, errRunOver):
			return err
		case hard.Err() != nil:
			return fmt.Errorf("%w: %w", errInterrupted, context.Cause(hard))
		case err == nil && now.Cursor != u.job.Cursor:
			return u.adopt(now)
		case err == nil && !retryable(cause):
			return givenUpError{cause}
		case u.failed > u.config.Retry.Limit:
			if err != nil {
				return fmt.Errorf("%w: gave up after %d tries: %w", ErrUnreachable, u.failed, err)
			}
			return givenUpError{fmt.Errorf("gave up after %d tries: %w", u.failed, cause)}
		}
		if timedOut(cause) {
			u.size.shrink()
		}
		wait := u.backoff()
		u.log.Warn().Err(cause).Int("attempt", u.failed).Dur("elapsed_ms", wait).Msg("chunk will be retried")
		u.pause(ctx, wait)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return errInterrupted
		}
		cause = err // the row could not be read: the database is still away
	}
}

// givenUpError ends the run with the job FAILED and its cause as last_error.
type givenUpError struct{ cause error }

func (e givenUpError) Error() string { return e.cause.Error() }
func (e givenUpError) Unwrap() error { return e.cause }

// progress is how far the job's row says the job is.
type progress struct {
	Cursor       string `db:"cursor"`
	Chunks       int64  `db:"chunks"`
	ChannelsRead int64  `db:"channels_read"`
	RowsWritten  int64  `db:"rows_written"`
}

// adopt goes on from the row's cursor where it differs from the run's: ahead when a
// COMMIT that seemed to fail did not, behind when the server crashed and lost chunks
// that it had committed asynchronously, rows and cursor together.
func (u *run) adopt(now progress) error {
	u.log.Warn().Str("cursor", now.Cursor).Msg("going on from the cursor in the job's row")
	after, err := u.kind.keyset.Decode(now.Cursor)
	if err != nil {
		return givenUpError{fmt.Errorf("cursor of job %d: %w", u.id, err)}
	}
	u.after, u.failed = after, 0
	u.job.Cursor, u.job.Chunks, u.job.ChannelsRead, u.job.RowsWritten = now.Cursor, now.Chunks, now.ChannelsRead, now.RowsWritten
	return nil
}

// beat renews the heartbeat and returns the row's progress; errRunOver when the
// row is not this run's any more.
func (u *run) beat(ctx context.Context, cause error) (progress, error) {
	var now progress
	err := u.wait(ctx, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, queries.SQL("RunBeat"), pgx.StrictNamedArgs{
			"id": u.id, "fence": u.fence, "error": errorText(cause),
		})
		if err != nil {
			return err
		}
		now, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[progress])
		if errors.Is(err, pgx.ErrNoRows) {
			return errRunOver
		}
		return err
	})
	return now, err
}

// wait runs do in a short transaction with the patience of StaleAfter: the row may
// be locked by a connection that the run lost, until the server ends that.
func (u *run) wait(ctx context.Context, do func(context.Context, pgx.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, u.config.StaleAfter)
	defer cancel()
	return shortTx(ctx, u.pool, u.config.StaleAfter, do)
}

// errorText is an error as last_error can keep it: valid text without NUL, of
// bounded length, whatever a Writer put into it.
func errorText(err error) string {
	const longest = 4000
	text := strings.ReplaceAll(strings.ToValidUTF8(err.Error(), "\uFFFD"), "\x00", "\uFFFD")
	if len(text) > longest {
		text = strings.ToValidUTF8(text[:longest], "") + " …"
	}
	return text
}

// evict ends connections that a broken or stale run, this one or an earlier one,
// left in a transaction. It is a help, not a guarantee: where the role may not, their
// own timeouts end them.
func (u *run) evict(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	var ended int64
	err := shortTx(ctx, u.pool, cleanupTimeout, func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, queries.SQL("RunEvict"), pgx.StrictNamedArgs{"id": u.id, "fence": u.fence})
		ended = tag.RowsAffected()
		return err
	})
	switch {
	case err != nil:
		u.log.Warn().Err(err).Msg("left-over connections not ended")
	case ended > 0:
		u.log.Warn().Int64("rows", ended).Msg("left-over connections ended")
	}
}

// backoff is the pause before the next try: doubling from Initial up to Max.
func (u *run) backoff() time.Duration {
	d := u.config.Retry.Initial
	for range u.failed - 1 {
		if d *= 2; d >= u.config.Retry.Max {
			return u.config.Retry.Max
		}
	}
	return d
}

// pause waits, or less when a stop comes.
func (u *run) pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-u.stopped:
	}
}

// finish makes the job PROCESSED, in a transaction of its own that commits
// synchronously.
func (u *run) finish(ctx context.Context) error {
	return u.change(ctx, "RunFinish", pgx.StrictNamedArgs{"before": u.job.Cursor})
}

// change runs one guarded statement that ends the run.
func (u *run) change(ctx context.Context, statement string, args pgx.StrictNamedArgs) error {
	args["id"], args["fence"] = u.id, u.fence
	return u.wait(ctx, func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, queries.Get(statement).SQL, args)
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
	switch {
	case cause == nil, errors.Is(cause, errRunOver):
	case errors.Is(cause, errInterrupted):
		err = u.change(ctx, "RunHandBack", pgx.StrictNamedArgs{})
	default:
		err = u.change(ctx, "RunFail", pgx.StrictNamedArgs{"error": errorText(cause)})
	}
	if err != nil && !errors.Is(err, errMoved) {
		return fmt.Errorf("end run of job %d: %w", u.id, mapError(err))
	}
	j, err := NewStore(u.pool).Get(ctx, u.id)
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
		case Running:
		}
	}
	level := zerolog.InfoLevel
	switch event {
	case EventFailed:
		level, cause = zerolog.ErrorLevel, errors.New(u.job.LastError)
	case "lost":
		level = zerolog.WarnLevel
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
		return "job resumed from a stale run"
	case EventInterrupted:
		return "job handed back"
	case EventAborted:
		return "job aborted"
	case EventFinished:
		return "job processed"
	case EventFailed:
		return "job failed"
	}
	return "job lost"
}
