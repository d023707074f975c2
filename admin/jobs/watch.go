package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// Update is an item of the stream. It is sent after each poll, also if nothing has changed.
type Update struct {
	At time.Time `json:"at"`
	// Jobs are the named jobs; without names those that run, are being delivered, did at the previous update, or
	// have a new event. Running jobs come first. Of very many jobs that are being delivered, some are omitted:
	// jobs whose messages are due later before others.
	Jobs []WatchedJob `json:"jobs"`
	// Events are the acts of operators and programs since the previous update, the oldest first, of the named
	// jobs if there are any. Of very many some are omitted; the lists of events are complete.
	Events []job.ControlEvent `json:"events"`
}

// WatchedJob is one job in an update, with its rates.
type WatchedJob struct {
	At             time.Time       `json:"at"`
	ID             int64           `json:"id"`
	Type           string          `json:"type"`
	Title          string          `json:"title"`
	Lane           string          `json:"lane"`
	Status         job.Status      `json:"status"`
	Delivering     bool            `json:"delivering"`            // the walk is complete, messages wait
	Held           bool            `json:"held"`                  // by a halt, or messages wait by a paused lane
	AtRest         bool            `json:"at_rest"`               // nothing happens before an operator acts
	AwaitsSince    *time.Time      `json:"awaits_approval_since"` // null means that the job does not wait for approval
	ScheduleAt     time.Time       `json:"schedule_at"`
	WalkedAt       *time.Time      `json:"walked_at"`
	RecalledAt     *time.Time      `json:"recalled_at"`
	Cursor         string          `json:"cursor"`
	ChannelsRead   int64           `json:"channels_read"`
	ChannelsTotal  *int64          `json:"channels_total"`
	RowsWritten    int64           `json:"rows_written"`
	Chunks         int64           `json:"chunks"` // committed
	Skipped        int64           `json:"skipped"`
	Throttle       string          `json:"throttle"`
	ThrottleDetail string          `json:"throttle_detail"`
	Messages       outbox.Progress `json:"messages"`
	KeysPerSecond  *float64        `json:"keys_per_second"` // of the walk; null means unknown
	SentPerSecond  *float64        `json:"sent_per_second"` // messages that became final
	SecondsLeft    *float64        `json:"seconds_left"`    // of the walk while the job runs, then of the delivery; null means unknown
	DeliveryLeft   *float64        `json:"delivery_seconds_left"`
	Remedy         text.Line       `json:"remedy"` // for Why, with commands
	Why            text.Line       `json:"why"`    // reason why messages wait; empty while they are sent
}

// active reports whether the job runs or is being delivered.
func (w WatchedJob) active() bool { return w.Status == job.Running || w.Delivering }

// watched returns a job for an update. It updates the job's rates.
func watched(s JobState, still delivery.Standstill, p *paces, now time.Time) WatchedJob {
	p.walk.Observe(now, s.ChannelsRead)
	p.delivery.Observe(now, s.Settled())
	w := WatchedJob{
		At: now.UTC(), ID: s.ID, Type: s.Type, Title: s.Title, Lane: s.Lane, Status: s.Status, Delivering: s.Delivering(),
		Held: s.HaltedAt != nil || still.Held, AtRest: s.AtRest(),
		AwaitsSince: s.AwaitsApprovalSince, ScheduleAt: s.ScheduleAt, WalkedAt: s.WalkedAt, RecalledAt: s.RecalledAt, Cursor: s.Cursor,
		ChannelsRead: s.ChannelsRead, ChannelsTotal: s.ChannelsTotal,
		RowsWritten: s.RowsWritten, Chunks: s.Chunks, Skipped: s.Skipped, Throttle: s.Throttle, ThrottleDetail: s.ThrottleDetail,
		Messages: s.Messages,
	}
	if !still.Moving {
		w.Why, w.Remedy = still.Why, still.Remedy
	}
	w.KeysPerSecond, w.SentPerSecond = operation.Known(p.walk.Rate()), operation.Known(p.delivery.Rate())
	w.DeliveryLeft = seconds(p.delivery.Left(s.Messages.Waiting))
	total, known := s.Total()
	switch {
	case s.Status == job.Running && known:
		w.SecondsLeft = seconds(p.walk.Left(total - s.ChannelsRead))
	case w.Delivering:
		w.SecondsLeft = w.DeliveryLeft
	}
	return w
}

// seconds returns a duration in seconds, or nil if it is negative, which means unknown.
func seconds(d time.Duration) *float64 { return operation.Known(d.Seconds(), d >= 0) }

type watchInput struct {
	IDs    []int64        `arg:"[ID]..." values:"jobs list" is:"a job's id" min:"1" allowed:"whole numbers from 1, see belfry jobs list"`
	Follow bool           `flag:"follow" help:"continue when all jobs are at rest"`
	After  *eventPosition `flag:"after" label:"POSITION" help:"begin after this recent position in the events, see status"`
}

// Check implements the check of an input.
func (in *watchInput) Check(operation.Operation, time.Time) error {
	if len(in.IDs) > watchMost {
		return operation.Invalid("id", "%d jobs are too many; allowed values: up to %d, or none for all that run", len(in.IDs), watchMost)
	}
	return nil
}

func watchOperation() operation.Operation {
	return operation.DefineStream(operation.Operation{
		Name: "jobs watch", Short: "Watch the progress of jobs, and what operators do", Role: operation.Viewer, Shared: true, Rows: "jobs",
		Long: `Watch jobs: the progress of the walk and of the delivery, their speed, the time left, the
reason if messages wait, and acts of operators and programs. Without ids: each job that
runs or is being delivered, and all acts. The command ends with exit code 0 when the jobs
are at rest: aborted, failed or expired, or PROCESSED with every message sent, dead or
cancelled; with --follow it continues. A signal ends it with exit code 0 and does not
affect the jobs.

On a terminal the screen is redrawn every second; elsewhere the command polls every two
seconds and prints a line for each event and for each job that has changed. With --json it
prints a JSON document a line, with the jobs and the new events.`,
		Example: `  belfry jobs watch
  belfry jobs watch --follow
  belfry jobs watch 17 18
  belfry jobs watch 17 --json | jq '.jobs[].messages.sent'
  belfry jobs watch --follow --json | jq -c '.events[] | select(.subject == "lane")'`,
	}, watchJobs, func(watchInput) func(*text.Doc, Update) { return newProgressView().text }, func(*text.Doc, watchInput, operation.None) {})
}

// watchJobs sends updates until the jobs are at rest, if it does not follow, or until ctx ends. After the
// first update it outlives a database that is unavailable for a while.
func watchJobs(ctx context.Context, env *operation.Env, in watchInput, each func(Update) error) (operation.None, error) {
	for _, id := range in.IDs {
		if err := env.MayLocate(ctx, "jobs watch", id); err != nil {
			return operation.None{}, err
		}
	}
	b, shared := env.Broadcaster.(*Broadcaster)
	if !shared {
		b = NewBroadcaster(max(env.Interval, time.Second))
	}
	b.name(in.IDs, 1)
	defer b.name(in.IDs, -1)
	s := subscription{ids: in.IDs, after: in.After}
	var answered time.Time // zero before the first update
	rested := false        // at the update before
	for {
		u, err := b.next(ctx, env, &s)
		switch {
		case ctx.Err() != nil: // the reader has left
			return operation.None{}, nil
		case err == nil:
			first := answered.IsZero()
			answered = env.Time()
			if rested && len(u.Events) == 0 {
				return operation.None{}, nil
			}
			if err := each(u); err != nil || !in.Follow && s.atRest && (first || rested) {
				return operation.None{}, err
			}
			rested = s.atRest && !in.Follow // a poll reads events before jobs: the last event may be in the next update
		case answered.IsZero() || !unavailable(err) || env.Time().Sub(answered) > watchDeadline:
			return operation.None{}, operation.NoSuchJob(err)
		}
	}
}

// unavailable reports whether the database may answer later.
func unavailable(err error) bool {
	kind := db.KindOf(err)
	return kind == db.KindUnavailable || kind == db.KindStandby
}

// subscription is the state of one stream.
type subscription struct {
	ids    []int64 // none: all jobs
	after  *eventPosition
	seq    int64 // of the last update; zero before the first
	atRest bool  // at the last update
}

// update returns what is new to s. The caller holds the turn.
func (b *Broadcaster) update(env *operation.Env, s *subscription) (Update, error) {
	u := Update{At: env.Time().UTC(), Jobs: []WatchedJob{}, Events: []job.ControlEvent{}}
	var events []newEvent
	for _, e := range b.recent {
		if s.seq > 0 && e.seq <= s.seq || s.seq == 0 && (s.after == nil || !e.after(s.after.ActPosition)) {
			continue
		}
		events = append(events, e.newEvent)
		if e.Act && (len(s.ids) == 0 || slices.Contains(s.ids, e.JobID())) {
			one, read := b.jobs[e.JobID()]
			if env.Role.HidesDetail(e.ControlEvent, e.JobID() != 0 && (!read || one.radius)) {
				e.Detail = json.RawMessage("{}")
			}
			u.Events = append(u.Events, e.ControlEvent)
		}
	}
	ids := slices.Clone(s.ids)
	switch {
	case len(ids) > 0:
	case s.seq == 0:
		ids = slices.Concat(b.active, jobsOf(events))
	default:
		for id, j := range b.jobs {
			if j.news > s.seq {
				ids = append(ids, id)
			}
		}
	}
	slices.Sort(ids)
	s.seq, s.atRest = b.seq, true
	for _, id := range slices.Compact(ids) {
		one, there := b.jobs[id]
		switch {
		case !there && len(s.ids) > 0:
			return u, fmt.Errorf("job %d: %w", id, job.ErrNotFound)
		case !there, one.radius && !env.Role.ReadsContents(): // its progress would reveal who is inside
			continue
		}
		u.Jobs = append(u.Jobs, one.WatchedJob)
		s.atRest = s.atRest && (one.AtRest || len(s.ids) == 0 && !one.active())
	}
	slices.SortFunc(u.Jobs, runningFirst)
	return u, nil
}

// runningFirst compares jobs by their order on a page: running jobs, then the others, each by id.
func runningFirst(x, y WatchedJob) int {
	if runs := x.Status == job.Running; runs != (y.Status == job.Running) {
		if runs {
			return -1
		}
		return 1
	}
	return cmp.Compare(x.ID, y.ID)
}
