package job

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/db"
)

// The points of a chunk at which tests stop, kill or fail a run.
const (
	pointBegun      = "begun"       // the transaction is open, nothing read
	pointWritten    = "written"     // rows are written, the cursor has not moved
	pointMoved      = "moved"       // the cursor has moved, nothing is committed
	pointCommitted  = "committed"   // COMMIT was acknowledged by the server
	pointCommitting = "commit-lost" // simulates a COMMIT whose acknowledgement is lost
)

// chunk runs one chunk and reports whether the keys are exhausted.
func (u *run) chunk(ctx context.Context) (exhausted bool, err error) {
	began := time.Now()
	var s step
	var to string
	var moving bool
	err = u.inTx(ctx, u.kind.asyncCommit, func(ctx context.Context, tx pgx.Tx) error {
		if err := u.at(ctx, pointBegun); err != nil {
			return err
		}
		if s, err = u.walker.step(ctx, tx, u.job, u.after, u.limit()); err != nil {
			return err
		}
		if s.read == 0 {
			return nil
		}
		if err := u.follows(s); err != nil {
			return err
		}
		if err := u.at(ctx, pointWritten); err != nil {
			return err
		}
		to = u.kind.keyset.Encode(s.next)
		moving = true
		if err := u.move(ctx, tx, s, to); err != nil {
			return err
		}
		moving = false
		return u.at(ctx, pointMoved)
	})
	switch {
	case err != nil && moving: // no recipient causes an error of the job's row
		return false, err
	case err != nil:
		return false, u.blame(s, err)
	}
	if s.read == 0 {
		return true, nil
	}
	u.moved(s, to, time.Since(began))
	return false, u.at(ctx, pointCommitted)
}

// limit returns the maximum number of keys of the next chunk.
func (u *run) limit() int { return u.poison.limit(u.governor.Rows()) }

// moved adds a committed chunk to the run's own counts.
func (u *run) moved(s step, to string, took time.Duration) {
	u.after, u.job.Cursor = s.next, to
	u.job.Chunks++
	u.job.ChannelsRead += int64(s.read)
	u.job.ChannelsMatched += int64(s.matched)
	u.job.RowsWritten += s.rows
	u.job.Declined += s.declined()
	u.job.Skipped += s.skipped
	if u.poison.passed(s) {
		u.governor.Observe(time.Now(), s.read, s.rows, took)
	}
	u.told()
	u.meter.add(u.job.ChannelsRead)
	u.log.Debug().Int64("chunk", u.job.Chunks).Str("cursor", to).Int64("rows", s.rows).
		Dur("elapsed_ms", took).Msg("chunk committed")
	u.report("chunk", s.rows, took)
}

// follows checks the contract of the Source and the Writer: the walk must advance but not pass the bound,
// otherwise it would not end or would write recipients twice, and the chunk's counts must agree.
func (u *run) follows(s step) error {
	keyset := u.kind.keyset
	if err := keyset.Check(s.next); err != nil {
		return contractError{fmt.Errorf("the Source's key: %w", err)}
	}
	if keyset.Compare(s.next, u.after) <= 0 || keyset.Compare(s.next, u.bound) > 0 {
		return contractError{fmt.Errorf("the Source went from key %s to %s; keys must rise, up to the bound %s",
			keyset.Encode(u.after), keyset.Encode(s.next), keyset.Encode(u.bound))}
	}
	return s.agrees()
}

// move executes the last statement of a chunk. It moves the cursor if and only if the job is RUNNING under
// this run's fence and the cursor is unchanged.
func (u *run) move(ctx context.Context, tx pgx.Tx, s step, to string) error {
	tag, err := tx.Exec(ctx, queries.chunkCommit, pgx.StrictNamedArgs{
		"id": u.id, "fence": u.fence, "before": u.job.Cursor, "cursor": to, "read": s.read, "rows": s.rows,
		"matched": s.matched, "declined": s.declined(), "skipped": s.skipped,
		"throttle": u.pace.why.Rule, "detail": u.pace.why.Detail, "throttled_ms": u.pace.held.Milliseconds(),
	})
	if err != nil {
		return fmt.Errorf("move cursor: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return u.refused(s.rows)
	}
	return nil
}

// inTx runs do in one transaction of the run, after check has set its limits and checked that the job still
// belongs to the run. After any error the outcome of a COMMIT may be unknown.
func (u *run) inTx(ctx context.Context, asyncCommit bool, do func(context.Context, pgx.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, u.config.StaleAfter)
	defer cancel()
	if _, err := u.conn.Get(ctx); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	if u.conn.moved() {
		if _, err := u.heartbeat(ctx, nil); err != nil {
			return fmt.Errorf("record connection: %w", err)
		}
	}
	check := func(ctx context.Context, tx pgx.Tx) error { return u.check(ctx, tx, asyncCommit) }
	if err := u.conn.inTx(ctx, db.Options{Limit: u.config.StaleAfter, Path: !u.kind.fixedPath, First: check}, do); err != nil {
		return err
	}
	return u.at(ctx, pointCommitting)
}

// begun is the result of RunBegin.
type begun struct {
	Set        bool   `db:"set"`
	Status     Status `db:"status"`
	Fence      int64  `db:"fence"`
	Cursor     string `db:"cursor"`
	Priority   int    `db:"priority"`
	LanePaused bool   `db:"lane_paused"`
	Halted     bool   `db:"halted"`
	Overdue    bool   `db:"overdue"`
	Urgent     *int64 `db:"urgent"`
	jobSettings
}

// check sets the transaction's limits, checks the job's status and fence and whether the run must yield, and
// applies settings that an operator has changed since the last chunk. It locks nothing. The guard in
// ChunkCommit decides; check only avoids useless work.
func (u *run) check(ctx context.Context, tx pgx.Tx, asyncCommit bool) error {
	now, err := db.One[begun](ctx, tx, queries.runBegin, pgx.StrictNamedArgs{
		"id": u.id, "application": application(u.id, u.fence), "types": u.names,
		"timeout_ms": fmt.Sprint(u.config.StatementTimeout.Milliseconds()), "async_commit": asyncCommit,
		// Before the statement's own end: a lock is waited out, and a slow chunk becomes smaller.
		"lock_timeout_ms": fmt.Sprint((u.config.StatementTimeout * 4 / 5).Milliseconds()),
	})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return errRunOver
	case err != nil:
		return fmt.Errorf("begin chunk: %w", err)
	case now.Status != Running || now.Fence != u.fence:
		return errRunOver
	case now.Cursor != u.job.Cursor:
		return errMoved
	case now.Halted: // and the halt could not hand the job back
		return yieldError{EventHalted, "belfry is halted"}
	case now.LanePaused:
		return yieldError{EventLanePaused, fmt.Sprintf("lane %s is paused", u.job.Lane)}
	case now.Urgent != nil:
		return yieldError{EventPreempted, fmt.Sprintf("job %d of lane %s is more urgent", *now.Urgent, u.job.Lane)}
	}
	u.overdue = now.Overdue
	u.governor.Configure(u.settings(now.jobSettings))
	u.poison.allowed = u.live().MaxSkips
	if now.MaxSkips != nil {
		u.poison.allowed = *now.MaxSkips
	}
	u.job.MaxRecipients = now.MaxRecipients
	return nil
}

// yieldError ends a run whose job returns to PENDING in favour of another job, or because of a pause or a
// halt.
type yieldError struct{ kind, reason string }

func (e yieldError) Error() string { return "yields: " + e.reason }
