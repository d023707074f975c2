package accounts

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// ErrPruned reports that retention has begun to delete the job's rows, so that its recipients are no longer
// known. The counters in the job's row remain.
var ErrPruned = db.NewError(db.KindConflict, "retention has deleted rows of the job")

// AuditTypeError reports a job of a type that cannot be audited.
type AuditTypeError struct {
	JobID int64
	Type  string
}

// Error names the types that can be audited.
func (e *AuditTypeError) Error() string {
	return fmt.Sprintf("job %d is of type %s; types that can be audited: %s, %s", e.JobID, e.Type, outbox.TypeInbox, outbox.TypePush)
}

// Kind returns db.KindConflict.
func (*AuditTypeError) Kind() db.Kind { return db.KindConflict }

// Entry is the result for one channel.
type Entry struct {
	ChannelID      int64         `json:"channel_id"`
	Reason         outbox.Reason `json:"reason"`
	Why            outbox.Reason `json:"why,omitempty"`               // why a message is dead or cancelled, or waits
	LeftSince      bool          `json:"left_since,omitempty"`        // has a row, and is not in the audience now
	ChannelDeleted bool          `json:"channel_deleted,omitempty"`   // has a row or was skipped, and the channel was deleted
	Error          string        `json:"error,omitempty" mask:"text"` // the error of a skipped channel, or the last error of a message
	// Revision is the number of corrections of the content before the message was composed that a provider
	// accepted. Nil means that the content was never corrected, or no provider accepted a message.
	Revision *int `json:"revision,omitempty"`
}

// is reports whether the entry counts under r.
func (e Entry) is(r outbox.Reason) bool {
	return e.Reason == r || e.Why == r || r == outbox.ReasonLeftSince && e.LeftSince || r == outbox.ReasonChannelDeleted && e.ChannelDeleted
}

// AuditOptions configures an audit. The zero value only counts.
type AuditOptions struct {
	// Each receives the entries in id order; deleted channels that were skipped come last. Its error ends the
	// audit. It may be nil.
	Each func(Entry) error
	// List restricts the entries for Each to these reasons; empty means all.
	List []outbox.Reason
	// Observe is called after each step. It may be nil.
	Observe func(AuditProgress)
	// PageKeys is the number of keys in one step and in memory; 0 means 5,000.
	PageKeys int
}

// AuditProgress is the progress of an audit.
type AuditProgress struct {
	Channels int64 // compared channels of the relation
	Rows     int64 // compared rows of the job
	Total    int64 // channels of the relation, as estimated by the planner
}

// Report counts the channels by reason, and compares the counts with the counters of the job.
type Report struct {
	Job           job.Job                 `json:"job"`
	Counts        map[outbox.Reason]int64 `json:"counts"`
	Why           delivery.Tally          `json:"why"`      // the whys of reasons that have them
	Channels      int64                   `json:"channels"` // all channels of the relation
	Rows          int64                   `json:"rows"`     // rows of the job
	Moving        bool                    `json:"moving"`   // the job changed during the audit, so that rows and counters were not compared
	Agree         bool                    `json:"agree"`
	Disagreements []string                `json:"disagreements"`
}

// Audit walks all channels and the job's rows in key order, and finds one reason for each channel. For each
// part of the key range it uses the audience with which the job walked that part (see job.Store.Revisions). It
// only reads, in short transactions of one snapshot each, and holds one page of channels and of rows in memory,
// whatever the size of the job. A job of a type other than inbox and push is an *AuditTypeError. After retention
// the error is ErrPruned, and the Report contains the job.
//
// The audit reads the present data. A channel in the audience without a row counts as joined since if it changed
// later than a minute before the start, or if the relation does not record changes, as for members of a segment.
// If it is unchanged it is missing, which is a fault (I1). A change in a transaction that had been open for more
// than that minute when the job started may look like a missing row.
func Audit(ctx context.Context, pool *pgxpool.Pool, store *channels.Store, jobID int64, o AuditOptions) (Report, error) {
	a, err := openAudit(ctx, pool, store, jobID, o)
	if err == nil {
		err = a.walk(ctx)
	}
	if err == nil {
		err = a.skipsWithoutChannel(ctx)
	}
	if err == nil {
		err = a.conclude(ctx)
	}
	if err != nil {
		return a.report, fmt.Errorf("audit job %d: %w", jobID, err)
	}
	return a.report, nil
}

// AuditChannel is Audit for one channel. It returns channels.ErrNoChannel if neither the channel nor a row or
// a skip of it exists.
func AuditChannel(ctx context.Context, pool *pgxpool.Pool, store *channels.Store, jobID, channelID int64) (Entry, error) {
	a, err := openAudit(ctx, pool, store, jobID, AuditOptions{PageKeys: 1})
	var e Entry
	if err == nil {
		e, err = a.one(ctx, channelID)
	}
	if err != nil {
		return Entry{}, fmt.Errorf("audit job %d, channel %d: %w", jobID, channelID, err)
	}
	return e, nil
}

// AuditExternalID is AuditChannel for the channel with an external id.
func AuditExternalID(ctx context.Context, pool *pgxpool.Pool, store *channels.Store, jobID int64, externalID string) (Entry, error) {
	var id int64
	err := operation.ReadTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) (err error) {
		id, err = store.Resolve(ctx, tx, externalID)
		return err
	})
	if err != nil {
		return Entry{}, fmt.Errorf("audit job %d: %w", jobID, err)
	}
	return AuditChannel(ctx, pool, store, jobID, id)
}

// audit is the state of one call.
type audit struct {
	pool    *pgxpool.Pool
	store   *channels.Store
	jobs    *job.Store
	options AuditOptions
	facts   facts
	ranges  []keyRange
	report  Report
	above   int64 // rows above the cursor
	total   int64 // the estimated number of channels, for Observe

	recorded int64 // skips of the job
	skipped  int64 // skips whose channels still exist and have no row
}

func openAudit(ctx context.Context, pool *pgxpool.Pool, store *channels.Store, jobID int64, o AuditOptions) (*audit, error) {
	if o.PageKeys <= 0 {
		o.PageKeys = 5000
	}
	a := &audit{pool: pool, store: store, jobs: job.NewStore(pool), options: o,
		report: Report{Counts: make(map[outbox.Reason]int64), Why: make(delivery.Tally), Disagreements: []string{}}}
	j, err := a.jobs.Get(ctx, jobID)
	if err != nil {
		return a, err
	}
	a.report.Job = j
	if j.Type != outbox.TypeInbox && j.Type != outbox.TypePush {
		return a, &AuditTypeError{JobID: jobID, Type: j.Type}
	}
	if a.facts, err = factsOf(j); err != nil {
		return a, err
	}
	revisions, err := a.jobs.Revisions(ctx, jobID)
	if err != nil {
		return a, err
	}
	if a.ranges, err = rangesOf(j, revisions); err != nil {
		return a, err
	}
	return a, a.left(ctx)
}

// left counts the job's skips. It returns ErrPruned once retention deletes the job's rows.
func (a *audit) left(ctx context.Context) error {
	return operation.ReadTx(ctx, a.pool, func(ctx context.Context, tx pgx.Tx) error {
		var pruned bool
		err := tx.QueryRow(ctx, queries.jobLeft, pgx.StrictNamedArgs{"id": a.report.Job.ID}).Scan(&pruned, &a.recorded)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return job.ErrNotFound
		case err == nil && pruned:
			return ErrPruned
		}
		return err
	})
}

// add counts one channel, and passes its entry to Each.
func (a *audit) add(e Entry) error {
	a.report.Counts[e.Reason]++
	a.report.Why.Add(e.Reason, e.Why, 1)
	if e.LeftSince {
		a.report.Counts[outbox.ReasonLeftSince]++
	}
	if e.ChannelDeleted {
		a.report.Counts[outbox.ReasonChannelDeleted]++
	}
	if a.options.Each == nil || len(a.options.List) > 0 && !slices.ContainsFunc(a.options.List, e.is) {
		return nil
	}
	return a.options.Each(e)
}

// conclude compares the counts with the counters in the job's row.
func (a *audit) conclude(ctx context.Context) error {
	now, err := a.jobs.Get(ctx, a.report.Job.ID)
	if err != nil {
		return err
	}
	if err := a.left(ctx); err != nil {
		return err
	}
	was := a.report.Job
	a.report.Moving = was.Status == job.Running || was.Status != now.Status || was.Fence != now.Fence ||
		was.Chunks != now.Chunks || was.RowsWritten != now.RowsWritten || was.Skipped != now.Skipped || was.Recalled != now.Recalled ||
		was.Erased != now.Erased
	say := func(wrong bool, format string, args ...any) {
		if wrong {
			a.report.Disagreements = append(a.report.Disagreements, fmt.Sprintf(format, args...))
		}
	}
	counts := a.report.Counts
	say(was.ChannelsMatched != was.RowsWritten+was.Declined+was.Skipped,
		"%d channels matched, but %d written, %d declined and %d skipped make %d",
		was.ChannelsMatched, was.RowsWritten, was.Declined, was.Skipped, was.RowsWritten+was.Declined+was.Skipped)
	say(was.ChannelsMatched > was.ChannelsRead, "%d channels matched of only %d that were read", was.ChannelsMatched, was.ChannelsRead)
	if !a.report.Moving {
		taken := counts[outbox.ReasonWithdrawn] + a.report.Why[outbox.ReasonCancelled][outbox.ReasonRecalled]
		say(a.report.Rows+was.Erased != was.RowsWritten, "the job wrote %d rows, and %d are there", was.RowsWritten-was.Erased, a.report.Rows)
		say(a.recorded != was.Skipped, "the job skipped %d channels, and %d are recorded", was.Skipped, a.recorded)
		say(a.recorded > counts[outbox.ReasonSkipped], "%d channels are recorded as skipped and have a row",
			a.recorded-counts[outbox.ReasonSkipped])
		say(a.above > 0, "%d rows are of channels above the cursor", a.above)
		say(counts[outbox.ReasonMissing] > was.Declined,
			"%d channels were in the audience all the time and have no row, and %d were declined", counts[outbox.ReasonMissing], was.Declined)
		say(taken+was.Erased < was.Recalled, "%d rows were recalled, and %d are marked so", was.Recalled, taken)
	}
	a.report.Agree = len(a.report.Disagreements) == 0
	return nil
}
