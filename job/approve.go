package job

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/errkind"
)

// A job may need the approval of a second person: it asks for it (Spec.NeedsApproval), or its
// category does. Until then it waits: it is not claimed, and no message of it goes out. The
// trigger jobs_approve keeps all of that for whoever writes, and says what an approval binds to.

// OwnJobError reports an approval by somebody who enqueued the job or changed what it says.
// Nothing changed.
type OwnJobError struct {
	JobID int64
	Actor string // "": who is logged in to the database
}

// Error names both.
func (e *OwnJobError) Error() string {
	who := e.Actor
	if who == "" {
		who = "whoever is logged in"
	}
	return fmt.Sprintf("%s enqueued or changed job %d; a second person approves it, who did neither", who, e.JobID)
}

// Kind returns errkind.Conflict.
func (*OwnJobError) Kind() errkind.Kind { return errkind.Conflict }

// NotAwaitingError reports an approval of a job that waits for none. Nothing changed.
type NotAwaitingError struct {
	Job Job // as it is
}

// Error says what the job is instead.
func (e *NotAwaitingError) Error() string {
	j := e.Job
	switch {
	case j.ApprovedAt != nil:
		return fmt.Sprintf("job %d is approved already, by %s", j.ID, j.ApprovedBy)
	case !j.NeedsApproval:
		return fmt.Sprintf("job %d needs no approval", j.ID)
	}
	return fmt.Sprintf("job %d is %s and waits for no approval; resumed or retried it does", j.ID, j.Status)
}

// Kind returns errkind.Conflict.
func (*NotAwaitingError) Kind() errkind.Kind { return errkind.Conflict }

// AwaitsApproval reports whether the job waits for a second person.
func (j Job) AwaitsApproval() bool { return j.AwaitsApprovalSince != nil }

// MostApproved is how many rows a walk writes at most, beside those that are written, that is
// approved for count recipients: 5 % more, rounded up, as an audience lives on between the look and the walk.
func MostApproved(count int64) int64 { return count + (count+19)/20 }

// Approve lets a job go on that waits for approval, for count recipients: the walk writes rows for
// MostApproved of them at the most. It binds to the job's content at that moment, with act.If to
// the version that was read. A job that waits for none is a *NotAwaitingError, and an
// actor who had a hand in it an *OwnJobError.
func (s *Store) Approve(ctx context.Context, id int64, count int, act Act) (j Job, err error) {
	return s.approve(ctx, id, count, act, nil)
}

// errLooked undoes an approval that was made to see whether it can be.
var errLooked = errors.New("looked")

// MayApprove reports why the actor may not approve the job now, as Approve does; nil: they may.
// Nothing stays changed.
func (s *Store) MayApprove(ctx context.Context, id int64, act Act) error {
	if _, err := s.approve(ctx, id, 1, act, errLooked); !errors.Is(err, errLooked) {
		return err
	}
	return nil
}

// approve approves, unless it ends with an error.
func (s *Store) approve(ctx context.Context, id int64, count int, act Act, end error) (j Job, err error) {
	err = s.change(ctx, act, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, queries.jobLock, pgx.StrictNamedArgs{"id": id}); err != nil {
			return fmt.Errorf("approve job %d: %w", id, err)
		}
		if j, err = get(ctx, tx, id); err != nil {
			return err
		}
		if !j.AwaitsApproval() {
			return &NotAwaitingError{j}
		}
		if _, err := tx.Exec(ctx, queries.jobActsFor, pgx.StrictNamedArgs{"actor": optional(act.Actor)}); err != nil {
			return fmt.Errorf("approve job %d: %w", id, err)
		}
		args := pgx.StrictNamedArgs{"id": id, "count": count, "actor": optional(act.Actor), "reason": act.Reason}
		if _, err := tx.Exec(ctx, queries.jobApprove, args); err != nil {
			return fmt.Errorf("approve job %d: %w", id, err)
		}
		if j, err = get(ctx, tx, id); err != nil {
			return err
		}
		return end
	})
	if bad := new(InvalidError); errors.As(err, &bad) && bad.Column == "approved_by" {
		err = &OwnJobError{id, act.Actor}
	}
	return j, err
}
