package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/db"
)

// Act specifies who changes an object and why. Both are recorded in the object's events in the
// transaction of the change (I14). An empty Actor is recorded as the database session's user.
type Act struct {
	Actor  string
	Reason string
	// If is the version of the object that the change expects; another version is a
	// *db.StaleError, and nothing is changed. Nil accepts any version.
	If *Precondition
}

// Precondition is the expected version of an object.
type Precondition = db.Precondition

// operation is one act and the statuses it starts from.
type operation struct {
	name      string
	statement string
	from      []Status
	changes   []byte // a JSON object for operations that change columns; nil otherwise
}

// resumes reports whether the act lets a finished or aborted job continue.
func (o operation) resumes() bool { return !slices.Contains(o.from, Pending) }

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

// Selection contains the jobs of one act, which changes all of them in one transaction or none. A job whose
// status does not allow the act is skipped. An act that changes no job returns an error.
type Selection struct {
	IDs   []int64
	Group *uuid.UUID // all jobs of this group; nil means IDs
	// Count is the number of jobs that the act must change; another number is a *CountError.
	// Nil accepts any number from 1.
	Count *int64
	// AsOf skips jobs that were enqueued later, by the database's clock. Nil skips none.
	AsOf *time.Time
}

// One selects one job.
func One(id int64) Selection { return Selection{IDs: []int64{id}} }

// Abort makes PENDING and RUNNING jobs ABORTED, and PROCESSED or FAILED ones that have a message that is not
// final. When it returns without error no further row and no cursor movement of these jobs is committed, and
// no message of them that was not handed to a provider is sent (I6). It returns the jobs that it changed, or
// for a group all jobs.
//
// If it would change no job, it returns the first job's error: *WrongStatusError, *YoungerError, or
// ErrNotFound. A missing job among several is also ErrNotFound. After ErrUnreachable the jobs may be
// ABORTED; repeat the call. With an abort cache the jobs are flagged there first, and an unreachable
// database is a *FlaggedError. With a Count or a precondition they are not flagged, because a flag would
// stop a run before the count or the version is checked.
func (s *Store) Abort(ctx context.Context, sel Selection, act Act) (list []Job, err error) {
	o := abortOperation()
	if s.cache == nil || sel.Count != nil || sel.AsOf != nil || act.If != nil {
		return s.act(ctx, o, sel, act)
	}
	ids := sel.IDs
	if sel.Group != nil {
		err := s.read(ctx, func(ctx context.Context, tx pgx.Tx) error {
			ids, err = groupIDs(ctx, tx, o, *sel.Group)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	err = s.flagged(ctx, ids, act, func() error {
		list, err = s.act(ctx, o, sel, act)
		return err
	})
	if err == nil && list == nil { // a run has aborted them because of the flag
		list, err = s.GetAll(ctx, ids)
	}
	return list, err
}

// Resume lets ABORTED jobs continue. A job with a complete walk (Job.WalkedAt) becomes PROCESSED and its
// delivery continues at once. Any other job becomes PENDING and continues from its cursor. NotResumable jobs
// are skipped. Results and errors are as for Abort.
func (s *Store) Resume(ctx context.Context, sel Selection, act Act) ([]Job, error) {
	return s.act(ctx, resumeOperation(), sel, act)
}

// Retry makes FAILED jobs PENDING again; they continue from their cursor. It also retries EXPIRED jobs whose
// expires_at was removed or moved to the future (see Set). If the only job is still expired, it returns an
// *InvalidError. Otherwise it is like Resume.
func (s *Store) Retry(ctx context.Context, sel Selection, act Act) ([]Job, error) {
	return s.act(ctx, retryOperation(), sel, act)
}

// CountError reports that the act would have changed an unexpected number of jobs. Nothing was changed.
type CountError struct{ Would, Expected int64 }

// Error contains both numbers.
func (e *CountError) Error() string {
	return fmt.Sprintf("%d jobs would be changed, not %d; nothing was changed", e.Would, e.Expected)
}

// Kind returns db.KindConflict.
func (*CountError) Kind() db.Kind { return db.KindConflict }

// YoungerError reports a job that was enqueued, or for a recall finished, after Selection.AsOf. It was not
// changed.
type YoungerError struct {
	JobID int64
	AsOf  time.Time
}

// Error names the job and the moment.
func (e *YoungerError) Error() string {
	return fmt.Sprintf("job %d is younger than %s and was skipped", e.JobID, e.AsOf.Format(time.RFC3339Nano))
}

// Kind returns db.KindConflict.
func (*YoungerError) Kind() db.Kind { return db.KindConflict }

// RetrySkipped retries every skipped recipient of a PROCESSED or FAILED job. It returns ErrNoSkips if there
// are none. It calls agree, unless nil, with the job under its lock first; an error of agree is returned and
// nothing is changed.
func (s *Store) RetrySkipped(ctx context.Context, id int64, act Act, agree func(Job) error) (j Job, err error) {
	err = s.change(ctx, act, func(ctx context.Context, tx pgx.Tx) error {
		if agree != nil {
			if err := agreed(ctx, tx, id, agree); err != nil {
				return err
			}
		}
		if j, err = actTx(ctx, tx, retrySkippedOperation(), id, act); err != nil {
			return err
		}
		return s.unflag(ctx, id)
	})
	if err == nil && j.Status != Pending {
		return j, fmt.Errorf("job %d: %w", id, ErrNoSkips)
	}
	return j, err
}

// agreed locks a job and calls agree with it. It ignores a missing job, which the act reports.
func agreed(ctx context.Context, tx pgx.Tx, id int64, agree func(Job) error) error {
	var status Status
	err := tx.QueryRow(ctx, queries.jobLock, pgx.StrictNamedArgs{"id": id}).Scan(&status)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("lock job %d: %w", id, err)
	}
	j, err := get(ctx, tx, id)
	if err != nil {
		return err
	}
	return agree(j)
}

// act changes the selected jobs that the operation allows, in one transaction.
func (s *Store) act(ctx context.Context, o operation, sel Selection, act Act) (list []Job, err error) {
	var ids []int64
	err = s.change(ctx, act, func(ctx context.Context, tx pgx.Tx) error {
		ids = slices.Compact(slices.Sorted(slices.Values(sel.IDs)))
		if sel.Group != nil {
			if ids, err = groupIDs(ctx, tx, o, *sel.Group); err != nil {
				return err
			}
		}
		changed, refused, err := actEach(ctx, tx, o, ids, sel.AsOf, act)
		if err != nil {
			return err
		}
		list = changed
		if sel.Group != nil {
			if list, err = getEach(ctx, tx, ids); err != nil {
				return err
			}
		}
		switch n := int64(len(changed)); {
		case sel.Count != nil && n != *sel.Count:
			return &CountError{n, *sel.Count}
		case sel.Count == nil && n == 0 && refused == nil && len(ids) > 0: // none is resumable
			_, err := actTx(ctx, tx, o, ids[0], act) // returns the reason
			return err
		case sel.Count == nil && n == 0:
			return refused
		case o.resumes():
			return s.unflagAll(ctx, changed)
		}
		return nil
	})
	if err != nil {
		return nil, s.named(ctx, err, ids...)
	}
	return list, nil
}

// actEach acts on each job that allows the act and is resumable, in the order of the ids, so that two
// operators never deadlock. refused is the error of the first skipped job.
func actEach(ctx context.Context, tx pgx.Tx, o operation, ids []int64, asOf *time.Time, act Act) (changed []Job, refused, err error) {
	var why map[int64]string
	if o.resumes() {
		if why, err = notResumable(ctx, tx, ids); err != nil {
			return nil, nil, err
		}
	}
	for _, id := range ids {
		if why[id] != "" {
			continue
		}
		j, err := actNotYounger(ctx, tx, o, id, asOf, act)
		switch {
		case errors.As(err, new(*WrongStatusError)), errors.As(err, new(*YoungerError)):
			refused = cmp.Or(refused, err)
		case err != nil:
			return nil, nil, err
		default:
			changed = append(changed, j)
		}
	}
	return changed, refused, nil
}

func getEach(ctx context.Context, tx pgx.Tx, ids []int64) ([]Job, error) {
	list := make([]Job, len(ids))
	for i, id := range ids {
		var err error
		if list[i], err = get(ctx, tx, id); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// NotResumable returns the jobs that no act can resume, with the reason: "expired" if their expires_at has
// passed, "retention" if their rows are being deleted.
func (s *Store) NotResumable(ctx context.Context, ids []int64) (why map[int64]string, err error) {
	err = s.read(ctx, func(ctx context.Context, tx pgx.Tx) error {
		why, err = notResumable(ctx, tx, ids)
		return err
	})
	return why, err
}

func notResumable(ctx context.Context, tx pgx.Tx, ids []int64) (map[int64]string, error) {
	why := make(map[int64]string)
	var id int64
	var reason string
	err := db.Each(ctx, tx, queries.jobsNotResumable, pgx.StrictNamedArgs{"ids": ids}, []any{&id, &reason}, func() error {
		why[id] = reason
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("jobs that are not resumable: %w", err)
	}
	return why, nil
}

// actNotYounger is actTx for a job that was not enqueued after asOf.
func actNotYounger(ctx context.Context, tx pgx.Tx, o operation, id int64, asOf *time.Time, act Act) (Job, error) {
	if asOf != nil {
		j, err := get(ctx, tx, id)
		if err == nil && j.CreatedAt.After(*asOf) {
			err = &YoungerError{id, *asOf}
		}
		if err != nil {
			return j, err
		}
	}
	return actTx(ctx, tx, o, id, act)
}

// groupIDs returns the members of a group, in id order, or ErrNotFound.
func groupIDs(ctx context.Context, tx pgx.Tx, o operation, group uuid.UUID) ([]int64, error) {
	ids, err := db.Column[int64](ctx, tx, queries.jobGroupIDs, pgx.StrictNamedArgs{"group_id": group})
	if err != nil {
		return nil, fmt.Errorf("%s group %s: %w", o.name, group, err)
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("group %s: %w", group, ErrNotFound)
	}
	return ids, nil
}

// actTx locks the job, checks the transition, acts, and returns the changed job, or the unchanged one with a
// *WrongStatusError.
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
