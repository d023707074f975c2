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
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// TypeActivity stands in a history for a job's type where the message is an activity's.
const TypeActivity = "activity"

// HistoryLine is what became of one job, or of one activity, for one channel: the Entry of an
// audit, with where and when. Instants are in UTC.
type HistoryLine struct {
	JobID     int64      `json:"job_id"` // negative: an activity
	Type      string     `json:"type"`   // TypeActivity: an activity
	Status    job.Status `json:"status"` // of the job; "": an activity
	Category  string     `json:"category"`
	JobTitle  string     `json:"job_title"`         // "": an activity
	Title     string     `json:"title" mask:"text"` // of an activity; "": a job
	CreatedAt time.Time  `json:"created_at"`        // when it was enqueued or sent
	StartsAt  *time.Time `json:"starts_at"`         // when a job begins that has not; nil: it has
	Entry                // of an audit; also ReasonPruned and ReasonOwnType
	Medium    string     `json:"medium"`   // of the route, where the message is or ended; "": no message
	Sender    string     `json:"sender"`   // that took it; "": none has
	Attempts  int        `json:"attempts"` // calls by that medium
	DueAt     *time.Time `json:"due_at"`   // when the message is tried next; nil: it is final, or in flight
	SentAt    *time.Time `json:"sent_at"`
	DeadAt    *time.Time `json:"dead_at"`
	ReadAt    *time.Time `json:"read_at"`      // of the notification
	Withdrawn *time.Time `json:"withdrawn_at"` // of the notification
}

// HistoryKey is where a page of a history ends: the last job and the last activity of it; 0: it,
// and those before it, had none.
type HistoryKey struct{ JobID, ActivityID int64 }

// HistoryOptions say which part of a history is read.
type HistoryOptions struct {
	Before HistoryKey // the zero value: from the newest
	Limit  int        // at most so many jobs and activities, at least 1
}

// History is a page of what jobs and activities did, or will do, for one channel.
type History struct {
	Gone      bool       // there is no such channel now
	CreatedAt *time.Time // the channel; nil: the relation does not tell
	// Waiting are, on the first page, what comes of the newest jobs that are PENDING, as many
	// as the limit, for who is in their audience.
	Waiting []HistoryLine
	Lines   []HistoryLine // of the other jobs, and of activities, newest first
	Next    *HistoryKey   // where the next page begins; nil: there is none
}

// ReadHistory returns what became of each job for one channel, in the words of an audit, and of
// the activities that were sent to it. Jobs are read by their ids, and of each one row by its
// key: a page costs the same whatever the size of the jobs. externalID is the channel's, if it
// is there. Of a channel that is gone there are the jobs that have a row of it.
func ReadHistory(ctx context.Context, pool *pgxpool.Pool, store *channels.Store, channelID int64, externalID string, o HistoryOptions) (h History, err error) {
	r := &historian{pool: pool, store: store, jobs: job.NewStore(pool), id: channelID, external: externalID}
	if h, err = r.page(ctx, o); err != nil {
		return History{}, fmt.Errorf("history of a channel: %w", err)
	}
	return h, nil
}

// historian is one call of ReadHistory.
type historian struct {
	pool     *pgxpool.Pool
	store    *channels.Store
	jobs     *job.Store
	id       int64
	external string
	asked    map[string][]channels.Inspected // of the channel, by audience
}

func (r *historian) page(ctx context.Context, o HistoryOptions) (h History, err error) {
	if r.id == math.MinInt64 { // which no channel has
		return h, channels.ErrNoChannel
	}
	others := slices.DeleteFunc(job.Statuses(), func(s job.Status) bool { return s == job.Pending })
	list, err := r.jobs.List(ctx, job.Filter{Statuses: others, BeforeID: o.Before.JobID, Limit: o.Limit + 1})
	if err != nil {
		return h, err
	}
	var waiting []job.Job
	if o.Before == (HistoryKey{}) {
		if waiting, err = r.jobs.List(ctx, job.Filter{Statuses: []job.Status{job.Pending}, Limit: o.Limit}); err != nil {
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
	h.Lines, h.Next = merged(told, activities, o)
	return h, nil
}

// merged are jobs and activities, newest first, each in the order of its keys. Jobs that have
// nothing of a channel that is gone are counted and left out.
func merged(jobs, activities []HistoryLine, o HistoryOptions) (list []HistoryLine, next *HistoryKey) {
	at := o.Before
	for range o.Limit {
		switch {
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
	if len(jobs)+len(activities) == 0 {
		return list, nil
	}
	return list, &at
}

// revisions are those of the jobs that were corrected.
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

// messageFacts are what a history tells of a message.
type messageFacts struct {
	Status   string     `db:"status"` // "": there is none
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

// tell has a line say what became of the message.
func (m messageFacts) tell(l *HistoryLine, aborted bool) {
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

// historyRow is what there is of the channel of one job.
type historyRow struct {
	messageFacts

	JobID     int64      `db:"job_id"`
	Pruned    bool       `db:"pruned"`
	State     string     `db:"state"` // of the notification; "": there is none
	ReadAt    *time.Time `db:"read_at"`
	Withdrawn *time.Time `db:"withdrawn_at"`
	Skip      *string    `db:"skip"` // why it was skipped; nil: it was not
}

// lines tell of jobs, in their order. A job without anything of a channel that is gone has no
// reason, and one that was deleted meanwhile no line.
func (r *historian) lines(ctx context.Context, tx pgx.Tx, jobs []job.Job, revisions map[int64][]job.Revision) (list []HistoryLine, err error) {
	ids, by := make([]int64, len(jobs)), make(map[int64]job.Job, len(jobs))
	for i, j := range jobs {
		ids[i], by[j.ID] = j.ID, j
	}
	rows, err := tx.Query(ctx, queries.historyRows, pgx.StrictNamedArgs{"job_ids": ids, "channel_id": r.id})
	if err != nil {
		return nil, err
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[historyRow])
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

// line tells of one job what an audit says of the channel.
func (r *historian) line(ctx context.Context, tx pgx.Tx, j job.Job, revisions []job.Revision, row historyRow) (HistoryLine, error) {
	l := HistoryLine{JobID: j.ID, Type: j.Type, Status: j.Status, Category: j.Category, JobTitle: j.Title, CreatedAt: j.CreatedAt.UTC(), Entry: Entry{ChannelID: r.id}}
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
		row.tell(&l, f.aborted)
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
		l.Reason = f.withoutRow(who[0], audience.Kind)
	}
	return l, nil
}

// inspect says how the channel stands to an audience; nothing: there is no such channel.
func (r *historian) inspect(ctx context.Context, tx pgx.Tx, a channels.Audience) ([]channels.Inspected, error) {
	if a.Kind == channels.KindChannels { // a list of thousands is looked through here, and not in the database
		if slices.Contains(a.IDs, r.id) || slices.Contains(a.ExternalIDs, r.external) {
			a = channels.WithIDs(r.id)
		} else {
			a = channels.WithIDs(r.id ^ 1) // another
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

// activities are those of the page and one more.
func (r *historian) activities(ctx context.Context, tx pgx.Tx, o HistoryOptions) ([]HistoryLine, error) {
	rows, err := tx.Query(ctx, queries.historyActivities, pgx.StrictNamedArgs{"channel_id": r.id, "before": o.Before.ActivityID, "limit": o.Limit + 1})
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (HistoryLine, error) {
		var m messageFacts
		l := HistoryLine{Type: TypeActivity, Entry: Entry{ChannelID: r.id}}
		err := row.Scan(&l.JobID, &l.Category, &l.Title, &l.CreatedAt, &m.Status, &m.Reason, &m.Error, &m.Revision, &m.Awaited,
			&m.Medium, &m.Sender, &m.Attempts, &m.DueAt, &m.SentAt, &m.DeadAt)
		if l.CreatedAt = l.CreatedAt.UTC(); m.Status == "" {
			l.Reason = outbox.ReasonPruned
		} else {
			m.tell(&l, false)
		}
		return l, err
	})
}
