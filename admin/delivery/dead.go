package delivery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

const (
	// deadKeys is the number of dead letters that one transaction reads.
	deadKeys = 5000
	// deadExamined is the maximum number of dead letters that a page examines.
	deadExamined = 2000
	// deadPage is the default number of letters of DeadLetters.
	deadPage = 100
	// maxAttemptsShown is the maximum number of entries that ShowMessage returns: the newest.
	maxAttemptsShown = 1000
)

// ErrNoMessage reports that a job has no message to a channel.
var ErrNoMessage = db.NewError(db.KindNotFound, "no such message")

// DeadFilter selects dead letters. Zero fields match everything.
type DeadFilter struct {
	JobID     int64         `json:"job_id,omitempty"` // negative: an activity
	Medium    string        `json:"medium,omitempty"` // the last tried or bypassed medium
	Reason    outbox.Reason `json:"reason,omitempty"`
	Since     *time.Time    `json:"since,omitempty"` // dead since then or later
	Until     *time.Time    `json:"until,omitempty"` // dead before then
	ChannelID *int64        `json:"channel_id,omitempty"`
	Category  string        `json:"category,omitempty"`
	Sender    string        `json:"sender,omitempty"` // of the last attempt
	Error     string        `json:"error,omitempty"`  // DeadError.ID
}

// DeadFilterError reports a filter by an unknown value. Field is reason, since, medium or category.
type DeadFilterError struct{ Field, Problem string }

// Error names the field and the allowed values.
func (e *DeadFilterError) Error() string { return e.Field + ": " + e.Problem }

// Kind returns db.KindInvalid.
func (*DeadFilterError) Kind() db.Kind { return db.KindInvalid }

// check validates a filter. An unknown job or activity is job.ErrNotFound.
func (f DeadFilter) check(ctx context.Context, pool *pgxpool.Pool) error {
	if known := outbox.Whys(outbox.ReasonDead); f.Reason != "" && !slices.Contains(known, f.Reason) {
		names := make([]string, len(known))
		for i, r := range known {
			names[i] = string(r)
		}
		return &DeadFilterError{"reason",
			fmt.Sprintf("%q is not a reason of dead letters; allowed values: %s", string(f.Reason), strings.Join(names, ", "))}
	}
	if f.Since != nil && f.Until != nil && !f.Since.Before(*f.Until) {
		return &DeadFilterError{"since",
			fmt.Sprintf("%s is not before until; allowed values: times before %s", f.Since.Format(time.RFC3339), f.Until.Format(time.RFC3339))}
	}
	var jobID *int64
	if f.JobID != 0 {
		jobID = &f.JobID
	}
	return operation.ReadTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
		var known, medium, category bool
		var media, categories string
		err := tx.QueryRow(ctx, queries.deadSubjectExists,
			pgx.StrictNamedArgs{"job_id": jobID, "medium": optional(f.Medium), "category": optional(f.Category)}).
			Scan(&known, &medium, &media, &category, &categories)
		switch {
		case err != nil:
			return err
		case !known:
			return fmt.Errorf("%s: %w", subject(f.JobID), job.ErrNotFound)
		case !medium:
			return &DeadFilterError{"medium", fmt.Sprintf("%q is not a medium; allowed values: %s", f.Medium, media)}
		case !category:
			return &DeadFilterError{"category", fmt.Sprintf("%q is not a category; allowed values: %s", f.Category, categories)}
		}
		return nil
	})
}

// subject names the job or activity of a message.
func subject(jobID int64) string {
	if jobID < 0 {
		return fmt.Sprintf("activity %d", jobID)
	}
	return fmt.Sprintf("job %d", jobID)
}

func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// args returns the filter's arguments without the range of keys.
func (f DeadFilter) args(more pgx.StrictNamedArgs) pgx.StrictNamedArgs {
	more["medium"], more["reason"] = optional(f.Medium), optional(string(f.Reason))
	more["since"], more["until"], more["channel_id"] = f.Since, f.Until, f.ChannelID
	more["category"], more["sender"] = optional(f.Category), optional(f.Sender)
	return more
}

// span returns the range of keys of the filter's letters: above low, up to and including high.
func (f DeadFilter) span() (low, high outbox.Key) {
	low, high = outbox.Key{JobID: math.MinInt64, ChannelID: math.MinInt64}, outbox.Key{JobID: math.MaxInt64, ChannelID: math.MaxInt64}
	if f.JobID == 0 {
		return low, high
	}
	low, high = outbox.Key{JobID: f.JobID, ChannelID: math.MinInt64}, outbox.Key{JobID: f.JobID, ChannelID: math.MaxInt64}
	if f.ChannelID != nil && *f.ChannelID > math.MinInt64 {
		low.ChannelID, high.ChannelID = *f.ChannelID-1, *f.ChannelID
	}
	return low, high
}

// DeadLetter is a message that gave up.
type DeadLetter struct {
	JobID     int64         `json:"job_id"` // negative: an activity
	ChannelID int64         `json:"channel_id"`
	Category  string        `json:"category"`
	Step      int           `json:"step"` // index into the route
	Medium    string        `json:"medium"`
	Reason    outbox.Reason `json:"reason"`
	Attempts  int           `json:"attempts"` // of the step
	Crashes   int           `json:"crashes"`
	Error     string        `json:"error" mask:"text"`
	DeadAt    time.Time     `json:"dead_at"`
	// Held reports that its job is ABORTED: after a redrive it waits until the job is resumed.
	Held bool `json:"held"`
	// Kept is the reason why a redrive skips it: "retention" if its job is ABORTED and retention is
	// deleting its rows, which a discard also skips; "recalled" if its job was recalled after it died;
	// otherwise "".
	Kept string `json:"kept"`
}

// DeadLetters returns the dead letters that f selects, with the newest jobs and the highest channels
// first, below before (nil means from the highest), at most limit (0 means 100). It examines a bounded
// number of letters: if fewer than limit of them match, lookedTo is the lowest examined key, and the
// next call continues with it as before. Otherwise lookedTo is nil. Errors of the filter are
// *DeadFilterError and job.ErrNotFound.
func DeadLetters(ctx context.Context, pool *pgxpool.Pool, f DeadFilter, before *outbox.Key, limit int) (list []DeadLetter,
	lookedTo *outbox.Key, err error) {
	list, lookedTo, err = deadLetters(ctx, pool, f, before, cmp.Or(limit, deadPage), deadExamined)
	if err != nil {
		return nil, nil, fmt.Errorf("dead letters: %w", err)
	}
	return list, lookedTo, nil
}

// deadLetters examines at most the given number of keys.
func deadLetters(ctx context.Context, pool *pgxpool.Pool, f DeadFilter, before *outbox.Key, limit, keys int) (list []DeadLetter,
	lookedTo *outbox.Key, err error) {
	if err := f.check(ctx, pool); err != nil {
		return nil, nil, err
	}
	low, high := f.span()
	if high.ChannelID < math.MaxInt64 {
		high.ChannelID++
	}
	if before != nil && before.Compare(high) < 0 {
		high = *before
	}
	// If all letters match, it reads only limit letters; otherwise the steps grow. It reads one more
	// letter to detect a next page.
	for look, left := min(limit, keys), keys; left >= 0; look, left = max(1, min(4*look, left-look)), left-look {
		more := false
		err := operation.ReadTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
			matches := limit - len(list)
			if f.Error != "" { // which the statement does not compare
				matches = look
			}
			found, err := db.Collect(ctx, tx, queries.deadList, f.args(pgx.StrictNamedArgs{
				"before_job_id": high.JobID, "before_channel_id": high.ChannelID, "low_job_id": low.JobID, "low_channel_id": low.ChannelID,
				"keys": look, "limit": matches, "by_error": f.Error != "",
			}), func(row pgx.CollectableRow) (d *DeadLetter, err error) {
				more = true
				d, err = f.scan(row, &high)
				return d, err
			})
			for _, d := range found {
				if d != nil {
					list = append(list, *d)
				}
			}
			return err
		})
		if err != nil {
			return nil, nil, err
		}
		if !more || len(list) >= limit {
			return list[:min(limit, len(list))], nil, nil
		}
	}
	return list, &high, nil
}

// scan reads a row of DeadList. It returns nil for a row without a letter, or with a letter of another error.
func (f DeadFilter) scan(row pgx.CollectableRow, end *outbox.Key) (*DeadLetter, error) {
	var r struct {
		jobID, channelID                              *int64
		category, medium, reason, error, sender, code *string
		step, attempts, crashes                       *int16
		deadAt                                        *time.Time
		held                                          *bool
		kept                                          string
	}
	err := row.Scan(&end.JobID, &end.ChannelID, &r.jobID, &r.channelID, &r.category, &r.step, &r.medium, &r.reason,
		&r.attempts, &r.crashes, &r.error, &r.deadAt, &r.held, &r.kept, &r.sender, &r.code)
	if err != nil || r.jobID == nil || !f.ofError(r.medium, r.reason, r.sender, r.code, r.error) {
		return nil, err
	}
	return &DeadLetter{
		JobID: *r.jobID, ChannelID: *r.channelID, Category: textOf(r.category), Step: int(*r.step), Medium: textOf(r.medium),
		Reason:   outbox.Reason(textOf(r.reason)),
		Attempts: int(*r.attempts), Crashes: int(*r.crashes), Error: textOf(r.error), DeadAt: *r.deadAt, Held: *r.held, Kept: r.kept,
	}, nil
}

func textOf(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// DeadCount counts the dead letters of one job, medium and reason.
type DeadCount struct {
	JobID   int64         `json:"job_id"` // 0 means all activities together, unless the filter names one
	Medium  string        `json:"medium"`
	Reason  outbox.Reason `json:"reason"`
	Letters int64         `json:"letters"`
	// The number of letters that retention deletes, of letters whose job was recalled after they died,
	// and of other letters whose job is ABORTED. See DeadLetter.
	Held      int64 `json:"held"`
	Retention int64 `json:"retention"`
	Recalled  int64 `json:"recalled"`
}

// DeadCounts counts the dead letters that f selects, by job, medium and reason, sorted by these. It
// reads in short transactions. It returns the errors of DeadLetters.
func DeadCounts(ctx context.Context, pool *pgxpool.Pool, f DeadFilter) ([]DeadCount, error) {
	groups := make(map[DeadCount]*DeadCount) // by its first three fields
	err := f.check(ctx, pool)
	if err == nil {
		w := deadWalk{pool: pool, filter: f, keys: deadKeys}
		err = w.each(ctx, func(_ context.Context, _ pgx.Tx, found []deadFound) error {
			for _, d := range found {
				d.countIn(groups, f.JobID)
			}
			return nil
		}, nil)
	}
	if err != nil {
		return nil, fmt.Errorf("count dead letters: %w", err)
	}
	list := make([]DeadCount, 0, len(groups))
	for _, g := range groups {
		list = append(list, *g)
	}
	slices.SortFunc(list, func(a, b DeadCount) int {
		return cmp.Or(cmp.Compare(b.JobID, a.JobID), cmp.Compare(a.Medium, b.Medium), cmp.Compare(a.Reason, b.Reason))
	})
	return list, nil
}

// deadFound is one letter of a step of the walk.
type deadFound struct {
	outbox.Key

	medium     string
	reason     outbox.Reason
	held       bool
	kept       string
	recalledAt *time.Time // of its job
}

func (d deadFound) countIn(groups map[DeadCount]*DeadCount, jobID int64) {
	id := DeadCount{JobID: max(d.JobID, 0), Medium: d.medium, Reason: d.reason}
	if jobID != 0 {
		id.JobID = jobID
	}
	g, counted := groups[id]
	if !counted {
		g = new(id)
		groups[id] = g
	}
	g.Letters++
	switch {
	case d.kept == keptByRetention:
		g.Retention++
	case d.kept == keptRecalled:
		g.Recalled++
	case d.held:
		g.Held++
	}
}

// The values of belfry.dead_letters.kept.
const (
	keptByRetention = "retention"
	keptRecalled    = "recalled"
)

// MessageRecord is one message with its record.
type MessageRecord struct {
	JobID         int64         `json:"job_id" db:"job_id"` // negative: an activity
	ChannelID     int64         `json:"channel_id" db:"channel_id"`
	Status        outbox.Status `json:"status" db:"status"`
	Step          int           `json:"step" db:"step"` // index into the route
	Route         []string      `json:"route" db:"route" nullable:"true"`
	Category      string        `json:"category" db:"category"`
	Title         string        `json:"title" db:"title" mask:"text"` // as enqueued or corrected; may be a template
	Body          string        `json:"body" db:"body" mask:"text"`   // like the title
	Attempts      int           `json:"attempts" db:"attempts"`
	Crashes       int           `json:"crashes" db:"crashes"`
	Reason        outbox.Reason `json:"reason" db:"reason"`
	Error         string        `json:"error" db:"error" mask:"text"`
	Receipt       string        `json:"receipt" db:"receipt" mask:"text"`
	NextAttemptAt time.Time     `json:"next_attempt_at" db:"next_attempt_at"`
	SentAt        *time.Time    `json:"sent_at" db:"sent_at"`
	RecalledAt    *time.Time    `json:"recalled_at" db:"recalled_at"`
	DeadAt        *time.Time    `json:"dead_at" db:"dead_at"` // null unless it is DEAD
	Held          bool          `json:"held" db:"held"`       // as of DeadLetter, also while it waits
	Kept          string        `json:"kept" db:"kept"`       // as of DeadLetter
	// Corrections counts the corrections of its job's content. Revision is their number before the text that was
	// sent, which Title and Body are; null if no provider has accepted it, or without corrections.
	Corrections int             `json:"corrections" db:"corrections"`
	Revision    *int            `json:"revision" db:"revision"`
	Record      []AttemptRecord `json:"record" db:"-"`
}

// Becoming returns the fate of the message, like an audit, and the reason.
func (m MessageRecord) Becoming() (r, why outbox.Reason) {
	return ReasonOf(m.Status, m.Reason, m.Receipt != "", m.Held)
}

// AttemptRecord is the record of an attempt without a plain success, or of a bypassed step.
type AttemptRecord struct {
	Step    int            `json:"step" db:"step"`
	Attempt int            `json:"attempt" db:"attempt"` // of the step, from 1; 0 without a call
	Medium  string         `json:"medium" db:"medium"`
	Sender  string         `json:"sender" db:"sender"`
	Outcome outbox.Outcome `json:"outcome" db:"outcome"`
	Reason  outbox.Reason  `json:"reason" db:"reason"`
	Code    string         `json:"code" db:"code"`
	Error   string         `json:"error" db:"error" mask:"text"`
	At      time.Time      `json:"at" db:"at"`
}

// ShowMessage returns a message in any status, with the newest thousand entries of its record, oldest
// first. It returns ErrNoMessage without a message.
func ShowMessage(ctx context.Context, pool *pgxpool.Pool, key outbox.Key) (m MessageRecord, err error) {
	err = operation.SnapshotTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
		m, err = db.One[MessageRecord](ctx, tx, queries.messageShow, pgx.StrictNamedArgs{"job_id": key.JobID, "channel_id": key.ChannelID})
		if errors.Is(err, pgx.ErrNoRows) {
			return ErrNoMessage
		}
		if err != nil {
			return err
		}
		m.Record, err = db.All[AttemptRecord](ctx, tx, queries.attemptList,
			pgx.StrictNamedArgs{"job_id": key.JobID, "channel_id": key.ChannelID, "limit": maxAttemptsShown})
		return err
	})
	if err != nil {
		return m, fmt.Errorf("message of %s to channel %d: %w", subject(key.JobID), key.ChannelID, err)
	}
	return m, nil
}
