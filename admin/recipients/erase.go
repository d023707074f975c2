package recipients

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// ErrStillSent reports that a relay has a message of the channel, or that a run or another
// transaction may be about to write rows of it. Completed steps are permanent, and another call continues.
var ErrStillSent = db.NewError(db.KindConflict, "not everything could be erased yet")

const (
	// forgetKeys is the number of jobs, schedules, events, notifications or activities that one step reads.
	forgetKeys = 1000
	// forgetTries is the number of attempts that one step deletes, at most.
	forgetTries = 10_000
	// forgetTriesCounted is the number of attempts that one step of a dry run counts, at most.
	forgetTriesCounted = 1_000_000
	// forgetLists is the time after which a step ends with the list that it reads: one may have megabytes.
	forgetLists = 500 * time.Millisecond
	// forgetRetry is the pause before rows in use are read again.
	forgetRetry = 100 * time.Millisecond
)

// Forgotten counts by table the rows of one channel that were erased, or would be.
type Forgotten struct {
	channels.Forgotten

	Messages      int64 `json:"messages"`
	Attempts      int64 `json:"attempts"`
	Notifications int64 `json:"notifications"`
	Activities    int64 `json:"activities"`
	Skips         int64 `json:"skips"` // whose error was blanked
	Lists         int64 `json:"lists"` // jobs and schedules whose list named it by its external id
}

// Rows is the sum of all.
func (f Forgotten) Rows() int64 {
	return f.Channels + f.OptOuts + f.InvalidAddresses + f.SegmentMembers + f.Messages + f.Attempts + f.Notifications +
		f.Activities + f.Skips + f.Lists
}

// ForgetOptions are who erases and who watches.
type ForgetOptions struct {
	// DryRun counts and writes nothing.
	DryRun bool
	Act    job.Act
	// Patience is for how long relays and runs that work on the channel are waited for.
	Patience time.Duration
	// Observe, unless nil, is called after each step with the counts so far.
	Observe func(Forgotten)
}

// Forget erases what belfry has of one channel, in transactions of bounded size:
//
//	blank the channel ─► wait for open transactions ─► messages, activities, notifications, lists,
//	errors ─► wait for leased messages and running chunks, and erase them ─► preferences,
//	memberships, the channel itself
//
// The channel is blanked first, so that no run or relay writes or sends to it any more, and deleted
// last, so that an interrupted erasure can be repeated by the external id. Forget waits for the
// transactions that write belfry's tables when the channel is blanked, since they may have read it or its
// values before; for messages that a live relay has in flight; and for chunks that may write one. After
// the patience it erases the visible rows and returns ErrStillSent.
//
// Activities are erased before notifications: a transaction that commits between both leaves no
// notification without its activity.
//
// The counts of jobs remain: an erased message counts as cancelled if it was not final, and as sent
// if its receipt was pending. jobs.erased is the count of erased rows, so that an audit agrees. The
// ids that remain in lists, skips and cursors are belfry's own numbers and identify no person. One
// event has the counts, without the channel.
//
// externalID, unless empty, is taken out of the lists of jobs, whatever their status, of
// their revisions and events, and of schedules. The connection's role needs EXECUTE on
// belfry.forget_listed.
func Forget(ctx context.Context, pool *pgxpool.Pool, store *channels.Store, channelID int64, externalID string,
	o ForgetOptions) (Forgotten, error) {
	f := forget{pool: pool, store: store, id: channelID, external: externalID, options: o}
	err := f.all(ctx)
	if err != nil {
		err = fmt.Errorf("forget a channel: %w", err)
	}
	return f.done, err
}

// forget is one call of Forget.
type forget struct {
	pool     *pgxpool.Pool
	store    *channels.Store
	id       int64
	external string
	options  ForgetOptions
	done     Forgotten
	event    int64
	kept     []int64 // jobs whose message a relay has; 0: an activity
	deadline time.Time
}

func (f *forget) all(ctx context.Context) error {
	f.deadline = time.Now().Add(f.options.Patience)
	if err := f.begin(ctx); err != nil {
		return err
	}
	running, err := f.running(ctx)
	if err != nil {
		return err
	}
	open, err := f.writers(ctx)
	if err != nil {
		return err
	}
	for _, part := range []func(context.Context) error{
		func(ctx context.Context) error { return f.messages(ctx, nil) },
		f.activities, f.notifications, f.lists, f.events,
	} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	if !f.options.DryRun {
		if err := f.late(ctx, running); err != nil {
			return err
		}
	}
	if open != nil {
		return fmt.Errorf("%w: a transaction (%s) that writes belfry's tables began before and has not ended", ErrStillSent, open)
	}
	return f.step(ctx, func(ctx context.Context, tx pgx.Tx) (d Forgotten, err error) {
		d.Forgotten, err = f.store.Forget(ctx, tx, f.id, f.options.DryRun)
		return d, err
	})
}

// begin records that the act has begun, and excludes the channel from future messages.
func (f *forget) begin(ctx context.Context) error {
	if f.options.DryRun {
		return nil
	}
	return operation.StepTx(ctx, f.pool, func(ctx context.Context, tx pgx.Tx) error {
		err := tx.QueryRow(ctx, queries.forgetRecord, pgx.StrictNamedArgs{
			"actor": f.options.Act.Actor, "reason": f.options.Act.Reason, "deleted": "{}",
		}).Scan(&f.event)
		if err != nil {
			return err
		}
		return f.store.Blank(ctx, tx, f.id)
	})
}

// step is one transaction. It adds the erased rows to the event.
func (f *forget) step(ctx context.Context, do func(context.Context, pgx.Tx) (Forgotten, error)) error {
	var sum Forgotten
	err := operation.StepTx(ctx, f.pool, func(ctx context.Context, tx pgx.Tx) error {
		d, err := do(ctx, tx)
		if err != nil {
			return err
		}
		sum = f.done.plus(d)
		if f.options.DryRun || d == (Forgotten{}) {
			return nil
		}
		text, err := json.Marshal(sum)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, queries.forgetRecordMore, pgx.StrictNamedArgs{"id": f.event, "deleted": string(text)})
		return err
	})
	if err == nil {
		f.done = sum
		if f.options.Observe != nil {
			f.options.Observe(sum)
		}
	}
	return err
}

func (f Forgotten) plus(g Forgotten) Forgotten {
	return Forgotten{
		Forgotten: channels.Forgotten{
			Channels: f.Channels + g.Channels, OptOuts: f.OptOuts + g.OptOuts,
			InvalidAddresses: f.InvalidAddresses + g.InvalidAddresses, SegmentMembers: f.SegmentMembers + g.SegmentMembers,
		},
		Messages: f.Messages + g.Messages, Attempts: f.Attempts + g.Attempts, Notifications: f.Notifications + g.Notifications,
		Activities: f.Activities + g.Activities, Skips: f.Skips + g.Skips, Lists: f.Lists + g.Lists,
	}
}

// forgotMessage is the counted state of one message.
type forgotMessage struct {
	JobID    int64
	Status   string // empty: no message
	Awaited  bool   // its receipt
	Kept     bool
	Attempts int64
	Skips    int64
}

// messages goes through all jobs, or only some.
func (f *forget) messages(ctx context.Context, only []int64) error {
	for after, more := int64(math.MinInt64), true; more; {
		var kept []int64
		var next int64
		err := f.step(ctx, func(ctx context.Context, tx pgx.Tx) (d Forgotten, err error) {
			held := []int64{}
			if !f.options.DryRun {
				held, err = db.Collect(ctx, tx, queries.forgetHold, pgx.StrictNamedArgs{
					"after": after, "only": only, "channel_id": f.id, "keys": forgetKeys,
				}, pgx.RowTo[int64])
				if err != nil {
					return d, err
				}
			}
			list, err := db.Collect(ctx, tx, queries.forgetMessages, pgx.StrictNamedArgs{
				"after": after, "only": only, "channel_id": f.id, "keys": forgetKeys, "dry_run": f.options.DryRun, "held": held,
				"tries": f.tries(),
			}, pgx.RowToStructByPos[forgotMessage])
			if err != nil {
				return d, err
			}
			d, kept, err = f.account(ctx, tx, list)
			more, next = len(list) > 0, after
			switch {
			case d.Attempts >= forgetTries && !f.options.DryRun: // the same jobs again
				kept = nil
			case more:
				next = list[len(list)-1].JobID
			}
			return d, err
		})
		if err != nil {
			return err
		}
		f.kept, after = append(f.kept, kept...), next
	}
	return nil
}

// tries is the number of attempts that one step reads.
func (f *forget) tries() int {
	if f.options.DryRun {
		return forgetTriesCounted
	}
	return forgetTries
}

// account adds the messages that are gone to the accounts of their jobs.
func (f *forget) account(ctx context.Context, tx pgx.Tx, list []forgotMessage) (d Forgotten, kept []int64, err error) {
	var ended, erased []int64
	var sent []bool
	for _, m := range list {
		d.Attempts += m.Attempts
		d.Skips += m.Skips
		switch {
		case m.Status == "":
			continue
		case m.Kept:
			kept = append(kept, m.JobID)
			continue
		}
		d.Messages++
		erased = append(erased, m.JobID)
		switch outbox.Status(m.Status) {
		case outbox.Pending, outbox.Queued, outbox.Processing:
			ended, sent = append(ended, m.JobID), append(sent, m.Awaited)
		case outbox.Sent, outbox.Dead, outbox.Cancelled:
		}
	}
	if f.options.DryRun || len(erased) == 0 {
		return d, kept, nil
	}
	if len(ended) > 0 {
		if _, err := tx.Exec(ctx, queries.forgetDelivered, pgx.StrictNamedArgs{"job_ids": ended, "sent": sent}); err != nil {
			return d, kept, err
		}
	}
	_, err = tx.Exec(ctx, queries.forgetErased, pgx.StrictNamedArgs{"job_ids": erased})
	return d, kept, err
}

func (f *forget) notifications(ctx context.Context) error {
	for after, more := int64(0), true; more; {
		err := f.step(ctx, func(ctx context.Context, tx pgx.Tx) (d Forgotten, err error) {
			list, err := db.All[struct {
				Arrival int64 `db:"arrival"`
				JobID   int64 `db:"job_id"`
			}](ctx, tx, queries.forgetNotifications, pgx.StrictNamedArgs{
				"channel_id": f.id, "after": after, "keys": forgetKeys, "dry_run": f.options.DryRun,
			})
			if more = err == nil && len(list) > 0; !more {
				return d, err
			}
			var ids []int64
			for _, n := range list {
				after = n.Arrival
				if n.JobID != 0 {
					ids = append(ids, n.JobID)
				}
			}
			d.Notifications = int64(len(list))
			if !f.options.DryRun {
				_, err = tx.Exec(ctx, queries.forgetErased, pgx.StrictNamedArgs{"job_ids": ids})
			}
			return d, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *forget) activities(ctx context.Context) error {
	for last := new(int64); last != nil; {
		var kept int64
		err := f.step(ctx, func(ctx context.Context, tx pgx.Tx) (d Forgotten, err error) {
			after := *last
			err = tx.QueryRow(ctx, queries.forgetActivities, pgx.StrictNamedArgs{
				"channel_id": f.id, "after": after, "keys": forgetKeys, "dry_run": f.options.DryRun, "tries": f.tries(),
			}).Scan(&last, &d.Activities, &d.Messages, &d.Attempts, &kept)
			return d, err
		})
		if err != nil {
			return err
		}
		if kept > 0 {
			f.kept = append(f.kept, 0)
		}
	}
	return nil
}

// lists removes the external id from the lists that contain it.
func (f *forget) lists(ctx context.Context) error {
	if f.external == "" {
		return nil
	}
	for after := []string{}; after != nil; {
		var next []string
		err := f.step(ctx, func(ctx context.Context, tx pgx.Tx) (d Forgotten, err error) {
			if !f.options.DryRun {
				if _, err := tx.Exec(ctx, queries.forgetActor,
					pgx.StrictNamedArgs{"actor": f.options.Act.Actor, "reason": f.options.Act.Reason}); err != nil {
					return d, err
				}
			}
			err = tx.QueryRow(ctx, queries.forgetListed, pgx.StrictNamedArgs{
				"external_id": f.external, "after": after, "keys": forgetKeys, "seconds": forgetLists.Seconds(), "dry_run": f.options.DryRun,
			}).Scan(&next, &d.Lists)
			return d, err
		})
		if err != nil {
			return err
		}
		after = next
	}
	return nil
}

// events takes the channel out of its events.
func (f *forget) events(ctx context.Context) error {
	if f.options.DryRun {
		return nil
	}
	for full := true; full; {
		err := f.step(ctx, func(ctx context.Context, tx pgx.Tx) (d Forgotten, err error) {
			tag, err := tx.Exec(ctx, queries.forgetEvents, pgx.StrictNamedArgs{"channel_id": f.id, "keys": forgetKeys})
			full = tag.RowsAffected() == forgetKeys
			return d, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// walking is a run that may be in the middle of a chunk.
type walking struct{ JobID, Fence, Chunks int64 }

func (f *forget) running(ctx context.Context) (list []walking, err error) {
	err = operation.StepTx(ctx, f.pool, func(ctx context.Context, tx pgx.Tx) error {
		list, err = db.Collect(ctx, tx, queries.forgetRunning, pgx.StrictNamedArgs{"channel_id": f.id}, pgx.RowToStructByPos[walking])
		return err
	})
	return list, err
}

// writer is an open transaction.
type writer struct {
	Transaction string
	PID         int64    // 0: a prepared transaction
	IDs         []string // none before it writes
	Writes      bool     // belfry's tables
}

func (w *writer) String() string {
	if w.PID == 0 {
		return "prepared"
	}
	return fmt.Sprintf("pid %d", w.PID)
}

// is reports whether both are one transaction, which may have been prepared in between.
func (w *writer) is(other writer) bool {
	return w.Transaction == other.Transaction && w.PID == other.PID ||
		slices.ContainsFunc(w.IDs, func(id string) bool { return slices.Contains(other.IDs, id) })
}

// stillOpen returns those of a list of transactions that are open now. One that had no id and has ended may have been prepared
// since: prepared transactions that write belfry's tables take its place.
func stillOpen(list, now []writer) (open []writer) {
	unknown := false
	for _, w := range list {
		at := slices.IndexFunc(now, w.is)
		switch {
		case at >= 0:
			open = append(open, now[at])
		case len(w.IDs) == 0:
			unknown = true
		}
	}
	for _, w := range now {
		if unknown && w.PID == 0 && w.Writes && !slices.ContainsFunc(open, w.is) {
			open = append(open, w)
		}
	}
	return open
}

// writers waits until the transactions have ended that write belfry's tables now, and returns one that has not ended by
// the deadline, or nil.
func (f *forget) writers(ctx context.Context) (*writer, error) {
	if f.options.DryRun {
		return nil, nil //nolint:nilnil // no transaction
	}
	var open []writer
	for first := true; ; first = false {
		var now []writer
		err := operation.StepTx(ctx, f.pool, func(ctx context.Context, tx pgx.Tx) (err error) {
			now, err = db.Collect(ctx, tx, queries.forgetWriters, pgx.StrictNamedArgs{}, pgx.RowToStructByPos[writer])
			return err
		})
		if err != nil {
			return nil, err
		}
		if first {
			open = slices.DeleteFunc(now, func(w writer) bool { return !w.Writes })
		} else {
			open = stillOpen(open, now)
		}
		switch {
		case len(open) == 0:
			return nil, nil //nolint:nilnil // no transaction
		case !time.Now().Before(f.deadline):
			return &open[0], nil
		}
		if err := lifecycle.Pause(ctx, forgetRetry); err != nil {
			return nil, err
		}
	}
}

// late waits until no relay has a message of the channel, and every run that might have read
// the channel before it was blanked has ended its chunk; what came of both is erased.
func (f *forget) late(ctx context.Context, running []walking) error {
	for {
		now, err := f.running(ctx)
		if err != nil {
			return err
		}
		moved := slices.DeleteFunc(slices.Clone(running), func(w walking) bool { return slices.Contains(now, w) })
		running = slices.DeleteFunc(running, func(w walking) bool { return !slices.Contains(now, w) })
		only := f.kept
		for _, w := range moved {
			only = append(only, w.JobID)
		}
		f.kept = nil
		if len(only) > 0 {
			if err := f.messages(ctx, only); err != nil {
				return err
			}
			if err := f.activities(ctx); err != nil {
				return err
			}
			if err := f.notifications(ctx); err != nil {
				return err
			}
		}
		switch {
		case len(running)+len(f.kept) == 0:
			return nil
		case !time.Now().Before(f.deadline) && len(f.kept) > 0:
			return fmt.Errorf("%w: a relay has a message to the channel in flight", ErrStillSent)
		case !time.Now().Before(f.deadline):
			return fmt.Errorf("%w: the run of job %d has not ended its chunk", ErrStillSent, running[0].JobID)
		}
		if err := lifecycle.Pause(ctx, forgetRetry); err != nil {
			return err
		}
	}
}
