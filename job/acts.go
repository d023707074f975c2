package job

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Act says who does something to a job and why; both are kept in the job's
// events, in the same transaction as the act (I14). An empty Actor is recorded as
// the database session's user.
type Act struct {
	Actor  string
	Reason string
}

// operation is one act and the statuses it starts from.
type operation struct {
	name      string
	statement string
	from      []Status
	changes   []byte // of operations that change columns: a JSON object; nil otherwise
}

// letsGoOn reports whether the act makes a job at rest PENDING again.
func (o operation) letsGoOn() bool { return !slices.Contains(o.from, Pending) }

const abortName = "abort"

func abortOperation() operation {
	return operation{abortName, queries.jobAbort, []Status{Pending, Running, Processed, Failed}, nil}
}

func resumeOperation() operation {
	return operation{"resume", queries.jobResume, []Status{Aborted}, nil}
}

func retryOperation() operation {
	return operation{"retry", queries.jobRetry, []Status{Failed, Expired}, nil}
}

func retrySkippedOperation() operation {
	return operation{"retry-skipped", queries.jobRetrySkipped, []Status{Processed, Failed}, nil}
}

// Abort makes a PENDING or RUNNING job ABORTED, and a PROCESSED or FAILED one as long as
// a message of it is not final. When it returns without error no further row and no cursor
// movement of the job is committed, and no message of it that was not handed to a provider
// is sent (I6). A job in another status, or with nothing left to send, is a
// *WrongStatusError and stays as it is. When the error is
// ErrUnreachable the abort may have happened; repeat it. With an abort cache the job
// is flagged there first, and a database that does not answer is a *FlaggedError.
func (s *Store) Abort(ctx context.Context, id int64, act Act) (j Job, err error) {
	err = s.flagged(ctx, []int64{id}, act, func() error {
		j, err = s.actOne(ctx, abortOperation(), id, act)
		return err
	})
	return j, err
}

// Resume lets an ABORTED job go on. When its walk was complete (Job.WalkedAt) it is
// PROCESSED and its delivery goes on at once; otherwise it is PENDING and goes on from its
// cursor.
func (s *Store) Resume(ctx context.Context, id int64, act Act) (Job, error) {
	return s.actOne(ctx, resumeOperation(), id, act)
}

// Retry makes a FAILED job PENDING again; it goes on from its cursor. An EXPIRED one
// too, when its expires_at was lifted or lies ahead again (see Set); otherwise the
// error is an *InvalidError.
func (s *Store) Retry(ctx context.Context, id int64, act Act) (Job, error) {
	return s.actOne(ctx, retryOperation(), id, act)
}

// AbortGroup aborts every job of a group that Abort would, all or none, and
// returns the whole group as it is then. A member in another status stays as it is.
// ErrNotFound when the group has no job; a *WrongStatusError, of the first member,
// when it has none that can be aborted. With an abort cache every member is flagged
// first, as in Abort; the database has to answer a read for that.
func (s *Store) AbortGroup(ctx context.Context, group uuid.UUID, act Act) (list []Job, err error) {
	var ids []int64
	if s.cache != nil {
		err := s.read(ctx, func(ctx context.Context, tx pgx.Tx) error {
			ids, err = groupIDs(ctx, tx, abortOperation(), group)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	err = s.flagged(ctx, ids, act, func() error {
		list, err = s.actGroup(ctx, abortOperation(), group, act)
		return err
	})
	return list, err
}

// ResumeGroup resumes every ABORTED job of a group; otherwise as AbortGroup.
func (s *Store) ResumeGroup(ctx context.Context, group uuid.UUID, act Act) ([]Job, error) {
	return s.actGroup(ctx, resumeOperation(), group, act)
}

// RetryGroup retries every FAILED or EXPIRED job of a group; otherwise as AbortGroup.
func (s *Store) RetryGroup(ctx context.Context, group uuid.UUID, act Act) ([]Job, error) {
	return s.actGroup(ctx, retryOperation(), group, act)
}

// RetrySkipped has every skipped recipient of a PROCESSED or FAILED job tried again,
// whatever else the job has left to do. ErrNoSkips when it has none.
func (s *Store) RetrySkipped(ctx context.Context, id int64, act Act) (Job, error) {
	j, err := s.actOne(ctx, retrySkippedOperation(), id, act)
	if err == nil && j.Status != Pending {
		return j, fmt.Errorf("job %d: %w", id, ErrNoSkips)
	}
	return j, err
}

func (s *Store) actOne(ctx context.Context, o operation, id int64, act Act) (j Job, err error) {
	if o.letsGoOn() {
		if err := s.unflag(ctx, id); err != nil {
			return Job{}, err
		}
	}
	err = s.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		j, err = actTx(ctx, tx, o, id, act)
		return err
	})
	return j, err
}

func (s *Store) actGroup(ctx context.Context, o operation, group uuid.UUID, act Act) (list []Job, err error) {
	err = s.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		ids, err := groupIDs(ctx, tx, o, group)
		if err != nil {
			return err
		}
		var refused error
		changed := 0
		for _, id := range ids { // in id order: two operators never deadlock
			if o.letsGoOn() {
				if err := s.unflag(ctx, id); err != nil {
					return err
				}
			}
			j, err := actTx(ctx, tx, o, id, act)
			var wrong *WrongStatusError
			switch {
			case errors.As(err, &wrong):
				if refused == nil {
					refused = err
				}
			case err != nil:
				return err
			default:
				changed++
			}
			list = append(list, j)
		}
		if changed == 0 {
			return refused
		}
		return nil
	})
	return list, err
}

// groupIDs returns the members of a group, in id order, or ErrNotFound.
func groupIDs(ctx context.Context, tx pgx.Tx, o operation, group uuid.UUID) ([]int64, error) {
	rows, err := tx.Query(ctx, queries.jobGroupIDs, pgx.StrictNamedArgs{"group_id": group})
	if err != nil {
		return nil, fmt.Errorf("%s group %s: %w", o.name, group, err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("%s group %s: %w", o.name, group, err)
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("group %s: %w", group, ErrNotFound)
	}
	return ids, nil
}

// actTx locks the job, checks the edge, acts, and returns the job as it is then;
// with a *WrongStatusError, as it was.
func actTx(ctx context.Context, tx pgx.Tx, o operation, id int64, act Act) (Job, error) {
	var status Status
	err := tx.QueryRow(ctx, queries.jobLock, pgx.StrictNamedArgs{"id": id}).Scan(&status)
	if errors.Is(err, pgx.ErrNoRows) {
		return Job{}, fmt.Errorf("job %d: %w", id, ErrNotFound)
	}
	if err != nil {
		return Job{}, fmt.Errorf("%s job %d: %w", o.name, id, err)
	}
	var refused error
	if slices.Contains(o.from, status) {
		args := pgx.StrictNamedArgs{"id": id, "actor": optional(act.Actor), "reason": act.Reason}
		if o.changes != nil {
			args["changes"] = string(o.changes)
		}
		_, err = tx.Exec(ctx, o.statement, args)
		if err != nil {
			return Job{}, fmt.Errorf("%s job %d: %w", o.name, id, err)
		}
	} else {
		refused = &WrongStatusError{JobID: id, Act: o.name, Status: status, Needs: o.from}
	}
	j, err := get(ctx, tx, id)
	if err != nil {
		return Job{}, err
	}
	if refused == nil && o.name == abortName && j.Status != Aborted { // nothing is left to send
		refused = &WrongStatusError{JobID: id, Act: o.name, Status: status, Needs: []Status{Pending, Running}, Delivered: true}
	}
	return j, refused
}
