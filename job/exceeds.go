package job

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// A job has a ceiling, max_recipients: the most rows that its walk may write. The statement
// that moves the cursor refuses the chunk that would pass it, rows and cursor together, so
// that no committed state has more rows than that. The job is then ABORTED: an operator
// raises the ceiling and resumes it, or leaves it. What a job was approved for is a ceiling as well;
// resumed, a job that was stopped there waits for another approval.

// exceedsError ends a run whose next rows would pass the job's ceiling.
type exceedsError struct {
	job           int64
	written, rows int64
	most          int
	approved      bool // that it was approved for
}

// Error says what was written, what the ceiling is and how the job goes on.
func (e exceedsError) Error() string {
	if e.approved {
		return fmt.Sprintf("it is approved for %d: %d rows are written and the next chunk has %d; `belfry resume %d` has it wait for another approval",
			e.most, e.written, e.rows, e.job)
	}
	return fmt.Sprintf("max_recipients is %d: %d rows are written and the next chunk has %d; `belfry jobs set %d max_recipients=N` raises it, `belfry resume %d` goes on",
		e.most, e.written, e.rows, e.job, e.job)
}

// refused is why the guard of a statement that counts so many rows matched no row: the
// ceiling, as this run knows it, or whatever the job's row says.
func (u *run) refused(rows int64) error {
	if most := u.job.MaxRecipients; most != nil && u.job.RowsWritten+rows > int64(*most) {
		approved := u.job.ApprovedRecipients
		return exceedsError{u.id, u.job.RowsWritten, rows, *most, approved != nil && *approved == *most}
	}
	return errMoved
}

// exceed makes the job ABORTED for its ceiling, under the runner's name. Where an operator
// has moved the ceiling meanwhile, errMoved: the job is RUNNING without a run, and this
// runner's next claim takes it over.
func (u *run) exceed(ctx context.Context, e exceedsError) error {
	return u.wait(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, queries.actAs, pgx.StrictNamedArgs{"actor": u.config.Name, "reason": e.Error(), "kind": ""}); err != nil {
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
