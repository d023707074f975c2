package job

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// The ceiling of a job, max_recipients, is the maximum number of rows that its walk may write. The statement
// that moves the cursor rejects a chunk that would exceed it, so that no committed state has more rows. The
// job is then ABORTED, and an operator can raise the ceiling and resume it. The approved number of
// recipients is a ceiling too; a job that was stopped there waits for another approval after it is resumed.

// exceedsError ends a run whose next rows would exceed the job's ceiling.
type exceedsError struct {
	job           int64
	written, rows int64
	most          int
	approved      bool // the ceiling is the approved number
}

// Error contains the written rows, the ceiling and the remedy.
func (e exceedsError) Error() string {
	if e.approved {
		return fmt.Sprintf(
			"it is approved for %d: %d rows are written and the next chunk has %d; after `belfry resume %d` it waits for another approval",
			e.most, e.written, e.rows, e.job)
	}
	return fmt.Sprintf(
		"max_recipients is %d: %d rows are written and the next chunk has %d; `belfry jobs set %d max_recipients=N` raises it, "+
			"`belfry resume %d` continues",
		e.most, e.written, e.rows, e.job, e.job)
}

// reason is the reason of the abort, without counts: roles that may not read errors see it.
func (e exceedsError) reason() string {
	if e.approved {
		return fmt.Sprintf("the next chunk exceeds the approved number; after `belfry resume %d` it waits for another approval", e.job)
	}
	return fmt.Sprintf("the next chunk exceeds max_recipients, which is %d; `belfry jobs set %d max_recipients=N` raises it, `belfry resume %d` continues",
		e.most, e.job, e.job)
}

// refused returns the error for a guard that matched no row: exceedsError if the rows would exceed the
// ceiling that this run knows, otherwise errMoved.
func (u *run) refused(rows int64) error {
	if most := u.job.MaxRecipients; most != nil && u.job.RowsWritten+rows > int64(*most) {
		approved := u.job.ApprovedRecipients
		return exceedsError{u.id, u.job.RowsWritten, rows, *most, approved != nil && *approved == *most}
	}
	return errMoved
}

// exceed makes the job ABORTED because of its ceiling, with the runner as the actor. If an operator has
// changed the ceiling in the meantime it returns errMoved; the job is then RUNNING without a run, and this
// runner's next claim takes it over.
func (u *run) exceed(ctx context.Context, e exceedsError) error {
	return u.wait(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, queries.actAs, pgx.StrictNamedArgs{"actor": u.config.Name, "reason": e.reason(), "kind": ""}); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, queries.runExceeds, pgx.StrictNamedArgs{
			"id": u.id, "fence": u.fence, "most": e.most, "written": e.written, "rows": e.rows, "error": e.Error(),
		})
		if err == nil && tag.RowsAffected() == 0 {
			return errMoved
		}
		return err
	})
}
