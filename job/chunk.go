package job

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/cursor"
)

// The points of a chunk at which tests stop, kill or fail a run.
const (
	pointBegun      = "begun"       // the transaction is open, nothing read
	pointWritten    = "written"     // rows are written, the cursor has not moved
	pointMoved      = "moved"       // the cursor has moved, nothing is committed
	pointCommitted  = "committed"   // COMMIT was acknowledged by the server
	pointCommitting = "commit-lost" // stands for a COMMIT whose acknowledgement is lost
)

// chunk runs one chunk and reports whether the keys are exhausted.
func (u *run) chunk(ctx context.Context) (exhausted bool, err error) {
	began := time.Now()
	var s step
	var to string
	err = u.inTx(ctx, u.kind.asyncCommit, func(ctx context.Context, tx pgx.Tx) error {
		if err := u.at(ctx, pointBegun); err != nil {
			return err
		}
		if s, err = u.walker.step(ctx, tx, u.job, u.after, u.size.rows); err != nil {
			return err
		}
		if s.read == 0 {
			return nil
		}
		if err := u.follows(s.next); err != nil {
			return err
		}
		if err := u.at(ctx, pointWritten); err != nil {
			return err
		}
		to = u.kind.keyset.Encode(s.next)
		if err := u.move(ctx, tx, s, to); err != nil {
			return err
		}
		return u.at(ctx, pointMoved)
	})
	if err != nil {
		return false, err
	}
	if s.read == 0 {
		return true, nil
	}
	took := time.Since(began)
	u.after, u.job.Cursor = s.next, to
	u.job.Chunks++
	u.job.ChannelsRead += int64(s.read)
	u.job.RowsWritten += s.rows
	u.size.observe(s.read, took)
	u.meter.add(u.job.ChannelsRead)
	u.log.Debug().Int64("chunk", u.job.Chunks).Str("cursor", to).Int64("rows", s.rows).
		Dur("elapsed_ms", took).Msg("chunk committed")
	u.report("chunk", s.rows, took)
	return false, u.at(ctx, pointCommitted)
}

// follows checks a Source's word: the walk must advance, and not past the bound, or
// it would never end or write somebody twice.
func (u *run) follows(next cursor.Position) error {
	keyset := u.kind.keyset
	if err := keyset.Check(next); err != nil {
		return writerError{fmt.Errorf("the Source's key: %w", err)}
	}
	if keyset.Compare(next, u.after) <= 0 || keyset.Compare(next, u.bound) > 0 {
		return writerError{fmt.Errorf("the Source went from key %s to %s; keys must rise, up to the bound %s",
			keyset.Encode(u.after), keyset.Encode(next), keyset.Encode(u.bound))}
	}
	return nil
}

// move is the last statement of a chunk: the cursor moves iff the job is RUNNING
// under this run's fence and nobody moved it since.
func (u *run) move(ctx context.Context, tx pgx.Tx, s step, to string) error {
	tag, err := tx.Exec(ctx, queries.SQL("ChunkCommit"), pgx.StrictNamedArgs{
		"id": u.id, "fence": u.fence, "before": u.job.Cursor, "cursor": to, "read": s.read, "rows": s.rows,
	})
	if err != nil {
		return fmt.Errorf("move cursor: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return errMoved
	}
	return nil
}

// inTx runs do in one transaction of the run: begun with the run's deadlines and
// the check that the job is still ours, committed when do returns nil. Any error
// may be that of a COMMIT, whose outcome is then unknown.
func (u *run) inTx(ctx context.Context, asyncCommit bool, do func(context.Context, pgx.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, u.config.StaleAfter)
	defer cancel()
	tx, err := u.pool.BeginTx(ctx, readCommitted())
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer func() {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		_ = tx.Rollback(clean) // after a commit it does nothing
	}()
	if err := u.check(ctx, tx, asyncCommit); err != nil {
		return err
	}
	if err := do(ctx, tx); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return u.at(ctx, pointCommitting)
}

// check sets the transaction's deadlines and looks at the abort flag and the
// fence. It locks nothing: the guard in ChunkCommit decides, this spares the work.
func (u *run) check(ctx context.Context, tx pgx.Tx, asyncCommit bool) error {
	var set bool
	var status Status
	var fence int64
	var at string
	err := tx.QueryRow(ctx, queries.SQL("RunBegin"), pgx.StrictNamedArgs{
		"id": u.id, "application": application(u.id, u.fence),
		"timeout_ms": fmt.Sprint(u.config.StatementTimeout.Milliseconds()), "async_commit": asyncCommit,
	}).Scan(&set, &status, &fence, &at)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return errRunOver
	case err != nil:
		return fmt.Errorf("begin chunk: %w", err)
	case status != Running || fence != u.fence:
		return errRunOver
	case at != u.job.Cursor:
		return errMoved
	}
	return nil
}
