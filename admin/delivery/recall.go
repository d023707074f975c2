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
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

const (
	// recallKeys is the number of messages, or of channels with notifications, that one transaction of a
	// recall reads.
	recallKeys = 5000
	// recallRetry is the pause before locked rows are read again.
	recallRetry = 20 * time.Millisecond
	// recallPatience is the time for which locked rows are read again after all others, far longer than a
	// relay's claim or a reader's update takes.
	recallPatience = 10 * time.Second
	// holdersLimit bounds the query for the sessions that lock rows.
	holdersLimit = 2 * time.Second
)

// ErrRecallStopped reports that the job was resumed or retried during its recall. Recalled rows stay
// recalled.
var ErrRecallStopped = db.NewError(db.KindConflict, "the job went on while it was being recalled")

// Recalled counts the rows that a recall withdrew, and the rows for which it was too late.
type Recalled struct {
	Messages      int64 `json:"messages"`      // cancelled before they were sent
	Notifications int64 `json:"notifications"` // withdrawn before they were read
	Read          int64 `json:"read"`          // notifications that were read; they stay
	// Messages for which the recall was too late, by their state at that time. A message in flight gets
	// at most its current attempt: without success it becomes CANCELLED.
	Sent     int64 `json:"sent"`
	Dead     int64 `json:"dead"`
	InFlight int64 `json:"in_flight"`
	Awaiting int64 `json:"awaiting"` // accepted by the provider, whose receipts are awaited
}

// RecallProgress is the progress of a recall.
type RecallProgress struct {
	Recalled
	Looked int64 // examined keys
	Rows   int64 // rows of the job: the approximate number of keys to examine
}

// Recall withdraws the unsent messages and unread notifications of an ABORTED, PROCESSED or FAILED job:
// PENDING and QUEUED messages become CANCELLED. For a message in flight the current attempt is the
// last. A job in another status is a *job.WrongStatusError.
//
// It works in steps of a bounded number of keys, each in a transaction that also updates jobs.recalled,
// so that the job's row is always correct. After an error the counts include the steps whose commit
// this call knows; a second call continues. A job that is resumed meanwhile is ErrRecallStopped. Rows
// that other sessions lock are retried after all others for ten seconds; then it returns ErrRowsLocked
// with these sessions.
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
		return r.done.Recalled, fmt.Errorf("recall job %d: %w", jobID, job.NewStore(pool).NameHolders(ctx, err, jobID))
	}
	return r.done.Recalled, nil
}

// BegunRecall is the recall of one job that has begun, and is recorded.
type BegunRecall struct{ recall }

// BeginRecalls begins the recall of the recallable jobs among sel.IDs in one transaction, and skips the
// others. With sel.AsOf it also skips jobs that ended later, because they may have written more rows. A
// number other than sel.Count is a *job.CountError; if no job can be recalled, it returns the
// *job.WrongStatusError or *job.YoungerError of the first. An unknown job is job.ErrNotFound. After an
// error nothing is changed. The caller calls Run of each result.
func BeginRecalls(ctx context.Context, pool *pgxpool.Pool, sel job.Selection, act job.Act) (begun []*BegunRecall, err error) {
	var refused error
	ids := slices.Compact(slices.Sorted(slices.Values(sel.IDs)))
	jobs, err := job.NewStore(pool).Summaries(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("recall jobs: %w", err)
	}
	for i, id := range ids {
		if i == len(jobs) || jobs[i].ID != id {
			return nil, fmt.Errorf("recall job %d: %w", id, job.ErrNotFound)
		}
		r := &BegunRecall{recall{pool: pool, act: act}}
		err := r.of(jobs[i])
		if err == nil && sel.AsOf != nil && r.job.FinishedAt.After(*sel.AsOf) {
			err = &job.YoungerError{JobID: id, AsOf: *sel.AsOf}
		}
		if err == nil {
			begun = append(begun, r)
		} else if refused == nil {
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
			if err := r.record(ctx, tx); err != nil { // the job was resumed meanwhile
				return fmt.Errorf("recall job %d: %w", r.job.ID, err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, job.NewStore(pool).NameHolders(ctx, err, ids...)
	}
	return begun, nil
}

// JobID returns the id of the job.
func (r *BegunRecall) JobID() int64 { return r.job.ID }

// Run withdraws the rows of the job, like Recall.
func (r *BegunRecall) Run(ctx context.Context, observe func(RecallProgress)) (Recalled, error) {
	r.observe = observe
	if err := r.walk(ctx); err != nil {
		return r.done.Recalled, fmt.Errorf("recall job %d: %w", r.job.ID, job.NewStore(r.pool).NameHolders(ctx, err, r.job.ID))
	}
	return r.done.Recalled, nil
}

// recall is one call of Recall.
type recall struct {
	pool    *pgxpool.Pool
	act     job.Act
	observe func(RecallProgress)
	job     job.Job // a summary
	done    RecallProgress
}

// recallable are the statuses of a job at rest that has, or may have, rows.
func recallable(s job.Status) bool {
	return s == job.Aborted || s == job.Processed || s == job.Failed
}

// begin checks the job and records the act before its steps change rows, so that no change lacks an
// actor and a reason.
func (r *recall) begin(ctx context.Context, jobID int64) error {
	j, err := job.NewStore(r.pool).Summary(ctx, jobID)
	if err != nil {
		return err
	}
	if err := r.of(j); err != nil {
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

// of checks the job, and takes it.
func (r *recall) of(j job.Job) error {
	r.job = j
	if !recallable(j.Status) {
		return &job.WrongStatusError{JobID: j.ID, Act: "recall", Status: r.job.Status,
			Needs: []job.Status{job.Aborted, job.Processed, job.Failed}}
	}
	r.done.Rows = r.job.RowsWritten
	return nil
}

// record writes the event through the trigger on recalled_at.
func (r *recall) record(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, queries.operatorAct, pgx.StrictNamedArgs{"actor": r.act.Actor, "reason": r.act.Reason}); err != nil {
		return err
	}
	return r.guard(tx.Exec(ctx, queries.recallRecord, pgx.StrictNamedArgs{"id": r.job.ID, "fence": r.job.Fence}))
}

// guard returns an error if a statement on the job's row changed no row.
func (r *recall) guard(tag pgconn.CommandTag, err error) error {
	if err == nil && tag.RowsAffected() == 0 {
		return ErrRecallStopped
	}
	return err
}

// walk processes the job's rows and records the end.
func (r *recall) walk(ctx context.Context) error {
	if r.job.Type != outbox.TypeInbox {
		err := r.each(ctx, table{true, queries.messageRecall, math.MaxInt64, &r.done.Messages,
			[]*int64{&r.done.Sent, &r.done.Dead, &r.done.InFlight, &r.done.Awaiting}})
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

// notificationBound returns the highest channel that may have a notification of the job: its cursor
// (I3), or any channel for other types, whose keys may have another meaning.
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

// table is one of the two tables of a recall, with its counts.
type table struct {
	messages  bool
	statement string
	bound     int64
	recalled  *int64
	late      []*int64
}

// recallStep is the result of one step.
type recallStep struct {
	keys, recalled, left int64
	late                 []int64
	last                 *int64 // the last examined key; nil at the end
}

// span is a range of channels: those after a channel up to another one.
type span struct{ after, to int64 }

// each runs the steps of one table, and then again those that have found locked rows, until no row is locked or
// recallPatience is over.
func (r *recall) each(ctx context.Context, t table) error {
	var locked []span
	for at := (span{math.MinInt64, t.bound}); ; {
		left, last, err := r.attempt(ctx, t, at)
		if err != nil {
			return err
		}
		if last == nil {
			break
		}
		if left > 0 {
			locked = append(locked, span{at.after, *last})
		}
		at.after = *last
	}
	for began := time.Now(); len(locked) > 0; {
		if err := lifecycle.Pause(ctx, recallRetry); err != nil {
			return err
		}
		var rows int64
		still := locked[:0]
		for _, at := range locked {
			left, _, err := r.attempt(ctx, t, at)
			if err != nil {
				return err
			}
			if rows += left; left > 0 {
				still = append(still, at)
			}
		}
		if locked = still; len(locked) > 0 && time.Since(began) > recallPatience {
			return fmt.Errorf("%w: %d of them%s", outbox.ErrRowsLocked, rows, r.holders(ctx, locked[0]))
		}
	}
	return nil
}

// attempt runs a step and counts it, completely if no row is locked. It returns the number of locked rows, and the last
// examined key, nil if there was none.
func (r *recall) attempt(ctx context.Context, t table, at span) (left int64, last *int64, err error) {
	l, err := r.step(ctx, t, at)
	if err != nil {
		return 0, nil, err
	}
	*t.recalled += l.recalled
	if l.left > 0 || l.last == nil {
		return l.left, l.last, nil
	}
	for i, n := range l.late {
		*t.late[i] += n
	}
	r.done.Looked += l.keys
	if r.observe != nil {
		r.observe(r.done)
	}
	return 0, l.last, nil
}

// holders describes the sessions that lock rows of the job in a range, with what ends them. It is empty if they are unknown.
func (r *recall) holders(ctx context.Context, at span) (s string) {
	var list []db.LockHolder
	_ = db.InTx(ctx, r.pool, db.Options{Limit: holdersLimit, Reads: true}, func(ctx context.Context, tx pgx.Tx) (err error) {
		list, err = db.Collect(ctx, tx, queries.recallHolders, pgx.StrictNamedArgs{"job_id": r.job.ID, "after": at.after, "to": at.to},
			pgx.RowToStructByName[db.LockHolder])
		return err
	}) // the error has no names then
	for _, h := range list {
		s += fmt.Sprintf("; by %s: %s", h, h.Remedy())
	}
	return s
}

// step runs one transaction: it locks rows in key order and skips locked ones; the statement on the job's
// row is the last and decides, as in a chunk.
func (r *recall) step(ctx context.Context, t table, at span) (l recallStep, err error) {
	err = operation.StepTx(ctx, r.pool, func(ctx context.Context, tx pgx.Tx) error {
		if t.messages {
			if err := outbox.OwnClaimedTx(ctx, tx, r.job.ID, at.after, recallKeys); err != nil {
				return err
			}
		}
		err := tx.QueryRow(ctx, t.statement, pgx.StrictNamedArgs{
			"job_id": r.job.ID, "after": at.after, "bound": at.to, "keys": recallKeys,
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
