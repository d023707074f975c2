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
	"github.com/belfryhq/belfry/internal/errkind"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// ErrPruned reports that retention has begun to delete the job's rows: who got it
// cannot be told from data any more. The sums in the job's row are what is left.
var ErrPruned = errkind.New(errkind.Conflict, "retention has deleted rows of the job")

// AuditTypeError reports a job whose rows and recipients this package does not know.
type AuditTypeError struct {
	JobID int64
	Type  string
}

// Error names the types that can be audited.
func (e *AuditTypeError) Error() string {
	return fmt.Sprintf("job %d is of type %s; types that can be audited: %s, %s", e.JobID, e.Type, outbox.TypeInbox, outbox.TypePush)
}

// Kind returns errkind.Conflict.
func (*AuditTypeError) Kind() errkind.Kind { return errkind.Conflict }

// Entry is the answer for one channel.
type Entry struct {
	ChannelID      int64         `json:"channel_id"`
	Reason         outbox.Reason `json:"reason"`
	Why            outbox.Reason `json:"why,omitempty"`               // of a message that is dead or cancelled, or waits for something
	LeftSince      bool          `json:"left_since,omitempty"`        // has a row, and would not be in the audience now
	ChannelDeleted bool          `json:"channel_deleted,omitempty"`   // has a row or was skipped, and the channel is gone
	Error          string        `json:"error,omitempty" mask:"text"` // of a skipped channel, and the last of a message
	// Revision says, of a job whose content was corrected, how many corrections there had
	// been when a message was made that a provider took; nil: none took it.
	Revision *int `json:"revision,omitempty"`
}

// is reports whether the entry counts under r.
func (e Entry) is(r outbox.Reason) bool {
	return e.Reason == r || e.Why == r || r == outbox.ReasonLeftSince && e.LeftSince || r == outbox.ReasonChannelDeleted && e.ChannelDeleted
}

// AuditOptions are an audit's collaborators. The zero value counts only.
type AuditOptions struct {
	// Each, unless nil, receives the channels in id order, deleted ones that were
	// skipped last. Its error ends the audit.
	Each func(Entry) error
	// List narrows what Each receives; empty: everything.
	List []outbox.Reason
	// Observe, unless nil, is called after each step.
	Observe func(AuditProgress)
	// PageKeys is how many keys one step reads and memory holds; 0: 5,000.
	PageKeys int
}

// AuditProgress is how far an audit is.
type AuditProgress struct {
	Channels int64 // of the relation
	Rows     int64 // of the job
	Total    int64 // about so many channels the relation has: the planner's estimate
}

// Report is who got a job and who did not, counted by reason, and whether that
// agrees with the sums in the job's row.
type Report struct {
	Job           job.Job                 `json:"job"`
	Counts        map[outbox.Reason]int64 `json:"counts"`
	Why           delivery.Tally          `json:"why"`      // of Counts, those that have one
	Channels      int64                   `json:"channels"` // in the relation: everybody who got it or did not
	Rows          int64                   `json:"rows"`     // of the job
	Moving        bool                    `json:"moving"`   // the job went on meanwhile, so sums were not compared with rows
	Agree         bool                    `json:"agree"`
	Disagreements []string                `json:"disagreements"`
}

// Audit walks all channels beside the job's rows, both in key order, and says of
// each channel what became of it and why, under the audience that its part of the
// key range was walked with (see job.Store.Revisions). It only reads, in short
// transactions of one snapshot each, and holds one page of each side, whatever the
// size of the job. Jobs of other types than inbox and push are *AuditTypeError;
// after retention it is ErrPruned, with the job in the Report.
//
// What it tells is what the data says now. A channel without a row that is in the
// audience counts as joined since when it changed after a minute before the start,
// or when the relation does not tell when channels change, as a segment's members
// never do; unchanged, it is missing, which must not be (I1). A change that was made
// in a transaction open for longer than that minute when the job started may look
// like a missing row.
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

// AuditChannel answers for one channel; channels.ErrNoChannel when there is neither
// a channel nor a row or a skip of it. Otherwise as Audit.
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

// audit is one call.
type audit struct {
	pool    *pgxpool.Pool
	store   *channels.Store
	jobs    *job.Store
	options AuditOptions
	facts   facts
	ranges  []keyRange
	report  Report
	above   int64 // rows above the cursor
	total   int64 // the relation's channels, estimated for those who observe

	recorded int64 // skips
	skipped  int64 // of them, of channels that still exist and have no row
}

func openAudit(ctx context.Context, pool *pgxpool.Pool, store *channels.Store, jobID int64, o AuditOptions) (*audit, error) {
	if o.PageKeys <= 0 {
		o.PageKeys = 5000
	}
	a := &audit{pool: pool, store: store, jobs: job.NewStore(pool), options: o, report: Report{Counts: make(map[outbox.Reason]int64), Why: make(delivery.Tally), Disagreements: []string{}}}
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

// left counts the job's skips. It is ErrPruned once retention deletes the job's rows.
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

// add counts one channel and lists it if it is asked for.
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

// conclude compares the data with the sums in the job's row.
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
		was.Chunks != now.Chunks || was.RowsWritten != now.RowsWritten || was.Skipped != now.Skipped || was.Recalled != now.Recalled || was.Erased != now.Erased
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
		say(a.recorded > counts[outbox.ReasonSkipped], "%d channels are recorded as skipped and have a row", a.recorded-counts[outbox.ReasonSkipped])
		say(a.above > 0, "%d rows are of channels above the cursor", a.above)
		say(counts[outbox.ReasonMissing] > was.Declined, "%d channels were in the audience all the time and have no row, and %d were declined", counts[outbox.ReasonMissing], was.Declined)
		say(taken+was.Erased < was.Recalled, "%d rows were recalled, and %d are marked so", was.Recalled, taken)
	}
	a.report.Agree = len(a.report.Disagreements) == 0
	return nil
}
