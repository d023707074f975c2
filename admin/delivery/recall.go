package delivery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/errkind"
	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

const (
	// recallKeys is how many messages of the job, or channels with notifications, one
	// transaction of a recall looks at.
	recallKeys = 5000
	// recallRetry is the pause before locked rows are read again.
	recallRetry = 20 * time.Millisecond
	// recallRetries is how often: about ten seconds, far longer than a relay's claim or
	// a reader's mark takes.
	recallRetries = 500
)

// ErrRecallStopped reports that the job was resumed or retried while it was being
// recalled. What was recalled until then stays recalled.
var ErrRecallStopped = errkind.New(errkind.Conflict, "the job went on while it was being recalled")

// Recalled counts the rows that a recall withdrew, and the rows for which it was too late.
type Recalled struct {
	Messages      int64 `json:"messages"`      // cancelled before they were sent
	Notifications int64 `json:"notifications"` // withdrawn before they were read
	Read          int64 `json:"read"`          // notifications that were read; they stay
	// Messages that it came too late for, as they were when it looked. A relay calls the
	// provider for those in flight only if it was about to, and does not try them again:
	// the others become CANCELLED when it settles them.
	Sent     int64 `json:"sent"`
	Dead     int64 `json:"dead"`
	InFlight int64 `json:"in_flight"`
	Awaiting int64 `json:"awaiting"` // the provider has them, and their receipts are to come
}

// RecallProgress is how far a recall is.
type RecallProgress struct {
	Recalled
	Looked int64 // keys looked at
	Rows   int64 // rows the job has written: about how many are to be looked at
}

// Recall takes back what an ABORTED, PROCESSED or FAILED job has written and nobody
// has seen: messages PENDING or QUEUED become CANCELLED, unread notifications are
// withdrawn. Of messages that a relay is just sending, the attempt in progress is
// the last. A job in another status is a *job.WrongStatusError.
//
// It goes in steps of a bounded number of keys, each a transaction that also adds to
// jobs.recalled, so that the job's row is right whenever it ends; with an error the
// counts are those of the steps that this call knows to be committed. Calling it
// again goes on, and recalls nothing twice. A job that is resumed meanwhile is
// ErrRecallStopped. Rows that others keep locked are not waited for but looked at
// again for ten seconds; then they are ErrRowsLocked.
//
// The act is recorded when it begins, and with its counts when it ends (I14).
// observe, unless nil, is called after each step.
func Recall(ctx context.Context, pool *pgxpool.Pool, jobID int64, act job.Act, observe func(RecallProgress)) (Recalled, error) {
	r := recall{pool: pool, act: act, observe: observe}
	err := r.begin(ctx, jobID)
	if err == nil {
		err = r.walk(ctx)
	}
	if err != nil {
		return r.done.Recalled, fmt.Errorf("recall job %d: %w", jobID, err)
	}
	return r.done.Recalled, nil
}

// BegunRecall is the recall of one job that has begun, and is recorded.
type BegunRecall struct{ recall }

// BeginRecalls begins to recall those of the jobs sel.IDs that can be recalled, all in one
// transaction, and leaves the others, with sel.AsOf also those that have been at rest for less
// long: they may have written more. Another number than sel.Count is a *job.CountError; none is
// a *job.WrongStatusError or a *job.YoungerError of the first. Nothing is changed then. A job
// that is not there is job.ErrNotFound. Each that has begun is to be run.
func BeginRecalls(ctx context.Context, pool *pgxpool.Pool, sel job.Selection, act job.Act) (begun []*BegunRecall, err error) {
	var refused error
	ids := slices.Compact(slices.Sorted(slices.Values(sel.IDs)))
	for _, id := range ids {
		r := &BegunRecall{recall{pool: pool, act: act}}
		err := r.find(ctx, id)
		if err == nil && sel.AsOf != nil && r.job.FinishedAt.After(*sel.AsOf) {
			err = &job.YoungerError{JobID: id, AsOf: *sel.AsOf}
		}
		switch {
		case err == nil:
			begun = append(begun, r)
		case !errors.As(err, new(*job.WrongStatusError)) && !errors.As(err, new(*job.YoungerError)):
			return nil, fmt.Errorf("recall job %d: %w", id, err)
		case refused == nil:
			refused = err
		}
	}
	switch n := int64(len(begun)); {
	case sel.Count != nil && n != *sel.Count:
		return nil, &job.CountError{Would: n, Expected: *sel.Count}
	case n == 0:
		return nil, refusal(ctx, pool, act, refused)
	}
	err = operation.ChangeTx(ctx, pool, act, func(ctx context.Context, tx pgx.Tx) error {
		for _, r := range begun { // in id order: two operators never deadlock
			if err := r.record(ctx, tx); err != nil { // one that went on since
				return fmt.Errorf("recall job %d: %w", r.job.ID, err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return begun, nil
}

// JobID is the job's.
func (r *BegunRecall) JobID() int64 { return r.job.ID }

// Run withdraws the rows of the job, like Recall.
func (r *BegunRecall) Run(ctx context.Context, observe func(RecallProgress)) (Recalled, error) {
	r.observe = observe
	if err := r.walk(ctx); err != nil {
		return r.done.Recalled, fmt.Errorf("recall job %d: %w", r.job.ID, err)
	}
	return r.done.Recalled, nil
}

// recall is one call of Recall.
type recall struct {
	pool    *pgxpool.Pool
	act     job.Act
	observe func(RecallProgress)
	job     job.Job
	done    RecallProgress
}

// recallable are the statuses of a job at rest that has, or may have, rows.
func recallable(s job.Status) bool {
	return s == job.Aborted || s == job.Processed || s == job.Failed
}

// begin checks the job and records that the act has begun: the rows that the steps
// change never lack an actor and a reason.
func (r *recall) begin(ctx context.Context, jobID int64) error {
	if err := r.find(ctx, jobID); err != nil {
		return refusal(ctx, r.pool, r.act, err)
	}
	return operation.ChangeTx(ctx, r.pool, r.act, r.record)
}

// refusal returns the reason why a recall does not begin: the *db.StaleError of a job that has
// changed since the caller read it, otherwise err.
func refusal(ctx context.Context, pool *pgxpool.Pool, act job.Act, err error) error {
	if !errors.As(err, new(*job.WrongStatusError)) || act.If == nil {
		return err
	}
	stale := operation.ChangeTx(ctx, pool, act, func(context.Context, pgx.Tx) error { return nil })
	return cmp.Or(stale, err)
}

// find reads the job and checks it.
func (r *recall) find(ctx context.Context, jobID int64) (err error) {
	if r.job, err = job.NewStore(r.pool).Get(ctx, jobID); err != nil {
		return err
	}
	if !recallable(r.job.Status) {
		return &job.WrongStatusError{JobID: jobID, Act: "recall", Status: r.job.Status, Needs: []job.Status{job.Aborted, job.Processed, job.Failed}}
	}
	r.done.Rows = r.job.RowsWritten
	return nil
}

// record writes the event: the trigger does when recalled_at changes.
func (r *recall) record(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, queries.operatorAct, pgx.StrictNamedArgs{"actor": r.act.Actor, "reason": r.act.Reason}); err != nil {
		return err
	}
	return r.guard(tx.Exec(ctx, queries.recallRecord, pgx.StrictNamedArgs{"id": r.job.ID, "fence": r.job.Fence}))
}

// guard turns zero rows of a statement on the job's row into the error.
func (r *recall) guard(tag pgconn.CommandTag, err error) error {
	if err == nil && tag.RowsAffected() == 0 {
		return ErrRecallStopped
	}
	return err
}

// walk goes through the job's rows and records the end.
func (r *recall) walk(ctx context.Context) error {
	if r.job.Type != outbox.TypeInbox {
		err := r.each(ctx, table{true, queries.messageRecall, math.MaxInt64, &r.done.Messages, []*int64{&r.done.Sent, &r.done.Dead, &r.done.InFlight, &r.done.Awaiting}})
		if err != nil {
			return err
		}
	}
	if bound, some := r.notificationBound(); some {
		err := r.each(ctx, table{false, queries.notificationRecall, bound, &r.done.Notifications, []*int64{&r.done.Read}})
		if err != nil {
			return err
		}
	}
	if r.done.Messages+r.done.Notifications == 0 {
		return nil
	}
	return operation.StepTx(ctx, r.pool, r.record)
}

// notificationBound is the highest channel that may have a notification of the job:
// its cursor (I3), or any for a type whose keys may mean something else.
func (r *recall) notificationBound() (bound int64, some bool) {
	switch r.job.Type {
	case outbox.TypePush:
		return 0, false
	case outbox.TypeInbox:
		bound, err := strconv.ParseInt(r.job.Cursor, 10, 64)
		return bound, err == nil
	}
	return math.MaxInt64, true
}

// table is one of the two that are recalled from, and where its counts go.
type table struct {
	messages  bool
	statement string
	bound     int64
	recalled  *int64
	late      []*int64
}

// looked is the result of one step.
type looked struct {
	keys, recalled, left int64
	late                 []int64
	last                 *int64 // the last key looked at; nil: none was left
}

// each takes the steps of one table. A step that left rows because they were locked
// is done again: it finds those only.
func (r *recall) each(ctx context.Context, t table) error {
	after, retries := int64(math.MinInt64), 0
	for {
		l, err := r.step(ctx, t, after)
		if err != nil {
			return err
		}
		*t.recalled += l.recalled
		switch {
		case l.left > 0 && retries == recallRetries:
			return fmt.Errorf("%w: %d of them", outbox.ErrRowsLocked, l.left)
		case l.left > 0:
			retries++
			if err := lifecycle.Pause(ctx, recallRetry); err != nil {
				return err
			}
			continue
		case l.last == nil:
			return nil
		}
		for i, n := range l.late {
			*t.late[i] += n
		}
		r.done.Looked += l.keys
		after, retries = *l.last, 0
		if r.observe != nil {
			r.observe(r.done)
		}
	}
}

// step is one transaction: rows first, in the order of their keys and skipping
// locked ones, the job's row last, which decides (as in a chunk).
func (r *recall) step(ctx context.Context, t table, after int64) (l looked, err error) {
	err = operation.StepTx(ctx, r.pool, func(ctx context.Context, tx pgx.Tx) error {
		err := tx.QueryRow(ctx, t.statement, pgx.StrictNamedArgs{
			"job_id": r.job.ID, "after": after, "bound": t.bound, "keys": recallKeys,
		}).Scan(&l.keys, &l.last, &l.recalled, &l.late, &l.left)
		if err != nil {
			return err
		}
		if t.messages {
			if err := outbox.ChangeProgressTx(ctx, tx, map[int64]outbox.ProgressChange{r.job.ID: {Cancelled: l.recalled}}); err != nil {
				return err
			}
		}
		return r.guard(tx.Exec(ctx, queries.recallCount, pgx.StrictNamedArgs{"id": r.job.ID, "fence": r.job.Fence, "recalled": l.recalled}))
	})
	return l, err
}
