package delivery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// deadRetries is the maximum number of repetitions of a redrive's step because of concurrent recalls
// and retention.
const deadRetries = 10

// errJobsMoved makes a step repeat; see DeadUndeliver.
var errJobsMoved = errors.New("jobs were recalled or deleted meanwhile")

// DeadDone counts the messages of a redrive or a discard.
type DeadDone struct {
	Looked  int64 `json:"looked"`  // dead letters that matched
	Changed int64 `json:"changed"` // redriven or discarded
	Held    int64 `json:"held"`    // redriven, and waiting until their ABORTED job is resumed
	// Skipped letters: their job is ABORTED and retention is deleting its rows, or their job was
	// deleted; their job was recalled after they died.
	Retention int64 `json:"retention"`
	Recalled  int64 `json:"recalled"`
}

// DeadOptions are the options of Redrive and Discard.
type DeadOptions struct {
	Act job.Act
	// SameMedium makes a redrive continue with the medium at which a message died. Otherwise it starts
	// with the first medium of the route.
	SameMedium bool
	// Observe, unless nil, is called after each step with the counts so far.
	Observe func(DeadDone)
}

// Redrive returns every dead letter that f selects to the queue: DEAD becomes PENDING,
// due now, with its attempts counted from zero, and its job is marked as undelivered. Its record
// stays, and its idempotency keys do not change.
//
// It works in key order and in steps of a bounded number of keys, each in one transaction, so that
// no row stays locked for long. A letter that dies again meanwhile is not redriven twice. After an
// error or a kill the committed steps stay, and a second call continues. Several calls may run
// at once. The counts include the steps whose commit this call knows.
//
// It skips letters of ABORTED jobs that retention deletes, and letters whose job was recalled after
// they died. Letters of other ABORTED jobs are redriven and held until their job is resumed.
//
// The act is one event, subject dead_letter, written with the first step that changes a letter
// and updated by each later one: its counts always equal the changed rows (I14). It returns the
// errors of DeadLetters.
func Redrive(ctx context.Context, pool *pgxpool.Pool, f DeadFilter, o DeadOptions) (DeadDone, error) {
	a := deadAct{deadWalk: deadWalk{pool: pool, filter: f, keys: deadKeys}, kind: "redriven", to: outbox.Pending, options: o}
	if err := a.run(ctx); err != nil {
		return a.done, fmt.Errorf("redrive: %w", err)
	}
	return a.done, nil
}

// Discard makes every dead letter that f selects CANCELLED permanently, and an audit counts it as
// discarded. Otherwise it works like Redrive. It also discards letters of recalled jobs.
func Discard(ctx context.Context, pool *pgxpool.Pool, f DeadFilter, o DeadOptions) (DeadDone, error) {
	a := deadAct{deadWalk: deadWalk{pool: pool, filter: f, keys: deadKeys}, kind: "discarded", to: outbox.Cancelled, options: o}
	if err := a.run(ctx); err != nil {
		return a.done, fmt.Errorf("discard: %w", err)
	}
	return a.done, nil
}

// deadWalk reads the dead letters of a filter in key order.
type deadWalk struct {
	pool   *pgxpool.Pool
	filter DeadFilter
	keys   int // per step
}

// each calls do with the letters of every step in its transaction, and after, unless nil, when the
// transaction is committed. It repeats a step if do returns errJobsMoved.
func (w deadWalk) each(ctx context.Context, do func(context.Context, pgx.Tx, []deadFound) error, after func()) error {
	position, high := w.filter.span()
	for retries := 0; ; {
		end := position
		var more bool
		err := operation.StepTx(ctx, w.pool, func(ctx context.Context, tx pgx.Tx) error {
			found, err := w.step(ctx, tx, &end, high)
			if more = end != position; err != nil || !more {
				return err
			}
			return do(ctx, tx, found)
		})
		switch {
		case errors.Is(err, errJobsMoved) && retries < deadRetries:
			retries++
			continue
		case err != nil || !more:
			return err
		}
		position, retries = end, 0
		if after != nil {
			after()
		}
	}
}

// step reads matching letters after end, and moves end to the last key read.
func (w deadWalk) step(ctx context.Context, tx pgx.Tx, end *outbox.Key, high outbox.Key) (list []deadFound, err error) {
	var jobID, channelID *int64
	var medium, reason, sender, code, message *string
	var held *bool
	var kept string
	var recalledAt *time.Time
	args := w.filter.args(pgx.StrictNamedArgs{
		"after_job_id": end.JobID, "after_channel_id": end.ChannelID, "high_job_id": high.JobID, "high_channel_id": high.ChannelID,
		"keys": w.keys, "by_error": w.filter.Error != "",
	})
	to := []any{
		&end.JobID, &end.ChannelID, &jobID, &channelID, &medium, &reason, &held, &kept, &recalledAt, &sender, &code, &message,
	}
	err = db.Each(ctx, tx, queries.deadStep, args, to, func() error {
		if jobID != nil && w.filter.ofError(medium, reason, sender, code, message) {
			list = append(list, deadFound{Key: outbox.Key{JobID: *jobID, ChannelID: *channelID}, medium: textOf(medium),
				reason: outbox.Reason(textOf(reason)), held: *held, kept: kept, recalledAt: recalledAt})
		}
		return nil
	})
	return list, err
}

// deadAct is one call of Redrive or Discard.
type deadAct struct {
	deadWalk

	kind    string
	to      outbox.Status
	options DeadOptions
	done    DeadDone
	event   deadEvent
}

// deadEvent is the event of the act, with its number of rows. Zero means no event yet.
type deadEvent struct{ id, rows int64 }

func (a *deadAct) run(ctx context.Context) error {
	if err := a.filter.check(ctx, a.pool); err != nil {
		return err
	}
	var sum DeadDone
	var event deadEvent
	return a.each(ctx, func(ctx context.Context, tx pgx.Tx, found []deadFound) (err error) {
		sum, event = a.done, a.event
		changed, err := a.change(ctx, tx, found, &sum)
		if err != nil || changed == 0 {
			return err
		}
		event, err = a.record(ctx, tx, changed)
		return err
	}, func() {
		a.done, a.event = sum, event
		if a.options.Observe != nil {
			a.options.Observe(a.done)
		}
	})
}

// change acts on the eligible letters of a step, and adds to sum. It locks messages before jobs, like
// every transaction that locks both.
func (a *deadAct) change(ctx context.Context, tx pgx.Tx, found []deadFound, sum *DeadDone) (changed int64, err error) {
	args := pgx.StrictNamedArgs{}
	statement := queries.deadDiscard
	if a.to == outbox.Pending {
		statement, args["same_step"] = queries.deadRedrive, a.options.SameMedium
	}
	jobIDs, channelIDs := make([]int64, 0, len(found)), make([]int64, 0, len(found))
	letters := make(map[outbox.Key]deadFound, len(found))
	for _, d := range found {
		sum.Looked++
		switch {
		case d.kept == keptByRetention:
			sum.Retention++
		case d.kept == keptRecalled && a.to == outbox.Pending:
			sum.Recalled++
		default:
			jobIDs, channelIDs, letters[d.Key] = append(jobIDs, d.JobID), append(channelIDs, d.ChannelID), d
		}
	}
	if len(jobIDs) == 0 {
		return 0, nil
	}
	args["job_ids"], args["channel_ids"] = jobIDs, channelIDs
	var key outbox.Key
	recalls := make(map[int64]*time.Time) // by job
	counts := make(map[int64]outbox.ProgressChange)
	err = db.Each(ctx, tx, statement, args, []any{&key.JobID, &key.ChannelID}, func() error {
		changed++
		counts[key.JobID] = a.revive(counts[key.JobID])
		if d := letters[key]; a.to == outbox.Pending {
			recalls[key.JobID] = d.recalledAt
			if d.held {
				sum.Held++
			}
		}
		return nil
	})
	sum.Changed += changed
	if err == nil {
		err = outbox.ChangeProgressTx(ctx, tx, counts)
	}
	if err != nil {
		return 0, err
	}
	if changed > 0 && a.to == outbox.Pending {
		if _, err := tx.Exec(ctx, queries.messagesRing); err != nil {
			return 0, err
		}
	}
	return changed, undeliver(ctx, tx, recalls)
}

// revive adds a letter that the act has changed.
func (a *deadAct) revive(c outbox.ProgressChange) outbox.ProgressChange {
	c.Dead--
	if a.to == outbox.Cancelled {
		c.Cancelled++
	}
	return c
}

// undeliver marks jobs as undelivered. It returns errJobsMoved if one of them was recalled or taken by
// retention since the step read it.
func undeliver(ctx context.Context, tx pgx.Tx, recalls map[int64]*time.Time) error {
	ids, times := make([]int64, 0, len(recalls)), make([]*time.Time, 0, len(recalls))
	for id, at := range recalls {
		if id > 0 {
			ids, times = append(ids, id), append(times, at)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	tag, err := tx.Exec(ctx, queries.deadUndeliver, pgx.StrictNamedArgs{"ids": ids, "recalls": times})
	if err == nil && tag.RowsAffected() != int64(len(ids)) {
		return errJobsMoved
	}
	return err
}

// record writes or updates the act's event.
func (a *deadAct) record(ctx context.Context, tx pgx.Tx, changed int64) (deadEvent, error) {
	if a.event.id != 0 {
		rows := a.event.rows + changed
		before, after := a.counts(rows)
		tag, err := tx.Exec(ctx, queries.deadRecordMore, pgx.StrictNamedArgs{"id": a.event.id, "before": before, "after": after})
		if err != nil || tag.RowsAffected() > 0 {
			return deadEvent{a.event.id, rows}, err
		}
	}
	filter := struct {
		DeadFilter

		SameMedium bool `json:"same_medium,omitempty"`
	}{a.filter, a.options.SameMedium && a.to == outbox.Pending}
	encoded, err := json.Marshal(filter)
	if err != nil {
		return deadEvent{}, err
	}
	event := deadEvent{rows: changed}
	name := ""
	if a.filter.JobID != 0 {
		name = fmt.Sprint(a.filter.JobID)
	}
	before, after := a.counts(changed)
	err = tx.QueryRow(ctx, queries.deadRecord, pgx.StrictNamedArgs{
		"name": name, "kind": a.kind, "actor": a.options.Act.Actor, "reason": a.options.Act.Reason, "filter": string(encoded),
		"before": before, "after": after,
	}).Scan(&event.id)
	return event, err
}

// counts contains the rows before and after.
func (a *deadAct) counts(rows int64) (before, after string) {
	return fmt.Sprintf(`{%q: %d}`, outbox.Dead, rows), fmt.Sprintf(`{%q: %d}`, a.to, rows)
}
