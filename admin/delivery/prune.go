package delivery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

const (
	// walkJobs is how many jobs one walk through the notifications is about at most.
	walkJobs = 100
	// pruneJobs is how many jobs are listed at once.
	pruneJobs = 100
)

// Pruned counts the deleted rows.
type Pruned struct {
	Notifications int64 `json:"notifications"`
	Messages      int64 `json:"messages"`
	Jobs          int64 `json:"jobs"`
	Events        int64 `json:"events"`
}

func (p Pruned) plus(q Pruned) Pruned {
	return Pruned{p.Notifications + q.Notifications, p.Messages + q.Messages, p.Jobs + q.Jobs, p.Events + q.Events}
}

// Rows is the sum of all.
func (p Pruned) Rows() int64 { return p.Notifications + p.Messages + p.Jobs + p.Events }

// PruneOptions are who prunes and who watches.
type PruneOptions struct {
	// DryRun counts what would be deleted and writes nothing. Notifications are counted
	// by the sums of their jobs; those of job types of the user's own are not.
	DryRun bool
	// AsOf is what ages are counted back from, by the database's clock; nil: now, as it goes on.
	AsOf *time.Time
	Act  job.Act
	// Observe, unless nil, is called after each step with the counts so far.
	Observe func(Pruned)
}

// Prune deletes what is older than r says, of jobs at rest only, in transactions of
// about r.StepRows rows with a pause as long as each took, so that it has half a
// connection's time at the most. The connection's role must own the schema.
//
// A message is as old as its last change, and is kept as long as its category's cap looks
// back at least. When a job's first row goes, jobs.retention_at is set: from then on the
// job cannot be walked again, so that it cannot be retried or have skipped recipients tried
// again, and not resumed if it was ABORTED already. Of its messages those stay that may
// still be sent or whose receipt is awaited, and with them the job.
// A job's own row goes when none of its rows is left and it is older than r.Jobs. An
// activity goes with its message, and counts as one, r.Messages after that was sent, died
// or was cancelled. What was recorded of attempts goes with the message.
//
// Any number of nodes may prune at once: they share the walk through the
// notifications, and elsewhere skip rows that another has locked. With an error,
// or when the process is killed, what was committed stays deleted and the next prune
// goes on. One event tells what each call deleted, written with its first step and
// raised with each later one. Pruned is what this call knows to be committed.
func Prune(ctx context.Context, pool *pgxpool.Pool, r outbox.Retention, o PruneOptions) (Pruned, error) {
	if err := r.Validate(); err != nil {
		return Pruned{}, err
	}
	p := prune{pool: pool, retention: r, options: o}
	for _, part := range []struct {
		name  string
		age   time.Duration
		do    func(context.Context) error
		count func(context.Context) error
	}{
		{"messages", r.Messages, p.messages, p.messages},
		{"activities", r.Messages, p.activities, p.activities},
		{"notifications", r.Notifications, p.notifications, p.countNotifications},
		{"jobs", r.Jobs, p.jobs, p.jobs},
		{"events", r.Events, p.events, p.countEvents},
	} {
		do := part.do
		if o.DryRun {
			do = part.count
		}
		if part.age == 0 {
			continue
		}
		if err := do(ctx); err != nil {
			return p.done, fmt.Errorf("prune %s: %w", part.name, err)
		}
	}
	return p.done, nil
}

// prune is one call of Prune.
type prune struct {
	pool      *pgxpool.Pool
	retention outbox.Retention
	options   PruneOptions
	done      Pruned
	event     int64 // 0: nothing was deleted yet
}

// step is one transaction and the pause after it. What it deletes is in the event
// when it commits.
func (p *prune) step(ctx context.Context, do func(context.Context, pgx.Tx) (Pruned, error)) error {
	began := time.Now()
	var sum Pruned
	var event int64
	err := operation.StepTx(ctx, p.pool, func(ctx context.Context, tx pgx.Tx) error {
		deleted, err := do(ctx, tx)
		if err != nil {
			return err
		}
		sum, event = p.done.plus(deleted), p.event
		if p.options.DryRun || deleted == (Pruned{}) {
			return nil
		}
		event, err = p.record(ctx, tx, sum)
		return err
	})
	if err != nil {
		return err
	}
	p.done, p.event = sum, event
	if p.options.Observe != nil {
		p.options.Observe(p.done)
	}
	return lifecycle.Pause(ctx, time.Since(began))
}

func (p *prune) record(ctx context.Context, tx pgx.Tx, sum Pruned) (event int64, err error) {
	encoded, err := json.Marshal(sum)
	if err != nil {
		return 0, err
	}
	if p.event != 0 {
		_, err = tx.Exec(ctx, queries.retentionRecordMore, pgx.StrictNamedArgs{"id": p.event, "deleted": string(encoded)})
		return p.event, err
	}
	err = tx.QueryRow(ctx, queries.retentionRecord, pgx.StrictNamedArgs{
		"actor": p.options.Act.Actor, "reason": p.options.Act.Reason, "deleted": string(encoded),
	}).Scan(&event)
	return event, err
}

// ended is a job at rest.
type ended struct {
	id   int64
	at   time.Time
	kind string
}

// eachJob calls do for every job that a listing statement selects, in its order.
func (p *prune) eachJob(ctx context.Context, statement string, age time.Duration, do func(context.Context, ended) error) error {
	after := ended{at: time.Time{}.AddDate(1, 0, 0), id: math.MinInt64}
	for {
		var list []ended
		err := operation.StepTx(ctx, p.pool, func(ctx context.Context, tx pgx.Tx) error {
			rows, err := tx.Query(ctx, statement, pgx.StrictNamedArgs{
				"as_of": p.options.AsOf, "seconds": age.Seconds(), "after_at": after.at, "after_id": after.id, "jobs": pruneJobs,
			})
			if err != nil {
				return err
			}
			list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (e ended, err error) {
				err = row.Scan(&e.id, &e.at, &e.kind)
				return e, err
			})
			return err
		})
		if err != nil || len(list) == 0 {
			return err
		}
		for _, e := range list {
			if err := do(ctx, e); err != nil {
				return fmt.Errorf("job %d: %w", e.id, err)
			}
		}
		after = list[len(list)-1]
	}
}

// messages deletes the messages of old jobs, job by job.
func (p *prune) messages(ctx context.Context) error {
	return p.eachJob(ctx, queries.jobsWithOldMessages, p.retention.Messages, func(ctx context.Context, e ended) error {
		if p.options.DryRun {
			return p.countMessages(ctx, e)
		}
		for last := new(int64(math.MinInt64)); last != nil; {
			after := *last
			err := p.step(ctx, func(ctx context.Context, tx pgx.Tx) (d Pruned, err error) {
				last, d.Messages, err = p.pruneMessages(ctx, tx, e.id, after)
				return d, err
			})
			if err != nil {
				return err
			}
		}
		if e.kind != outbox.TypePush {
			return nil
		}
		return operation.StepTx(ctx, p.pool, func(ctx context.Context, tx pgx.Tx) error {
			return p.markPruned(ctx, tx, []int64{e.id})
		})
	})
}

// pruneMessages is one step through the messages of a job. What makes the job's rest final
// is in the step that first deletes one. last is nil when none is left, or the job went on
// meanwhile.
func (p *prune) pruneMessages(ctx context.Context, tx pgx.Tx, id, after int64) (last *int64, deleted int64, err error) {
	var seconds float64
	var aborted bool
	err = tx.QueryRow(ctx, queries.jobHoldForRetention, pgx.StrictNamedArgs{"as_of": p.options.AsOf, "id": id, "seconds": p.retention.Messages.Seconds()}).Scan(&seconds, &aborted)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	err = tx.QueryRow(ctx, queries.messagePrune, pgx.StrictNamedArgs{
		"as_of": p.options.AsOf, "job_id": id, "after": after, "keys": p.retention.StepRows, "seconds": seconds, "aborted": aborted,
	}).Scan(&last, &deleted)
	if err != nil || deleted == 0 {
		return last, 0, err
	}
	_, err = tx.Exec(ctx, queries.jobMarkRetention, pgx.StrictNamedArgs{"as_of": p.options.AsOf, "id": id, "seconds": seconds})
	return last, deleted, err
}

// activities deletes old activities with their messages, or counts them.
func (p *prune) activities(ctx context.Context) error {
	statement := queries.activityPrune
	if p.options.DryRun {
		statement = queries.activitiesPrunable
	}
	for last := new(int64); last != nil; {
		err := p.step(ctx, func(ctx context.Context, tx pgx.Tx) (d Pruned, err error) {
			after := *last
			err = tx.QueryRow(ctx, statement, pgx.StrictNamedArgs{
				"as_of": p.options.AsOf, "seconds": p.retention.Messages.Seconds(), "after": after, "keys": p.retention.StepRows,
			}).Scan(&last, &d.Messages)
			return d, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// mark makes a job's rest final before anything of it is deleted. It is not going
// when the job went on meanwhile.
func (p *prune) mark(ctx context.Context, id int64, age time.Duration) (going bool, err error) {
	err = operation.StepTx(ctx, p.pool, func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, queries.jobMarkRetention, pgx.StrictNamedArgs{"as_of": p.options.AsOf, "id": id, "seconds": age.Seconds()})
		going = tag.RowsAffected() > 0
		return err
	})
	return going, err
}

func (p *prune) markPruned(ctx context.Context, tx pgx.Tx, ids []int64) error {
	_, err := tx.Exec(ctx, queries.jobsMarkPruned, pgx.StrictNamedArgs{"ids": ids})
	return err
}

func (p *prune) countMessages(ctx context.Context, e ended) error {
	var all, old int64
	for last := new(int64(math.MinInt64)); last != nil; {
		err := p.step(ctx, func(ctx context.Context, tx pgx.Tx) (d Pruned, err error) {
			var keys int64
			err = tx.QueryRow(ctx, queries.messagesPrunable, pgx.StrictNamedArgs{
				"as_of": p.options.AsOf, "job_id": e.id, "after": *last, "keys": p.retention.StepRows, "seconds": p.retention.Messages.Seconds(),
			}).Scan(&last, &keys, &d.Messages)
			all, old = all+keys, old+d.Messages
			return d, err
		})
		if err != nil {
			return err
		}
	}
	if all == old && p.retention.Jobs > 0 && e.kind == outbox.TypePush && time.Since(e.at) > p.retention.Jobs {
		p.done.Jobs++
	}
	return nil
}

// notifications goes on with the walk that is on, and begins others until nothing is
// old enough or another node is at it.
func (p *prune) notifications(ctx context.Context) error {
	for {
		var found, more bool
		retries := 0
		for found = true; found; {
			var left int64
			err := p.step(ctx, func(ctx context.Context, tx pgx.Tx) (d Pruned, err error) {
				found, left, d.Notifications, err = p.walkStep(ctx, tx)
				return d, err
			})
			if err != nil {
				return err
			}
			if left == 0 {
				retries = 0
			} else if retries++; retries > recallRetries {
				return fmt.Errorf("%w: %d of them", outbox.ErrRowsLocked, left)
			} else if err := lifecycle.Pause(ctx, recallRetry); err != nil {
				return err
			}
		}
		err := operation.StepTx(ctx, p.pool, func(ctx context.Context, tx pgx.Tx) (err error) {
			more, err = p.beginWalk(ctx, tx)
			return err
		})
		if err != nil || !more {
			return err
		}
	}
}

// beginWalk begins a walk unless one is on, which another node is moving then.
func (p *prune) beginWalk(ctx context.Context, tx pgx.Tx) (begun bool, err error) {
	var on bool
	if err := tx.QueryRow(ctx, queries.retentionWalkExists).Scan(&on); err != nil || on {
		return false, err
	}
	var jobs int
	err = tx.QueryRow(ctx, queries.retentionWalkBegin, pgx.StrictNamedArgs{"as_of": p.options.AsOf, "seconds": p.retention.Notifications.Seconds(), "jobs": walkJobs}).Scan(&jobs)
	return jobs > 0, err
}

// walkStep is one step of the walk. found is false when there is none to move.
func (p *prune) walkStep(ctx context.Context, tx pgx.Tx) (found bool, left, deleted int64, err error) {
	var ids []int64
	var after, most int64
	err = tx.QueryRow(ctx, queries.retentionWalk).Scan(&ids, &after, &most)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, 0, 0, nil
	}
	if err != nil {
		return false, 0, 0, err
	}
	var last *int64
	err = tx.QueryRow(ctx, queries.notificationPrune, pgx.StrictNamedArgs{
		"job_ids": ids, "after": after, "keys": max(1, int64(p.retention.StepRows)/max(1, most)),
	}).Scan(&last, &deleted, &left)
	switch {
	case err != nil || left > 0:
	case last != nil:
		_, err = tx.Exec(ctx, queries.retentionWalkMove, pgx.StrictNamedArgs{"after": *last})
	default:
		if err = p.markPruned(ctx, tx, ids); err == nil {
			_, err = tx.Exec(ctx, queries.retentionWalkEnd)
		}
	}
	return true, left, deleted, err
}

func (p *prune) countNotifications(ctx context.Context) error {
	jobs := p.retention.Jobs
	if jobs == 0 {
		jobs = outbox.MaxRetention
	}
	return p.step(ctx, func(ctx context.Context, tx pgx.Tx) (d Pruned, err error) {
		err = tx.QueryRow(ctx, queries.notificationsPrunable, pgx.StrictNamedArgs{
			"as_of": p.options.AsOf, "seconds": p.retention.Notifications.Seconds(), "jobs_seconds": jobs.Seconds(),
		}).Scan(&d.Notifications, &d.Jobs)
		return d, err
	})
}

// jobs deletes the rows of old jobs, what hangs on them first and in steps.
func (p *prune) jobs(ctx context.Context) error {
	return p.eachJob(ctx, queries.jobsPrunable, p.retention.Jobs, func(ctx context.Context, e ended) error {
		if p.options.DryRun {
			p.done.Jobs++
			return nil
		}
		if going, err := p.mark(ctx, e.id, p.retention.Jobs); err != nil || !going {
			return err
		}
		args := pgx.StrictNamedArgs{"id": e.id, "keys": p.retention.StepRows}
		for _, statement := range []string{queries.jobSkipsPrune, queries.jobEventsPrune} {
			for full := true; full; {
				err := p.step(ctx, func(ctx context.Context, tx pgx.Tx) (Pruned, error) {
					tag, err := tx.Exec(ctx, statement, args)
					full = tag.RowsAffected() == int64(p.retention.StepRows)
					return Pruned{}, err
				})
				if err != nil {
					return err
				}
			}
		}
		return p.step(ctx, func(ctx context.Context, tx pgx.Tx) (d Pruned, err error) {
			tag, err := tx.Exec(ctx, queries.jobPrune, pgx.StrictNamedArgs{"as_of": p.options.AsOf, "id": e.id, "seconds": p.retention.Jobs.Seconds()})
			d.Jobs = tag.RowsAffected()
			return d, err
		})
	})
}

// events deletes old events that belong to no job.
func (p *prune) events(ctx context.Context) error {
	for more := true; more; {
		err := p.step(ctx, func(ctx context.Context, tx pgx.Tx) (d Pruned, err error) {
			err = tx.QueryRow(ctx, queries.eventsPrune, pgx.StrictNamedArgs{
				"as_of": p.options.AsOf, "seconds": p.retention.Events.Seconds(), "keys": p.retention.StepRows,
			}).Scan(&d.Events, &more)
			return d, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *prune) countEvents(ctx context.Context) error {
	for last := new(int64(math.MinInt64)); last != nil; {
		err := p.step(ctx, func(ctx context.Context, tx pgx.Tx) (d Pruned, err error) {
			err = tx.QueryRow(ctx, queries.eventsPrunable, pgx.StrictNamedArgs{
				"as_of": p.options.AsOf, "seconds": p.retention.Events.Seconds(), "keys": p.retention.StepRows, "after": *last,
			}).Scan(&last, &d.Events)
			return d, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
