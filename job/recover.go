package job

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/db"
)

// recover decides after an error. The job's row, read on a new connection, determines what became of the
// chunk. nil means go on from the row's cursor.
func (u *run) recover(ctx, hard context.Context, cause error) error {
	for {
		if u.failed++; u.failed == 1 {
			u.since, u.short = time.Now(), 0
		}
		if shortage(cause) {
			u.short++
		}
		lost := errors.Is(mapError(cause), ErrUnreachable)
		if lost {
			u.pool.Reset() // idle connections to a server that went away fail one by one
		}
		u.conn.Drop()
		cause = u.blamed(hard, cause)
		u.terminateOldBackends(hard)
		began := time.Now()
		now, err := u.heartbeat(hard, cause)
		if err == nil {
			u.Runner.outage.Observe(began, nil)
			u.job.Chunks, u.job.ChannelsRead, u.job.ChannelsMatched = now.Chunks, now.ChannelsRead, now.ChannelsMatched
			u.job.RowsWritten, u.job.Declined, u.job.Skipped = now.RowsWritten, now.Declined, now.Skipped
		}
		switch {
		case errors.Is(err, errRunOver):
			return err
		case hard.Err() != nil:
			return fmt.Errorf("%w: %w", errInterrupted, context.Cause(hard))
		case err == nil && now.Cursor != u.job.Cursor:
			return u.adopt(now)
		case err == nil && !retryable(cause):
			return givenUpError{cause}
		case u.spent(cause):
			if err != nil {
				return fmt.Errorf("%w: gave up after %d tries: %w", ErrUnreachable, u.failed, err)
			}
			return givenUpError{fmt.Errorf("gave up after %d tries in %s: %w", u.failed, time.Since(u.since).Round(time.Millisecond), cause)}
		}
		if timedOut(cause) {
			u.governor.Shrink()
		}
		wait := u.backoff()
		u.log.WithLevel(u.quietly(cause)).Err(cause).Int("attempt", u.failed).Dur("elapsed_ms", wait).Msg("chunk will be retried")
		u.rest(ctx, wait)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return errInterrupted
		}
		cause = err // the row could not be read: the database is still away
	}
}

// spent reports whether the patience with a chunk's errors is at its end: a shortage
// has Retry.For from the first error on, and any other error Retry.Limit tries.
func (u *run) spent(cause error) bool {
	if shortage(cause) {
		return time.Since(u.since) >= u.live().Retry.For
	}
	return u.failed-u.short > u.live().Retry.Limit
}

// givenUpError ends the run with the job FAILED and its cause as last_error.
type givenUpError struct{ cause error }

func (e givenUpError) Error() string { return e.cause.Error() }
func (e givenUpError) Unwrap() error { return e.cause }

// progress is the progress in the job's row.
type progress struct {
	Cursor          string `db:"cursor"`
	Chunks          int64  `db:"chunks"`
	ChannelsRead    int64  `db:"channels_read"`
	ChannelsMatched int64  `db:"channels_matched"`
	RowsWritten     int64  `db:"rows_written"`
	Declined        int64  `db:"declined"`
	Skipped         int64  `db:"skipped"`
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
	u.poison.forget()
	u.job.Cursor = now.Cursor
	return nil
}

// heartbeat takes another connection, renews the heartbeat under it and returns the row's progress, or
// errRunOver if the row no longer belongs to this run. It waits up to StaleAfter, as wait does.
func (u *run) heartbeat(ctx context.Context, cause error) (now progress, err error) {
	err = u.conn.act(ctx, u.config.StaleAfter, func(ctx context.Context, tx pgx.Tx) error {
		now, err = db.One[progress](ctx, tx, queries.runHeartbeat, pgx.StrictNamedArgs{
			"id": u.id, "fence": u.fence, "pid": u.conn.PID(), "error": errorText(cause),
		})
		if errors.Is(err, pgx.ErrNoRows) {
			return errRunOver
		}
		return err
	})
	if err == nil {
		u.conn.recorded = u.conn.PID()
	}
	return now, err
}

// wait runs do in a short transaction that may wait up to StaleAfter, because a lost connection of the run
// can lock the row until the server ends it.
func (u *run) wait(ctx context.Context, do func(context.Context, pgx.Tx) error) error {
	return u.conn.act(ctx, u.config.StaleAfter, do)
}

// errorText returns an error's text for last_error: valid UTF-8 without NUL, of bounded length. Nil is "".
func errorText(err error) string {
	if err == nil {
		return ""
	}
	const longest, cut = 4000, " …" // job_skips_error_check
	text := strings.ReplaceAll(strings.ToValidUTF8(err.Error(), "\uFFFD"), "\x00", "\uFFFD")
	if len(text) > longest {
		text = strings.ToValidUTF8(text[:longest-len(cut)], "") + cut
	}
	return text
}

// terminateOldBackends ends connections that this or an earlier run left in a transaction. It is optional:
// if the role lacks the right, their own timeouts end them.
func (u *run) terminateOldBackends(ctx context.Context) {
	var ended int64
	err := u.conn.act(ctx, cleanupTimeout, func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, queries.runTerminateOldBackends, pgx.StrictNamedArgs{"id": u.id, "fence": u.fence})
		ended = tag.RowsAffected()
		return err
	})
	switch {
	case err != nil:
		u.log.Warn().Err(err).Msg("old connections not terminated")
	case ended > 0:
		u.log.Warn().Int64("rows", ended).Msg("old connections terminated")
	}
}

// backoff is the pause before the next try: doubling from Initial up to Max.
func (u *run) backoff() time.Duration {
	d := u.live().Retry.Initial
	for range u.failed - 1 {
		if d *= 2; d >= u.live().Retry.Max {
			return u.live().Retry.Max
		}
	}
	return d
}

// rest waits, or less when a stop comes.
func (r *Runner) rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-r.stop.Done():
	}
}
