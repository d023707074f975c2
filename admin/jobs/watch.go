package jobs

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/errkind"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// WatchedJob is one job in a snapshot, with its rates.
type WatchedJob struct {
	At             time.Time       `json:"at"`
	ID             int64           `json:"id"`
	Type           string          `json:"type"`
	Title          string          `json:"title"`
	Lane           string          `json:"lane"`
	Status         job.Status      `json:"status"`
	Delivering     bool            `json:"delivering"`            // the walk is complete, messages wait
	AtRest         bool            `json:"at_rest"`               // nothing happens before an operator acts
	AwaitsSince    *time.Time      `json:"awaits_approval_since"` // null means that the job does not wait for approval
	ScheduleAt     time.Time       `json:"schedule_at"`
	WalkedAt       *time.Time      `json:"walked_at"`
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
	ChunkMS        *float64        `json:"chunk_ms"`        // recent time from chunk to chunk, with pauses
	SentPerSecond  *float64        `json:"sent_per_second"` // messages that became final
	SecondsLeft    *float64        `json:"seconds_left"`    // of the walk while the job runs, then of the delivery; null means unknown
	DeliveryLeft   *float64        `json:"delivery_seconds_left"`
	Remedy         text.Line       `json:"remedy"` // for Why, with commands
	Why            text.Line       `json:"why"`    // reason why messages wait; empty while they are sent
}

// watched returns a job for a snapshot. It updates the job's rates.
func watched(s JobState, still delivery.Standstill, p *paces, now time.Time) WatchedJob {
	p.walk.Observe(now, s.ChannelsRead)
	p.delivery.Observe(now, s.Settled())
	p.chunks.Observe(now, s.Chunks)
	w := WatchedJob{
		At: now.UTC(), ID: s.ID, Type: s.Type, Title: s.Title, Lane: s.Lane, Status: s.Status, Delivering: s.Delivering(), AtRest: s.AtRest(),
		AwaitsSince: s.AwaitsApprovalSince, ScheduleAt: s.ScheduleAt, WalkedAt: s.WalkedAt, Cursor: s.Cursor, ChannelsRead: s.ChannelsRead, ChannelsTotal: s.ChannelsTotal,
		RowsWritten: s.RowsWritten, Chunks: s.Chunks, Skipped: s.Skipped, Throttle: s.Throttle, ThrottleDetail: s.ThrottleDetail, Messages: s.Messages,
	}
	if !still.Moving {
		w.Why, w.Remedy = still.Why, still.Remedy
	}
	w.KeysPerSecond, w.SentPerSecond = operation.Known(p.walk.Rate()), operation.Known(p.delivery.Rate())
	if rate, is := p.chunks.Rate(); is && rate > 0 && s.Status == job.Running {
		w.ChunkMS = new(1000 / rate)
	}
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

// watchInterval is the interval between snapshots.
type watchInterval time.Duration

// UnmarshalText reads a duration.
func (i *watchInterval) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	if err != nil || d < 100*time.Millisecond || d > time.Hour {
		return &operation.NotAllowedError{Allowed: "durations from 100ms to 1h, such as 2s"}
	}
	*i = watchInterval(d)
	return nil
}

// MarshalText writes a duration.
func (i watchInterval) MarshalText() ([]byte, error) { return []byte(time.Duration(i).String()), nil }

type watchInput struct {
	IDs      []int64        `arg:"[ID]..." values:"jobs list" is:"a job's id" min:"1" allowed:"whole numbers from 1, see belfry jobs list"`
	Follow   bool           `flag:"follow" help:"continue after the jobs have ended; without ids, add jobs that are enqueued, started or changed"`
	After    *eventPosition `flag:"after" label:"POSITION" help:"with --follow: begin after this position in the events, see status"`
	Interval watchInterval  `flag:"interval" label:"DURATION" help:"interval between snapshots, 100ms to 1h (default 1s on a terminal, 5s elsewhere)"`
}

func (in *watchInput) Check(operation.Operation, time.Time) error {
	if in.After != nil && (!in.Follow || len(in.IDs) > 0) {
		return operation.Invalid("after", "requires --follow, and no ids")
	}
	if len(in.IDs) > watchMost {
		return operation.Invalid("id", "%d jobs are too many; allowed values: up to %d, or none for all active jobs", len(in.IDs), watchMost)
	}
	return nil
}

func watchOperation() operation.Operation {
	return operation.DefineStream(operation.Operation{
		Name: "jobs watch", Short: "Watch the progress of jobs until their messages are sent", Role: operation.Viewer, Shared: true,
		Long: `Watch jobs: the progress, rate and remaining time of the walk and of the delivery, and the
reason of a standstill. Without ids, watch all jobs that are running or being delivered,
and those that start meanwhile. The command ends with exit code 0 when each job is
ABORTED, FAILED or EXPIRED, or PROCESSED with every message sent, dead or cancelled; with
--follow it continues. A signal ends it, also with exit code 0; the jobs continue.

On a terminal the screen is redrawn every --interval, one second by default. Elsewhere the
command prints a line for each changed job, every five seconds by default. With --json,
each snapshot prints one JSON document per job, each on a line.`,
		Example: `  belfry jobs watch
  belfry jobs watch --follow
  belfry jobs watch 17 18 --interval 10s
  belfry jobs watch 17 --json | jq .messages.sent`,
	}, watchJobs, func(in watchInput) func(*text.Doc, []WatchedJob) {
		return newProgressView(in.Follow && len(in.IDs) == 0).text
	},
		func(*text.Doc, watchInput, operation.None) {})
}

// watchJobs sends snapshots of the jobs to each until the jobs have ended, or with Follow until ctx ends.
func watchJobs(ctx context.Context, env *operation.Env, in watchInput, each func([]WatchedJob) error) (operation.None, error) {
	for _, id := range in.IDs {
		if err := env.MayLocate(ctx, "jobs watch", id); err != nil {
			return operation.None{}, err
		}
	}
	w := watcher{shared: broadcasterOf(env), named: in.IDs, follows: in.Follow, after: in.After}
	w.shared.register(w.query(), 1)
	defer func() { w.shared.register(w.query(), -1) }()
	return operation.None{}, poll(ctx, env, time.Duration(in.Interval), func() (over bool, err error) {
		jobs, err := w.next(ctx, env)
		if err != nil {
			return false, operation.NoSuchJob(err)
		}
		if err := each(jobs); err != nil {
			return true, err
		}
		return !in.Follow && !slices.ContainsFunc(jobs, func(j WatchedJob) bool { return !j.AtRest }), nil
	})
}

// broadcasterOf returns the shared Broadcaster of env, or a new one.
func broadcasterOf(env *operation.Env) *Broadcaster {
	if shared, is := env.Broadcaster.(*Broadcaster); is {
		return shared
	}
	return NewBroadcaster(0)
}

// poll calls step at an interval until it is over, fails, or ctx ends. After the first success, it survives
// an outage of the database for watchDeadline. With interval 0, a shared Broadcaster sets the pace, or else
// the interval is that of env.
func poll(ctx context.Context, env *operation.Env, interval time.Duration, step func() (over bool, err error)) error {
	if interval == 0 && env.Broadcaster == nil {
		interval = max(env.Interval, time.Second)
	}
	var succeeded time.Time
	for ctx.Err() == nil { // afterwards the reader has left
		timer := time.NewTimer(interval)
		over, err := step()
		kind := errkind.Of(err)
		switch {
		case over:
			return err
		case err == nil:
			succeeded = env.Time()
		case ctx.Err() != nil:
		case succeeded.IsZero(), kind != errkind.Unavailable && kind != errkind.Standby, env.Time().Sub(succeeded) > watchDeadline:
			return err
		}
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return nil
}

// watcher is the state of one watch.
type watcher struct {
	shared  *Broadcaster
	named   []int64 // empty means all active jobs
	follows bool    // without names, the jobs of new events, too
	shown   []int64 // jobs that the next snapshot must contain
	seq     int64   // the last snapshot
	after   *eventPosition
}

func (w *watcher) query() query {
	return query{slices.Concat(w.named, w.shown), len(w.named) == 0, w.follows && len(w.named) == 0}
}

// next returns the jobs of the next snapshot, by id.
func (w *watcher) next(ctx context.Context, env *operation.Env) ([]WatchedJob, error) {
	before := w.query()
	found, err := w.shared.next(ctx, env, w.seq, before)
	if err != nil {
		return nil, err
	}
	for _, id := range w.named {
		if _, there := found.jobs[id]; !there {
			return nil, fmt.Errorf("job %d: %w", id, job.ErrNotFound)
		}
	}
	ids := slices.Clone(w.named)
	if len(w.named) == 0 {
		ids = w.show(found)
		w.shared.register(w.query(), 1)
		w.shared.register(before, -1)
	}
	w.seq = found.seq
	slices.Sort(ids)
	jobs := make([]WatchedJob, 0, len(ids))
	for _, id := range slices.Compact(ids) {
		if !env.Role.ReadsContents() && found.toRadius[id] { // the progress would reveal who is inside
			continue
		}
		if one, there := found.jobs[id]; there { // otherwise it was pruned
			jobs = append(jobs, one)
		}
	}
	return jobs, nil
}

// show returns the jobs to show, and updates w.shown, so that the next snapshot contains the end of each
// active job. A watch that follows shows the end once. Other watches retain ended jobs, and remove the
// oldest ones if there are too many.
func (w *watcher) show(found *snapshot) (ids []int64) {
	before := w.shown
	w.shown = slices.Clone(found.active)
	if w.follows {
		ids = slices.Concat(found.active, before)
		for _, id := range jobsOf(found.since(w.seq, w.after)) {
			if _, there := found.jobs[id]; !there { // the event is of an earlier snapshot
				w.shown = append(w.shown, id)
			}
			ids = append(ids, id)
		}
		return ids
	}
	for _, id := range slices.Backward(before) {
		if _, there := found.jobs[id]; there && len(w.shown) < watchMost && !slices.Contains(w.shown, id) {
			w.shown = append(w.shown, id)
		}
	}
	slices.Sort(w.shown)
	return slices.Clone(w.shown)
}
