package retention

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

const (
	// walkJobs is the number of jobs whose notifications one walk deletes, at most.
	walkJobs = 100
	// pruneJobs is the number of jobs that one statement lists.
	pruneJobs = 100
	// lockedRetry is the pause before locked rows are read again.
	lockedRetry = 20 * time.Millisecond
	// lockedPatience bounds the time for which they are read again. It is far longer than a relay locks a row.
	lockedPatience = 10 * time.Second
	// maxTries bounds the attempts of one step, whatever its rows.
	maxTries = 100_000
	// stepBytes is the size of events after which a step ends: one may have four megabytes.
	stepBytes = 32 << 20
	// stepTimeout bounds one transaction.
	stepTimeout = 15 * time.Second
)

// Pruned counts the deleted rows.
type Pruned struct {
	Notifications int64 `json:"notifications"` // of dropped partitions as many as their jobs wrote
	Messages      int64 `json:"messages"`
	Jobs          int64 `json:"jobs"`
	Events        int64 `json:"events"`
	Samples       int64 `json:"samples"`
}

func (p Pruned) plus(q Pruned) Pruned {
	return Pruned{p.Notifications + q.Notifications, p.Messages + q.Messages, p.Jobs + q.Jobs, p.Events + q.Events, p.Samples + q.Samples}
}

// Rows is the sum of all.
func (p Pruned) Rows() int64 { return p.Notifications + p.Messages + p.Jobs + p.Events + p.Samples }

// Options are optional parts of a prune.
type Options struct {
	// DryRun counts the rows and deletes nothing. Notifications are counted by the sums of their jobs;
	// notifications of custom job types are not counted.
	DryRun bool
	// AsOf is the time from which ages are counted back, by the database's clock. Nil means the time of each
	// statement.
	AsOf *time.Time
	Act  job.Act
	// Observe, unless nil, is called after each step with the counts so far.
	Observe func(Pruned)
}

// Prune deletes rows of finished jobs that are older than c allows. It runs transactions of about c.StepRows
// rows and pauses after each for as long as it took, so that it occupies a connection for half of the time at
// most. The connection's role must own the schema.
//
// The age of a message counts from its last change. A message is stored at least for the period of its
// category's cap. When the first row of a job is deleted, jobs.retention_at is set: such a job can no longer be
// retried, nor resumed after an abort. Messages that may still be sent or await a receipt are stored, and their
// job with them, except the held messages of a job that was aborted longer than c.Messages ago. A job's own row
// is deleted when it has no other rows and is older than c.Jobs. An activity is deleted with its message, and
// counted as one, c.Messages after the message was sent, died or was cancelled. Attempts are deleted with their
// message.
//
// Several processes may prune at the same time: they share the walk through the notifications, and skip rows
// that another process has locked. After an error or a kill, committed deletions stay, and the next prune
// continues. Rows that stay locked keep only deletions of their own kind waiting: the error comes after the others.
// Each call writes one event with its counts in its first step and updates the event in later steps.
// A call that deletes only samples, as a daemon's do every hour, writes none.
// Pruned counts committed deletions.
func Prune(ctx context.Context, pool *pgxpool.Pool, c outbox.Retention, o Options) (Pruned, error) {
	if err := c.Validate(); err != nil {
		return Pruned{}, err
	}
	p := prune{pool: pool, config: c, options: o}
	var locked error
	for _, part := range []struct {
		name  string
		age   time.Duration
		do    func(context.Context) error
		count func(context.Context) error
	}{
		{"messages", c.Messages, p.messages, p.messages},
		{"activities", c.Messages, p.activities, p.activities},
		{"notifications", c.Notifications, p.notifications, p.countNotifications},
		{"jobs", c.Jobs, p.jobs, p.jobs},
		{"events", c.Events, p.events, p.countEvents},
		{"samples", c.Samples, p.samples, p.countSamples},
	} {
		do := part.do
		if o.DryRun {
			do = part.count
		}
		if part.age == 0 {
			continue
		}
		if err := do(ctx); err != nil {
			err = fmt.Errorf("prune %s: %w", part.name, err)
			if !errors.Is(err, outbox.ErrRowsLocked) && !errors.Is(err, job.ErrLocked) {
				return p.done, errors.Join(locked, err)
			}
			locked = errors.Join(locked, err)
		}
	}
	return p.done, locked
}

// prune is one call of Prune.
type prune struct {
	pool    *pgxpool.Pool
	config  outbox.Retention
	options Options
	done    Pruned
	event   int64 // 0: nothing was deleted yet
}

// stepTx runs do in one short transaction.
func stepTx(ctx context.Context, pool *pgxpool.Pool, do func(context.Context, pgx.Tx) error) error {
	return job.TranslateError(db.InTx(ctx, pool, db.Options{Limit: stepTimeout}, do), job.ErrLocked, "")
}

// step runs one transaction, with the event of its deletions, and the pause after it.
func (p *prune) step(ctx context.Context, do func(context.Context, pgx.Tx) (Pruned, error)) error {
	began := time.Now()
	var sum Pruned
	var event int64
	err := stepTx(ctx, p.pool, func(ctx context.Context, tx pgx.Tx) error {
		deleted, err := do(ctx, tx)
		if err != nil {
			return err
		}
		sum, event = p.done.plus(deleted), p.event
		if p.options.DryRun || deleted == (Pruned{}) || p.event == 0 && deleted == (Pruned{Samples: deleted.Samples}) {
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

// ended is a finished job.
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
		args := pgx.StrictNamedArgs{
			"as_of": p.options.AsOf, "seconds": age.Seconds(), "after_at": after.at, "after_id": after.id, "jobs": pruneJobs,
		}
		err := stepTx(ctx, p.pool, func(ctx context.Context, tx pgx.Tx) (err error) {
			list, err = db.Collect(ctx, tx, statement, args, func(row pgx.CollectableRow) (e ended, err error) {
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
	return p.eachJob(ctx, queries.jobsWithOldMessages, p.config.Messages, func(ctx context.Context, e ended) error {
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
		return stepTx(ctx, p.pool, func(ctx context.Context, tx pgx.Tx) error {
			return p.markPruned(ctx, tx, []int64{e.id})
		})
	})
}

// pruneMessages deletes messages of a job in one step. The step that deletes the first one, or its attempts, marks the
// job as final. last is nil when none is left, or the job has been resumed.
func (p *prune) pruneMessages(ctx context.Context, tx pgx.Tx, id, after int64) (last *int64, deleted int64, err error) {
	if err := outbox.OwnClaimedTx(ctx, tx, id, after, p.config.StepRows); err != nil { // before the job's row, as recalls do
		return nil, 0, err
	}
	var seconds float64
	var aborted bool
	err = tx.QueryRow(ctx, queries.jobHoldForRetention,
		pgx.StrictNamedArgs{"as_of": p.options.AsOf, "id": id, "seconds": p.config.Messages.Seconds()}).Scan(&seconds, &aborted)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	var attempts int64
	err = tx.QueryRow(ctx, queries.messagePrune, pgx.StrictNamedArgs{
		"as_of": p.options.AsOf, "job_id": id, "after": after, "keys": p.config.StepRows, "seconds": seconds, "aborted": aborted,
		"tries": p.tries(),
	}).Scan(&last, &deleted, &attempts)
	if err != nil || deleted+attempts == 0 {
		return last, 0, err
	}
	_, err = tx.Exec(ctx, queries.jobMarkRetention, pgx.StrictNamedArgs{"as_of": p.options.AsOf, "id": id, "seconds": seconds})
	return last, deleted, err
}

// tries is the number of attempts that one step deletes at most: a role that delivers may write any number for a message.
func (p *prune) tries() int { return min(10*p.config.StepRows, maxTries) }

// activities deletes or counts old activities, their messages and notifications.
func (p *prune) activities(ctx context.Context) error {
	inbox := p.config.Notifications
	if inbox == 0 {
		inbox = outbox.MaxRetention // of 0: permanently
	}
	statement := queries.activityPrune
	args := pgx.StrictNamedArgs{
		"as_of": p.options.AsOf, "seconds": p.config.Messages.Seconds(), "inbox_seconds": inbox.Seconds(), "keys": p.config.StepRows,
	}
	if p.options.DryRun {
		statement = queries.activitiesPrunable
	} else {
		args["tries"] = p.tries()
	}
	for last := new(int64); last != nil; {
		err := p.step(ctx, func(ctx context.Context, tx pgx.Tx) (d Pruned, err error) {
			args["after"] = *last
			err = tx.QueryRow(ctx, statement, args).Scan(&last, &d.Messages)
			return d, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// mark sets retention_at of a job before any of its rows is deleted. It returns false if the job has been
// resumed.
func (p *prune) mark(ctx context.Context, id int64, age time.Duration) (marked bool, err error) {
	err = stepTx(ctx, p.pool, func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, queries.jobMarkRetention, pgx.StrictNamedArgs{"as_of": p.options.AsOf, "id": id, "seconds": age.Seconds()})
		marked = tag.RowsAffected() > 0
		return err
	})
	return marked, err
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
				"as_of": p.options.AsOf, "job_id": e.id, "after": *last, "keys": p.config.StepRows, "seconds": p.config.Messages.Seconds(),
			}).Scan(&last, &keys, &d.Messages)
			all, old = all+keys, old+d.Messages
			return d, err
		})
		if err != nil {
			return err
		}
	}
	if all == old && p.config.Jobs > 0 && e.kind == outbox.TypePush && time.Since(e.at) > p.config.Jobs {
		p.done.Jobs++
	}
	return nil
}

// notifications drops partitions, continues the current walk, and starts more walks until no notification is old enough
// or another process runs the walk. A partition in use is an error after the walks: the next prune drops it.
func (p *prune) notifications(ctx context.Context) error {
	dropped := p.dropPartitions(ctx)
	if dropped != nil && !errors.Is(dropped, job.ErrLocked) {
		return dropped
	}
	return errors.Join(p.walkNotifications(ctx), dropped)
}

// dropPartitions drops the partitions whose jobs are all old enough. It returns job.ErrLocked if one is in use.
func (p *prune) dropPartitions(ctx context.Context) error {
	for rows := new(int64); rows != nil; {
		err := p.step(ctx, func(ctx context.Context, tx pgx.Tx) (d Pruned, err error) {
			err = tx.QueryRow(ctx, queries.notificationsDrop,
				pgx.StrictNamedArgs{"as_of": p.options.AsOf, "seconds": p.config.Notifications.Seconds()}).Scan(&rows)
			if rows != nil {
				d.Notifications = *rows
			}
			return d, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *prune) walkNotifications(ctx context.Context) error {
	for {
		var found, more bool
		var since time.Time // of locked rows
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
				since = time.Time{}
			} else if since = cmp.Or(since, time.Now()); time.Since(since) > lockedPatience {
				return fmt.Errorf("%w: %d of them", outbox.ErrRowsLocked, left)
			} else if err := lifecycle.Pause(ctx, lockedRetry); err != nil {
				return err
			}
		}
		err := stepTx(ctx, p.pool, func(ctx context.Context, tx pgx.Tx) (err error) {
			more, err = p.beginWalk(ctx, tx)
			return err
		})
		if err != nil || !more {
			return err
		}
	}
}

// beginWalk starts a walk unless another process runs one.
func (p *prune) beginWalk(ctx context.Context, tx pgx.Tx) (begun bool, err error) {
	var on bool
	if err := tx.QueryRow(ctx, queries.retentionWalkExists).Scan(&on); err != nil || on {
		return false, err
	}
	var jobs int
	err = tx.QueryRow(ctx, queries.retentionWalkBegin,
		pgx.StrictNamedArgs{"as_of": p.options.AsOf, "seconds": p.config.Notifications.Seconds(), "jobs": walkJobs}).Scan(&jobs)
	return jobs > 0, err
}

// walkStep runs one step of the walk. found is false when there is no walk, or another process runs it.
func (p *prune) walkStep(ctx context.Context, tx pgx.Tx) (found bool, left, deleted int64, err error) {
	var ids, arrivals []int64
	var after, most int64
	err = tx.QueryRow(ctx, queries.retentionWalk).Scan(&ids, &arrivals, &after, &most)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, 0, 0, nil
	}
	if err != nil {
		return false, 0, 0, err
	}
	var last *int64
	err = tx.QueryRow(ctx, queries.notificationPrune, pgx.StrictNamedArgs{
		"arrivals": arrivals, "after": after, "keys": max(1, int64(p.config.StepRows)/max(1, most)),
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
	jobs := p.config.Jobs
	if jobs == 0 {
		jobs = outbox.MaxRetention
	}
	return p.step(ctx, func(ctx context.Context, tx pgx.Tx) (d Pruned, err error) {
		err = tx.QueryRow(ctx, queries.notificationsPrunable, pgx.StrictNamedArgs{
			"as_of": p.options.AsOf, "seconds": p.config.Notifications.Seconds(), "jobs_seconds": jobs.Seconds(),
		}).Scan(&d.Notifications, &d.Jobs)
		return d, err
	})
}

// jobs deletes the rows of old jobs, in steps; rows that refer to a job are deleted first.
func (p *prune) jobs(ctx context.Context) error {
	return p.eachJob(ctx, queries.jobsPrunable, p.config.Jobs, func(ctx context.Context, e ended) error {
		if p.options.DryRun {
			p.done.Jobs++
			return nil
		}
		if marked, err := p.mark(ctx, e.id, p.config.Jobs); err != nil || !marked {
			return err
		}
		args := pgx.StrictNamedArgs{"id": e.id, "keys": p.config.StepRows}
		for _, statement := range []string{queries.jobSkipsPrune, queries.jobValuesPrune, queries.jobAttemptsPrune} {
			for full := true; full; {
				err := p.step(ctx, func(ctx context.Context, tx pgx.Tx) (Pruned, error) {
					tag, err := tx.Exec(ctx, statement, args)
					full = tag.RowsAffected() == int64(p.config.StepRows)
					return Pruned{}, err
				})
				if err != nil {
					return err
				}
			}
		}
		events := pgx.StrictNamedArgs{"id": e.id, "keys": p.config.StepRows, "bytes": stepBytes}
		for more := true; more; {
			err := p.step(ctx, func(ctx context.Context, tx pgx.Tx) (Pruned, error) {
				return Pruned{}, tx.QueryRow(ctx, queries.jobEventsPrune, events).Scan(&more)
			})
			if err != nil {
				return err
			}
		}
		return p.step(ctx, func(ctx context.Context, tx pgx.Tx) (d Pruned, err error) {
			tag, err := tx.Exec(ctx, queries.jobPrune, pgx.StrictNamedArgs{"as_of": p.options.AsOf, "id": e.id, "seconds": p.config.Jobs.Seconds()})
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
				"as_of": p.options.AsOf, "seconds": p.config.Events.Seconds(), "keys": p.config.StepRows, "bytes": stepBytes,
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
				"as_of": p.options.AsOf, "seconds": p.config.Events.Seconds(), "keys": p.config.StepRows, "after": *last,
			}).Scan(&last, &d.Events)
			return d, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// samples deletes old figures.
func (p *prune) samples(ctx context.Context) error {
	for more := true; more; {
		err := p.step(ctx, func(ctx context.Context, tx pgx.Tx) (d Pruned, err error) {
			tag, err := tx.Exec(ctx, queries.samplesPrune, pgx.StrictNamedArgs{
				"as_of": p.options.AsOf, "seconds": p.config.Samples.Seconds(), "keys": p.config.StepRows,
			})
			d.Samples = tag.RowsAffected()
			more = d.Samples == int64(p.config.StepRows)
			return d, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *prune) countSamples(ctx context.Context) error {
	return p.step(ctx, func(ctx context.Context, tx pgx.Tx) (d Pruned, err error) {
		err = tx.QueryRow(ctx, queries.samplesPrunable, pgx.StrictNamedArgs{
			"as_of": p.options.AsOf, "seconds": p.config.Samples.Seconds(),
		}).Scan(&d.Samples)
		return d, err
	})
}
