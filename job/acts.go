package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
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
	// Summary returns the jobs as Summaries does, which an act on several jobs always does.
	Summary bool
	// Held, unless nil, receives the jobs that other sessions lock. The act then skips them, and may change none.
	Held *[]int64
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
// for a group all jobs. A group of thousands of jobs may exceed the deadline: abort its Members in several
// calls.
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
		members, err := s.Members(ctx, *sel.Group)
		if err != nil {
			return nil, err
		}
		ids = memberIDs(members)
	}
	err = s.flagged(ctx, ids, sel.Held, act, func() error {
		list, err = s.act(ctx, o, sel, act)
		return err
	})
	if err == nil && list == nil && sel.Held == nil { // a run has aborted them because of the flag
		list, err = s.Summaries(ctx, ids)
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
		done, err := actEach(ctx, tx, retrySkippedOperation(), []int64{id}, Selection{}, act)
		if err = cmp.Or(err, done.refused); err != nil {
			return err
		}
		if j, err = get(ctx, tx, id); err != nil {
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
	if _, err := tx.Exec(ctx, queries.jobsLock, pgx.StrictNamedArgs{"ids": []int64{id}}); err != nil {
		return fmt.Errorf("lock job %d: %w", id, err)
	}
	j, err := get(ctx, tx, id)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil
	case err != nil:
		return err
	}
	return agree(j)
}

// act changes the selected jobs that the operation allows, in one transaction.
func (s *Store) act(ctx context.Context, o operation, sel Selection, act Act) (list []Job, err error) {
	ids := slices.Compact(slices.Sorted(slices.Values(sel.IDs)))
	err = s.changes(ctx, act, sel.Held != nil, func(ctx context.Context, tx pgx.Tx) error {
		if sel.Group != nil {
			members, err := groupMembers(ctx, tx, *sel.Group)
			if err != nil {
				return fmt.Errorf("%s: %w", o.name, err)
			}
			ids = memberIDs(members)
		}
		done, err := actEach(ctx, tx, o, ids, sel, act)
		if err != nil {
			return err
		}
		listed := done.changed
		if sel.Group != nil {
			listed = ids
		}
		if list, err = getAll(ctx, tx, listed, sel.Summary || len(listed) > 1); err != nil {
			return err
		}
		switch n := int64(len(done.changed)); {
		case sel.Count != nil && n != *sel.Count:
			return &CountError{n, *sel.Count}
		case sel.Count == nil && n == 0 && sel.Held == nil && done.refused == nil && len(ids) > 0: // none is resumable
			_, err := o.run(ctx, tx, ids[:1], act) // returns the reason
			return err
		case sel.Count == nil && n == 0 && sel.Held == nil:
			return done.refused
		}
		if sel.Held != nil {
			*sel.Held = done.held
		}
		if o.resumes() {
			return s.unflagAll(ctx, done.changed)
		}
		return nil
	})
	if err != nil {
		return nil, s.NameHolders(ctx, err, ids...)
	}
	return list, nil
}

// acted is the result of an act on several jobs.
type acted struct {
	changed []int64
	held    []int64 // locked by other sessions and skipped
	refused error   // the error of the first job whose status or age does not allow the act
}

// actEach acts on each job that allows the act and is resumable. It locks them in the order of the ids, so
// that two operators never deadlock.
func actEach(ctx context.Context, tx pgx.Tx, o operation, ids []int64, sel Selection, act Act) (done acted, err error) {
	lock := queries.jobsLock
	if sel.Held != nil {
		lock = queries.jobsLockFree
	}
	var why map[int64]string
	if o.resumes() {
		if why, err = notResumable(ctx, tx, ids); err != nil {
			return done, err
		}
	}
	rows, err := tx.Query(ctx, lock, pgx.StrictNamedArgs{"ids": ids})
	if err != nil {
		return done, fmt.Errorf("%s jobs: %w", o.name, err)
	}
	locked := make(map[int64]Job, len(ids))
	var j Job
	if _, err = pgx.ForEachRow(rows, []any{&j.ID, &j.Status, &j.CreatedAt}, func() error { locked[j.ID] = j; return nil }); err != nil {
		return done, fmt.Errorf("%s jobs: %w", o.name, err)
	}
	var able []int64
	refused := make(map[int64]error)
	for _, id := range ids {
		switch j, there := locked[id]; {
		case !there && sel.Held != nil:
			done.held = append(done.held, id)
		case !there:
			return done, fmt.Errorf("job %d: %w", id, ErrNotFound)
		case why[id] != "":
		case sel.AsOf != nil && j.CreatedAt.After(*sel.AsOf):
			refused[id] = &YoungerError{id, *sel.AsOf}
		case !slices.Contains(o.from, j.Status):
			refused[id] = &WrongStatusError{JobID: id, Act: o.name, Status: j.Status, Needs: o.from}
		default:
			able = append(able, id)
		}
	}
	now, err := o.run(ctx, tx, able, act)
	if err != nil {
		return done, err
	}
	for _, id := range able {
		if o.name == abortName && now[id] != Aborted { // nothing is left to send
			refused[id] = &WrongStatusError{JobID: id, Act: o.name, Status: now[id], Needs: []Status{Pending, Running}, Delivered: true}
			continue
		}
		done.changed = append(done.changed, id)
	}
	if len(refused) > 0 {
		done.refused = refused[slices.Min(slices.Collect(maps.Keys(refused)))]
	}
	return done, nil
}

// run acts on locked jobs and returns their new statuses.
func (o operation) run(ctx context.Context, tx pgx.Tx, ids []int64, act Act) (map[int64]Status, error) {
	now := make(map[int64]Status, len(ids))
	if len(ids) == 0 {
		return now, nil
	}
	args := pgx.StrictNamedArgs{"ids": ids, "actor": optional(act.Actor), "reason": act.Reason}
	if o.changes != nil {
		args["changes"] = string(o.changes)
	}
	rows, err := tx.Query(ctx, o.statement, args)
	if err == nil {
		var id int64
		var status Status
		_, err = pgx.ForEachRow(rows, []any{&id, &status}, func() error { now[id] = status; return nil })
	}
	if err != nil {
		return nil, fmt.Errorf("%s jobs: %w", o.name, err)
	}
	return now, nil
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

// Member is a job of a group.
type Member struct {
	ID     int64  `db:"id"`
	Status Status `db:"status"`
}

// Members returns the jobs of a group, the most urgent to abort first, or ErrNotFound.
func (s *Store) Members(ctx context.Context, group uuid.UUID) (list []Member, err error) {
	err = s.read(ctx, func(ctx context.Context, tx pgx.Tx) error {
		list, err = groupMembers(ctx, tx, group)
		return err
	})
	return list, err
}

func groupMembers(ctx context.Context, tx pgx.Tx, group uuid.UUID) (list []Member, err error) {
	list, err = db.All[Member](ctx, tx, queries.jobGroup, pgx.StrictNamedArgs{"group_id": group})
	if err == nil && len(list) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("group %s: %w", group, err)
	}
	return list, nil
}

func memberIDs(list []Member) (ids []int64) {
	for _, m := range list {
		ids = append(ids, m.ID)
	}
	slices.Sort(ids)
	return ids
}
