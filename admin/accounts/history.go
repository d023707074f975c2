package accounts

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// TypeActivity is the type of a history line about an activity instead of a job.
const TypeActivity = "activity"

// HistoryLine is the result of one job or activity for one channel: the Entry of an audit, with media and
// times. Instants are in UTC.
type HistoryLine struct {
	JobID     int64      `json:"job_id"` // negative for an activity
	Type      string     `json:"type"`   // TypeActivity for an activity
	Status    job.Status `json:"status"` // empty for an activity
	Category  string     `json:"category"`
	JobTitle  string     `json:"job_title"`         // empty for an activity
	Title     string     `json:"title" mask:"text"` // of an activity; empty for a job
	CreatedAt time.Time  `json:"created_at"`        // when it was enqueued or sent
	StartsAt  *time.Time `json:"starts_at"`         // when a PENDING job starts; nil after its start
	Entry                // as in an audit; also ReasonPruned and ReasonOwnType
	Corrected int        `json:"corrected"` // number of corrections of the job's content; 0 for an activity
	Medium    string     `json:"medium"`    // of the route, where the message is or ended; empty without a message
	Sender    string     `json:"sender"`    // that accepted the message; may be empty
	Attempts  int        `json:"attempts"`  // calls by that medium
	DueAt     *time.Time `json:"due_at"`    // time of the next attempt; nil if the message is final or in flight
	SentAt    *time.Time `json:"sent_at"`
	DeadAt    *time.Time `json:"dead_at"`
	ReadAt    *time.Time `json:"read_at"`      // of the notification
	Withdrawn *time.Time `json:"withdrawn_at"` // of the notification
}

// HistoryKey is the end of a page: its last job and last activity; 0 if this and earlier pages had none.
type HistoryKey struct{ JobID, ActivityID int64 }

// HistoryOptions selects a part of a history.
type HistoryOptions struct {
	Before HistoryKey // the zero value starts at the newest
	Limit  int        // maximum number of jobs and of activities, at least 1
}

// History is a page of the jobs and activities of one channel.
type History struct {
	Gone      bool       // the channel does not exist
	CreatedAt *time.Time // of the channel; nil if the relation does not record it
	// Waiting lists the newest PENDING jobs whose audience includes the channel, on the first page only. At
	// most Limit jobs are read.
	Waiting []HistoryLine
	Lines   []HistoryLine // other jobs and activities, newest first
	Next    *HistoryKey   // the end of this page; nil on the last page
}

// ReadHistory returns the result of each job and activity for one channel, with the reasons of an audit. It
// reads jobs by id, and one row of each by its key: the cost of a page does not depend on the size of the
// jobs. externalID is empty for a deleted channel, whose history contains the jobs with a row of it.
func ReadHistory(ctx context.Context, pool *pgxpool.Pool, store *channels.Store, channelID int64, externalID string,
	o HistoryOptions) (h History, err error) {
	r := &historian{pool: pool, store: store, jobs: job.NewStore(pool), id: channelID, external: externalID}
	if h, err = r.page(ctx, o); err != nil {
		return History{}, fmt.Errorf("history of a channel: %w", err)
	}
	return h, nil
}

// historian is the state of one call of ReadHistory.
type historian struct {
	pool     *pgxpool.Pool
	store    *channels.Store
	jobs     *job.Store
	id       int64
	external string
	asked    map[string][]channels.Inspected // the inspected channel by audience
}

func (r *historian) page(ctx context.Context, o HistoryOptions) (h History, err error) {
	if r.id == math.MinInt64 { // no channel has this id
		return h, channels.ErrNoChannel
	}
	others := slices.DeleteFunc(job.Statuses(), func(s job.Status) bool { return s == job.Pending })
	list, older, err := r.jobs.Page(ctx, job.Filter{Statuses: others, BeforeID: o.Before.JobID, Limit: o.Limit + 1})
	if err != nil {
		return h, err
	}
	var waiting []job.Job
	if o.Before == (HistoryKey{}) {
		if waiting, _, err = r.jobs.Page(ctx, job.Filter{Statuses: []job.Status{job.Pending}, Limit: o.Limit}); err != nil {
			return h, err
		}
	}
	revisions, err := r.revisions(ctx, slices.Concat(list, waiting))
	if err != nil {
		return h, err
	}
	var told, activities []HistoryLine
	err = operation.SnapshotTx(ctx, r.pool, func(ctx context.Context, tx pgx.Tx) error {
		r.asked = make(map[string][]channels.Inspected)
		me, err := r.inspect(ctx, tx, channels.Everyone())
		if err != nil {
			return err
		}
		if h.Gone = len(me) == 0; !h.Gone {
			h.CreatedAt = me[0].CreatedAt
		}
		if h.Waiting, err = r.lines(ctx, tx, waiting, revisions); err != nil {
			return err
		}
		if told, err = r.lines(ctx, tx, list, revisions); err != nil {
			return err
		}
		activities, err = r.activities(ctx, tx, o)
		return err
	})
	if err != nil {
		return h, err
	}
	h.Waiting = slices.DeleteFunc(h.Waiting, func(l HistoryLine) bool {
		return l.Reason == "" || l.Reason == outbox.ReasonOutOfAudience || l.Reason == outbox.ReasonInactive
	})
	h.Lines, h.Next = merged(told, activities, o, older)
	return h, nil
}

// merged merges jobs and activities, newest first, each in the order of its keys. It counts and omits jobs
// without a row of a deleted channel. older is the id below which more jobs may follow, or 0.
func merged(jobs, activities []HistoryLine, o HistoryOptions, older int64) (list []HistoryLine, next *HistoryKey) {
	at := o.Before
	for range o.Limit {
		switch {
		case len(jobs) == 0 && older != 0:
			at.JobID = older
			return list, &at
		case len(jobs)+len(activities) == 0:
			return list, nil
		case len(activities) == 0 || len(jobs) > 0 && !jobs[0].CreatedAt.Before(activities[0].CreatedAt):
			at.JobID = jobs[0].JobID
			if jobs[0].Reason != "" {
				list = append(list, jobs[0])
			}
			jobs = jobs[1:]
		default:
			at.ActivityID = activities[0].JobID
			list, activities = append(list, activities[0]), activities[1:]
		}
	}
	if len(jobs)+len(activities) == 0 && older == 0 {
		return list, nil
	}
	return list, &at
}

// revisions returns the corrections of jobs.
func (r *historian) revisions(ctx context.Context, list []job.Job) (map[int64][]job.Revision, error) {
	of := make(map[int64][]job.Revision)
	for _, j := range list {
		if j.Revision == 0 || !auditable(j) {
			continue
		}
		revisions, err := r.jobs.Revisions(ctx, j.ID)
		if err != nil {
			return nil, err
		}
		of[j.ID] = revisions
	}
	return of, nil
}

func auditable(j job.Job) bool { return j.Type == outbox.TypeInbox || j.Type == outbox.TypePush }

// messageFacts are the columns of a message in a history.
type messageFacts struct {
	Status   string     `db:"status"` // empty if no message exists
	Reason   string     `db:"reason"`
	Error    string     `db:"error"`
	Revision *int       `db:"revision"`
	Awaited  bool       `db:"awaited"`
	Medium   string     `db:"medium"`
	Sender   string     `db:"sender"`
	Attempts int        `db:"attempts"`
	DueAt    *time.Time `db:"due_at"`
	SentAt   *time.Time `db:"sent_at"`
	DeadAt   *time.Time `db:"dead_at"`
}

// describe sets the fields of a line about the message.
func (m messageFacts) describe(l *HistoryLine, aborted bool) {
	l.Reason, l.Why = delivery.ReasonOf(outbox.Status(m.Status), outbox.Reason(m.Reason), m.Awaited, aborted)
	l.Error, l.Medium, l.Sender, l.Attempts = m.Error, m.Medium, m.Sender, m.Attempts
	l.DueAt, l.SentAt, l.DeadAt = utc(m.DueAt), utc(m.SentAt), utc(m.DeadAt)
}

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	at := t.UTC()
	return &at
}

// historyRow contains the rows of the channel for one job.
type historyRow struct {
	messageFacts

	JobID     int64      `db:"job_id"`
	Pruned    bool       `db:"pruned"`
	State     string     `db:"state"` // of the notification; empty if none exists
	ReadAt    *time.Time `db:"read_at"`
	Withdrawn *time.Time `db:"withdrawn_at"`
	Skip      *string    `db:"skip"` // the error of a skip; nil if the channel was not skipped
	Valued    bool       `db:"valued"`
}

// lines returns a line for each job, in order. A job without a row of a deleted channel has no reason. A job
// that was deleted meanwhile has no line.
func (r *historian) lines(ctx context.Context, tx pgx.Tx, jobs []job.Job, revisions map[int64][]job.Revision) (list []HistoryLine,
	err error) {
	ids, by := make([]int64, len(jobs)), make(map[int64]job.Job, len(jobs))
	for i, j := range jobs {
		ids[i], by[j.ID] = j.ID, j
	}
	found, err := db.All[historyRow](ctx, tx, queries.historyRows, pgx.StrictNamedArgs{"job_ids": ids, "channel_id": r.id})
	if err != nil {
		return nil, err
	}
	for _, row := range found {
		l, err := r.line(ctx, tx, by[row.JobID], revisions[row.JobID], row)
		if err != nil {
			return nil, fmt.Errorf("job %d: %w", row.JobID, err)
		}
		list = append(list, l)
	}
	return list, nil
}

// line returns the line for one job.
func (r *historian) line(ctx context.Context, tx pgx.Tx, j job.Job, revisions []job.Revision, row historyRow) (HistoryLine, error) {
	l := HistoryLine{JobID: j.ID, Type: j.Type, Status: j.Status, Category: j.Category, JobTitle: j.Title,
		CreatedAt: j.CreatedAt.UTC(), Entry: Entry{ChannelID: r.id}, Corrected: j.Revision}
	if j.Status == job.Pending {
		l.StartsAt = utc(&j.ScheduleAt)
	}
	if !auditable(j) {
		l.Reason = outbox.ReasonOwnType
		return l, nil
	}
	f, err := factsOf(j)
	if err != nil {
		return l, err
	}
	ranges, err := rangesOf(j, revisions)
	if err != nil {
		return l, err
	}
	audience := ranges[slices.IndexFunc(ranges, func(k keyRange) bool { return r.id <= k.high })].audience
	who, err := r.inspect(ctx, tx, audience)
	if err != nil {
		return l, err
	}
	l.ChannelDeleted = len(who) == 0
	left := !l.ChannelDeleted && (!who[0].Matches || !who[0].Active)
	switch {
	case row.Status != "":
		row.describe(&l, f.aborted)
		if l.LeftSince = left; j.Revision > 0 {
			l.Revision = row.Revision
		}
	case row.State != "":
		l.Reason, l.LeftSince, l.ReadAt, l.Withdrawn = outbox.Reason(row.State), left, utc(row.ReadAt), utc(row.Withdrawn)
	case row.Skip != nil:
		l.Reason, l.Error = outbox.ReasonSkipped, *row.Skip
	case row.Pruned:
		l.Reason = outbox.ReasonPruned
	case !l.ChannelDeleted:
		l.Reason = f.withoutRow(who[0], audience.Kind, row.Valued)
	}
	return l, nil
}

// inspect compares the channel with an audience. It returns nothing if the channel does not exist.
func (r *historian) inspect(ctx context.Context, tx pgx.Tx, a channels.Audience) ([]channels.Inspected, error) {
	if a.Kind == channels.KindChannels { // long lists are searched here instead of in the database
		if slices.Contains(a.IDs, r.id) || slices.Contains(a.ExternalIDs, r.external) {
			a = channels.WithIDs(r.id)
		} else {
			a = channels.WithIDs(r.id ^ 1) // another id
		}
	}
	key, err := json.Marshal(a)
	if err != nil {
		return nil, err
	}
	if found, known := r.asked[string(key)]; known {
		return found, nil
	}
	inspection, err := r.store.Inspect(ctx, tx, a)
	if err != nil {
		return nil, err
	}
	found, err := inspection.Page(ctx, tx, r.id-1, r.id, 1)
	if err == nil {
		r.asked[string(key)] = found
	}
	return found, err
}

// activities returns the activities of the page and one more.
func (r *historian) activities(ctx context.Context, tx pgx.Tx, o HistoryOptions) ([]HistoryLine, error) {
	args := pgx.StrictNamedArgs{"channel_id": r.id, "before": o.Before.ActivityID, "limit": o.Limit + 1}
	return db.Collect(ctx, tx, queries.historyActivities, args, func(row pgx.CollectableRow) (HistoryLine, error) {
		var m messageFacts
		var state outbox.Reason // of its notification
		l := HistoryLine{Type: TypeActivity, Entry: Entry{ChannelID: r.id}}
		err := row.Scan(&l.JobID, &l.Category, &l.Title, &l.CreatedAt, &m.Status, &m.Reason, &m.Error, &m.Revision, &m.Awaited,
			&m.Medium, &m.Sender, &m.Attempts, &m.DueAt, &m.SentAt, &m.DeadAt, &state, &l.ReadAt, &l.Withdrawn)
		l.CreatedAt, l.ReadAt, l.Withdrawn = l.CreatedAt.UTC(), utc(l.ReadAt), utc(l.Withdrawn)
		switch {
		case m.Status != "":
			m.describe(&l, false)
		case state != "":
			l.Reason = state
		default:
			l.Reason = outbox.ReasonPruned
		}
		return l, err
	})
}
