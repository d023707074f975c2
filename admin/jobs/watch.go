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

// WatchedJob is one job at one look, and how fast it goes.
type WatchedJob struct {
	At             time.Time       `json:"at"`
	ID             int64           `json:"id"`
	Type           string          `json:"type"`
	Title          string          `json:"title"`
	Lane           string          `json:"lane"`
	Status         job.Status      `json:"status"`
	Delivering     bool            `json:"delivering"`            // the walk is over, messages are left
	AtRest         bool            `json:"at_rest"`               // nothing goes on before an operator acts
	AwaitsSince    *time.Time      `json:"awaits_approval_since"` // null: it does not wait for approval
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
	KeysPerSecond  *float64        `json:"keys_per_second"` // of the walk; null: not known yet
	ChunkMS        *float64        `json:"chunk_ms"`        // from a chunk to the next, lately, pauses included
	SentPerSecond  *float64        `json:"sent_per_second"` // messages that became final
	SecondsLeft    *float64        `json:"seconds_left"`    // of the walk while it goes on, then of the delivery; null: cannot be told
	DeliveryLeft   *float64        `json:"delivery_seconds_left"`
	Remedy         text.Line       `json:"remedy"` // for Why, in the words of the command line
	Why            text.Line       `json:"why"`    // messages wait; "": nothing stands in their way
}

// WatchJob is a job at a look; its paces look, too.
func WatchJob(s JobState, still delivery.Standstill, p *paces, now time.Time) WatchedJob {
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
	total, walkable := s.Total()
	switch {
	case s.Status == job.Running && walkable:
		w.SecondsLeft = seconds(p.walk.Left(total - s.ChannelsRead))
	case w.Delivering:
		w.SecondsLeft = w.DeliveryLeft
	}
	return w
}

// seconds is a span that may be told; nil: it is negative.
func seconds(d time.Duration) *float64 {
	if d < 0 {
		return nil
	}
	s := d.Seconds()
	return &s
}

// watchInterval is between looks.
type watchInterval time.Duration

// UnmarshalText reads a duration.
func (i *watchInterval) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	if err != nil || d < 100*time.Millisecond || d > time.Hour {
		return &operation.NotAllowedError{Allowed: "durations from 100ms to 1h, as 2s"}
	}
	*i = watchInterval(d)
	return nil
}

// MarshalText writes it as UnmarshalText reads it.
func (i watchInterval) MarshalText() ([]byte, error) { return []byte(time.Duration(i).String()), nil }

type watchInput struct {
	IDs      []int64       `arg:"[ID]..." values:"jobs list" is:"a job's id" min:"1" allowed:"whole numbers from 1, as belfry jobs list shows them"`
	Follow   bool          `flag:"follow" help:"go on when all are at rest: without ids also those that are enqueued, begin, or are acted on meanwhile"`
	After    *actPosition  `flag:"after" label:"PLACE" help:"with --follow: also what happened after this place, as status has it"`
	Interval watchInterval `flag:"interval" label:"DURATION" help:"between looks, 100ms to 1h (default 1s on a terminal, 5s elsewhere)"`
}

func (in *watchInput) Check(operation.Operation, time.Time) error {
	if in.After != nil && (!in.Follow || len(in.IDs) > 0) {
		return operation.Invalid("after", "goes with --follow, and without ids")
	}
	if len(in.IDs) > watchMost {
		return operation.Invalid("id", "%d jobs are too many; allowed values: up to %d, or none for those that are under way", len(in.IDs), watchMost)
	}
	return nil
}

func watchOperation() operation.Operation {
	return operation.DefineStream(operation.Operation{
		Name: "jobs watch", Short: "Watch jobs run and their messages go, until all is sent", Role: operation.Viewer, Shared: true,
		Long: `Watch jobs: how far the walk and the delivery are, how fast, how long the rest takes,
and why nothing goes on where nothing does. Without ids every job that runs or is being
delivered, also those that begin meanwhile. The command ends with exit code 0 when the
jobs are at rest: aborted, failed or expired, or PROCESSED with every message sent, dead
or cancelled; with --follow it goes on. A signal ends it, with exit code 0 too; the jobs
go on.

On a terminal the screen is redrawn every --interval, one second by default; elsewhere a
line for each job that changed is printed, every five seconds. With --json each look
prints a JSON document a line for each job.`,
		Example: `  belfry jobs watch
  belfry jobs watch --follow
  belfry jobs watch 17 18 --interval 10s
  belfry jobs watch 17 --json | jq .messages.sent`,
	}, watchJobs, func(in watchInput) func(*text.Doc, []WatchedJob) {
		return newBoard(in.Follow && len(in.IDs) == 0).tell
	},
		func(*text.Doc, watchInput, operation.None) {})
}

// watchJobs looks until the jobs are at rest, if it does not follow.
func watchJobs(ctx context.Context, env *operation.Env, in watchInput, each func([]WatchedJob) error) (operation.None, error) {
	for _, id := range in.IDs {
		if err := env.MayLocate(ctx, "jobs watch", id); err != nil {
			return operation.None{}, err
		}
	}
	w := watcher{shared: sharedBy(env), named: in.IDs, follows: in.Follow, after: in.After}
	w.shared.watch(w.wanted(), 1)
	defer func() { w.shared.watch(w.wanted(), -1) }()
	return operation.None{}, lookOften(ctx, env, time.Duration(in.Interval), func() (over bool, err error) {
		jobs, err := w.look(ctx, env)
		if err != nil {
			return false, operation.NoSuchJob(err)
		}
		if err := each(jobs); err != nil {
			return true, err
		}
		return !in.Follow && !slices.ContainsFunc(jobs, func(j WatchedJob) bool { return !j.AtRest }), nil
	})
}

// sharedBy are the looks that env shares, or its own.
func sharedBy(env *operation.Env) *Watches {
	if shared, is := env.Watches.(*Watches); is {
		return shared
	}
	return NewWatches(0)
}

// lookOften looks until it is over, with an error or without, or ctx ends. It outlives a database that
// is away for a while, once it has answered. every is between looks; 0: the pace of those that env shares, or its own.
func lookOften(ctx context.Context, env *operation.Env, every time.Duration, look func() (over bool, err error)) error {
	if every == 0 && env.Watches == nil {
		every = max(env.Interval, time.Second)
	}
	wait := pause(every)
	var answered time.Time // zero: not yet
	for {
		over, err := look()
		switch {
		case over:
			return err
		case err == nil:
			answered = env.Time()
		case ctx.Err() == nil && (answered.IsZero() || !away(err) || env.Time().Sub(answered) > watchDeadline):
			return err
		}
		if !wait(ctx) { // who watched has left
			return nil
		}
	}
}

// pause returns what waits until a span after it returned last, and reports whether ctx goes on;
// without a span it does not wait: the looks that are shared have their pace.
func pause(every time.Duration) func(ctx context.Context) bool {
	next := time.Now().Add(every)
	return func(ctx context.Context) bool {
		if every > 0 {
			timer := time.NewTimer(time.Until(next))
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
			next = time.Now().Add(every)
		}
		return ctx.Err() == nil
	}
}

// away reports whether the database may answer later.
func away(err error) bool {
	kind := errkind.Of(err)
	return kind == errkind.Unavailable || kind == errkind.Standby
}

// watcher is one watch.
type watcher struct {
	shared  *Watches
	named   []int64 // empty: whatever is under way
	follows bool    // of no named ones: whatever happens to any, too
	shown   []int64 // what was under way at a look before, or was missed
	told    int64   // the last look
	after   *actPosition
}

func (w *watcher) wanted() wanted {
	return wanted{slices.Concat(w.named, w.shown), len(w.named) == 0, w.follows && len(w.named) == 0}
}

// look returns the jobs, by id.
func (w *watcher) look(ctx context.Context, env *operation.Env) ([]WatchedJob, error) {
	before := w.wanted()
	found, err := w.shared.look(ctx, env, w.told, before)
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
		w.shared.watch(w.wanted(), 1)
		w.shared.watch(before, -1)
	}
	w.told = found.number
	slices.Sort(ids)
	jobs := make([]WatchedJob, 0, len(ids))
	for _, id := range slices.Compact(ids) {
		if !env.Role.ReadsContents() && found.toRadius[id] { // how it goes on would find out who is inside
			continue
		}
		if one, there := found.jobs[id]; there { // otherwise it was pruned meanwhile
			jobs = append(jobs, one)
		}
	}
	return jobs, nil
}

// show returns what is to be shown, and notes what is to be looked for at the next look: what is
// under way, so that its end is shown as well. What follows shows an end once; otherwise what was
// shown stays, and where there is no room for all, what is at rest goes first.
func (w *watcher) show(found *looked) (ids []int64) {
	before := w.shown
	w.shown = slices.Clone(found.underWay)
	if w.follows {
		ids = slices.Concat(found.underWay, before)
		for _, id := range jobsOf(found.since(w.told, w.after)) {
			if _, there := found.jobs[id]; !there { // the look that found it was another's
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
