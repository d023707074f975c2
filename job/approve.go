package job

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/db"
)

// A job can require the approval of a second person, by Spec.NeedsApproval or by its category. Until the
// approval it is not claimed and no message of it is sent. The trigger jobs_approve enforces this for all
// clients and defines the content that an approval covers.

// OwnJobError reports an approval by a person who enqueued the job or changed its content. Nothing changed.
type OwnJobError struct {
	JobID int64
	Actor string // "" means the database session's user
}

// Error names the actor and the job.
func (e *OwnJobError) Error() string {
	who := e.Actor
	if who == "" {
		who = "the database session's user"
	}
	return fmt.Sprintf("%s enqueued or changed job %d; another person must approve it", who, e.JobID)
}

// Kind returns db.KindConflict.
func (*OwnJobError) Kind() db.Kind { return db.KindConflict }

// NotAwaitingError reports an approval of a job that does not wait for approval. Nothing changed.
type NotAwaitingError struct {
	Job Job
}

// Error describes the job's state.
func (e *NotAwaitingError) Error() string {
	j := e.Job
	switch {
	case j.ApprovedAt != nil:
		return fmt.Sprintf("job %d is already approved by %s", j.ID, j.ApprovedBy)
	case !j.NeedsApproval:
		return fmt.Sprintf("job %d needs no approval", j.ID)
	}
	return fmt.Sprintf("job %d is %s and does not wait for approval; resume or retry it first", j.ID, j.Status)
}

// Kind returns db.KindConflict.
func (*NotAwaitingError) Kind() db.Kind { return db.KindConflict }

// AwaitsApproval reports whether the job waits for a second person.
func (j Job) AwaitsApproval() bool { return j.AwaitsApprovalSince != nil }

// MostApproved is the maximum number of further rows for a job that is approved for count recipients. It is
// 5 % higher, rounded up, because the audience can grow between the preview and the walk.
func MostApproved(count int64) int64 { return count + (count+19)/20 }

// Approve approves a job for count recipients. Its walk then writes rows for at most MostApproved(count) of
// them. The approval covers the job's present content, or with act.If the version that the caller read. It
// returns a *NotAwaitingError if the job does not wait for approval, and an *OwnJobError if the actor
// enqueued or changed it.
func (s *Store) Approve(ctx context.Context, id int64, count int, act Act) (j Job, err error) {
	return s.approve(ctx, id, count, act, nil)
}

// errDryRun rolls back a trial approval.
var errDryRun = errors.New("dry run")

// MayApprove returns the error that Approve would return now, or nil. It changes nothing.
func (s *Store) MayApprove(ctx context.Context, id int64, act Act) error {
	if _, err := s.approve(ctx, id, 1, act, errDryRun); !errors.Is(err, errDryRun) {
		return err
	}
	return nil
}

// approve approves the job and then returns end, which rolls it back unless nil.
func (s *Store) approve(ctx context.Context, id int64, count int, act Act, end error) (j Job, err error) {
	err = s.change(ctx, act, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, queries.jobsLock, pgx.StrictNamedArgs{"ids": []int64{id}}); err != nil {
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
