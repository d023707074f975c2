package jobs

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// watchedStates returns the states of one job: a walk, a delivery, and its end.
func watchedStates() []JobState {
	total := int64(60_000)
	j := job.Job{
		ID: 2, Type: "push", Title: "A title that is longer than any narrow terminal has room for beside the rest", Status: job.Running,
		Cursor: "15000", ChannelsTotal: &total, ChannelsRead: 15_000, RowsWritten: 14_000, Throttle: "rate", ThrottleDetail: "limit 15000/s",
	}
	walks := JobState{Job: j, Messages: outbox.Progress{Messages: 14_000, Waiting: 14_000}}
	j.ChannelsRead, j.RowsWritten = 30_000, 28_000
	goes := JobState{Job: j, Messages: outbox.Progress{Messages: 28_000, Sent: 900, Dead: 100, Waiting: 27_000}}
	j.Status, j.Throttle, j.ThrottleDetail, j.ChannelsRead, j.RowsWritten = job.Processed, "", "", 60_000, 56_000
	delivers := JobState{Job: j, Messages: outbox.Progress{Messages: 56_000, Sent: 9_000, Dead: 1_000, Waiting: 46_000}}
	ends := JobState{Job: j, Messages: outbox.Progress{Messages: 56_000, Sent: 54_000, Dead: 1_900, Cancelled: 100}}
	return []JobState{walks, goes, delivers, ends}
}

// watchedAt returns the jobs of a snapshot of states.
func watchedAt(p map[int64]*paces, now time.Time, why delivery.Standstill, states ...JobState) []WatchedJob {
	var jobs []WatchedJob
	for _, s := range states {
		if p[s.ID] == nil {
			p[s.ID] = new(paces)
		}
		jobs = append(jobs, watched(s, why, p[s.ID], now))
	}
	return jobs
}

func TestScreen_ShowsWalkAndDelivery(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	p := make(map[int64]*paces)
	var lines, screens []string
	for i, s := range watchedStates() {
		why := delivery.Standstill{Why: text.Sprintf("no sender for push"), Remedy: text.Sprintf("add one")}
		if i == 3 {
			why = delivery.Standstill{}
		}
		jobs := watchedAt(p, noon.Add(time.Duration(i)*3*time.Second), why, s)
		lines = append(lines, jobs[0].line().String())
		screens = append(screens, strings.Join(screen(text.Times{}, jobs, 79, 23), "\n"))
		require.Equal(t, i == 3, jobs[0].AtRest)
		for _, line := range screen(text.Times{}, jobs, 40, 23) {
			require.LessOrEqual(t, utf8.RuneCountInString(line), 40)
		}
	}
	got := strings.Join(lines, "\n") + "\n\n" + strings.Join(screens, "\n\n") + "\n"
	dbtest.Golden(t, "testdata/watch.golden", got)
}

// The duration of a chunk is the time from one chunk to the next while the job runs.
func TestWatch_MeasuresChunks(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	p := make(map[int64]*paces)
	s := JobState{Job: job.Job{ID: 1, Type: "inbox", Title: "x", Status: job.Running}}
	var last WatchedJob
	for second := range 10 {
		s.Chunks = int64(5 * second)
		last = watchedAt(p, noon.Add(time.Duration(second)*time.Second), delivery.Standstill{}, s)[0]
		require.Equal(t, s.Chunks, last.Chunks)
	}
	require.NotNil(t, last.ChunkMS)
	require.InDelta(t, 200, *last.ChunkMS, 1)
	s.Status = job.Processed
	require.Nil(t, watchedAt(p, noon.Add(11*time.Second), delivery.Standstill{}, s)[0].ChunkMS)
}

// Without a terminal, a job has a line for each change. The passing of time is not a change.
func TestProgressView_IgnoresRelativeTimes(t *testing.T) {
	t.Parallel()
	due := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	now := due.Add(-3 * time.Minute)
	var out strings.Builder
	page := &text.Terminal{Output: &out, Times: text.Times{Relative: true, Now: func() time.Time { return now }}}
	b := newProgressView(false)
	jobs := watchedAt(make(map[int64]*paces), now, delivery.Standstill{}, JobState{Job: job.Job{ID: 1, Type: "inbox", Title: "x", Status: job.Pending, ScheduleAt: due}})
	page.Show(func(d *text.Doc) { b.text(d, jobs) })
	now = due.Add(-time.Minute)
	page.Show(func(d *text.Doc) { b.text(d, jobs) })
	require.Equal(t, 1, strings.Count(out.String(), "\n"), out.String())
	require.Contains(t, out.String(), "due in 3m")
	jobs[0].ScheduleAt = due.Add(time.Minute)
	page.Show(func(d *text.Doc) { b.text(d, jobs) })
	require.Contains(t, out.String(), "due in 2m", "a change")
}

// A view that follows reports once that no job is active, and keeps ended jobs on the screen.
func TestProgressView_KeepsEndedJobs(t *testing.T) {
	t.Parallel()
	var out, notes strings.Builder
	page := &text.Terminal{Output: &out, Notes: &notes, Columns: 80, Rows: 200}
	b := newProgressView(true)
	page.Show(func(d *text.Doc) { b.text(d, nil) })
	page.Show(func(d *text.Doc) { b.text(d, nil) })
	require.Equal(t, 1, strings.Count(notes.String(), "no job is running"))
	p := make(map[int64]*paces)
	for id := int64(1); id <= watchMost+20; id++ {
		status := job.Aborted
		if id == 1 {
			status = job.Running
		}
		shown := watchedAt(p, time.Now(), delivery.Standstill{}, JobState{Job: job.Job{ID: id, Type: "inbox", Title: "x", Status: status}})
		page.Show(func(d *text.Doc) { b.text(d, shown) })
	}
	require.Len(t, b.kept, watchMost)
	require.EqualValues(t, 1, b.kept[0].ID, "ended jobs are removed first")
	require.EqualValues(t, 22, b.kept[1].ID)
	require.EqualValues(t, watchMost+20, b.kept[watchMost-1].ID)
}

// A position requires --follow without ids.
func TestWatch_PositionRequiresFollow(t *testing.T) {
	t.Parallel()
	place := new(eventPosition)
	for _, in := range []watchInput{{After: place}, {After: place, Follow: true, IDs: []int64{1}}} {
		require.ErrorContains(t, in.Check(operation.Operation{}, time.Now()), "--follow")
	}
	require.NoError(t, (&watchInput{After: place, Follow: true}).Check(operation.Operation{}, time.Now()))
}

func TestScreen_CountsOmittedJobs(t *testing.T) {
	t.Parallel()
	states := make([]JobState, 10)
	for i := range states {
		states[i] = watchedStates()[2]
		states[i].ID = int64(i + 1)
	}
	jobs := watchedAt(make(map[int64]*paces), time.Now(), delivery.Standstill{}, states...)
	lines := screen(text.Times{}, jobs, 79, 11)
	require.Len(t, lines, 10)
	require.Equal(t, "7 jobs omitted; use a taller terminal, or name the jobs to watch", lines[9])
	require.Len(t, screen(text.Times{}, jobs, 79, 29), 28)
	require.Len(t, screen(text.Times{}, jobs, 79, 30), 30)
}

func TestInterval_HasBounds(t *testing.T) {
	t.Parallel()
	require.NoError(t, new(watchInterval).UnmarshalText([]byte("2s")))
	for _, text := range []string{"", "2", "99ms", "61m", "-1s"} {
		require.EqualError(t, new(watchInterval).UnmarshalText([]byte(text)), "allowed values: durations from 100ms to 1h, such as 2s")
	}
}

// running returns a reading of running jobs.
func running(ids ...int64) reading {
	r := reading{active: ids}
	for _, id := range ids {
		r.states = append(r.states, JobState{Job: job.Job{ID: id, Status: job.Running}})
	}
	return r
}

// I13: fifty watches read one snapshot per second, with any ids and any begin.
func TestBroadcaster_ManyWatchesCostNoMoreThanOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var snapshots atomic.Int64
		shared := NewBroadcaster(time.Second)
		shared.read = func(_ context.Context, _ *operation.Env, ids []int64, _ bool) (reading, error) {
			snapshots.Add(1)
			return running(ids...), nil
		}
		env := &operation.Env{Role: operation.Admin, Broadcaster: shared}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second+time.Millisecond)
		defer cancel()
		told := make([]atomic.Int64, 50)
		ended := make(chan error)
		for i := range told {
			go func() {
				<-time.After(time.Duration(i) * 37 * time.Millisecond)
				_, err := watchJobs(ctx, env, watchInput{IDs: []int64{int64(i%7) + 1}, Interval: watchInterval(100+i) * watchInterval(time.Millisecond)}, func(jobs []WatchedJob) error {
					if len(jobs) != 1 || jobs[0].ID != int64(i%7)+1 {
						return errors.New("wrong jobs")
					}
					told[i].Add(1)
					return nil
				})
				ended <- err
			}()
		}
		for range told {
			require.NoError(t, <-ended)
		}
		require.LessOrEqual(t, snapshots.Load(), int64(21))
		for i := range told {
			require.GreaterOrEqual(t, told[i].Load(), int64(17), "watch %d", i)
		}
		require.Empty(t, shared.ids, "an ended watch is not registered")
		require.Zero(t, shared.active)
	})
}

// A watch that ends while it reads the shared snapshot does not fail the other watches.
func TestBroadcaster_SurvivesTheEndOfAWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shared := NewBroadcaster(time.Second)
		shared.read = func(ctx context.Context, _ *operation.Env, ids []int64, _ bool) (reading, error) {
			select {
			case <-ctx.Done():
				return reading{}, ctx.Err()
			case <-time.After(100 * time.Millisecond):
				return running(ids...), nil
			}
		}
		env := &operation.Env{Role: operation.Admin, Broadcaster: shared}
		leaving, leave := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := watchJobs(leaving, env, watchInput{IDs: []int64{1}}, func([]WatchedJob) error { return errors.New("it was read") })
			ended <- err
		}()
		synctest.Wait()
		stays := errors.New("enough")
		other := make(chan error, 1)
		go func() {
			_, err := watchJobs(t.Context(), env, watchInput{IDs: []int64{2}}, func(jobs []WatchedJob) error {
				if jobs[0].ID != 2 {
					return errors.New("wrong job")
				}
				return stays
			})
			other <- err
		}()
		synctest.Wait()
		leave()
		require.NoError(t, <-ended)
		require.ErrorIs(t, <-other, stays)
	})
}

// A watch shows each active job until its end. It omits pruned jobs, and retains a limited number of ended
// jobs.
func TestWatch_ShowsTheEndOfActiveJobs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shared := NewBroadcaster(0)
		n := int64(0)
		shared.read = func(_ context.Context, _ *operation.Env, ids []int64, _ bool) (reading, error) {
			n++
			r := running(n)
			for _, id := range ids {
				if id != n && id != 2 { // 2 is pruned when it ends
					r.states = append(r.states, JobState{Job: job.Job{ID: id, Status: job.Processed}})
				}
			}
			if n == 300 {
				r.states[0].Status = job.Processed
			}
			return r, nil
		}
		var snapshots [][]WatchedJob
		_, err := watchJobs(t.Context(), &operation.Env{Role: operation.Admin, Broadcaster: shared}, watchInput{}, func(jobs []WatchedJob) error {
			snapshots = append(snapshots, jobs)
			require.LessOrEqual(t, len(shared.ids), watchMost)
			return nil
		})
		require.NoError(t, err)
		require.Len(t, snapshots, 300, "until all jobs have ended")
		ids := func(jobs []WatchedJob) (ids []int64) {
			for _, j := range jobs {
				ids = append(ids, j.ID)
			}
			return ids
		}
		require.Equal(t, []int64{1}, ids(snapshots[0]))
		require.Equal(t, []int64{1, 3, 4}, ids(snapshots[3]))
		require.Equal(t, job.Processed, snapshots[3][0].Status)
		require.Len(t, snapshots[299], watchMost)
		require.EqualValues(t, 300, snapshots[299][watchMost-1].ID)
	})
}

// followed passes the snapshots of a watch that follows to each, up to most.
func followed(t *testing.T, shared *Broadcaster, most int, each func(look int, jobs []WatchedJob)) {
	t.Helper()
	enough, look := errors.New("enough"), 0
	_, err := watchJobs(t.Context(), &operation.Env{Role: operation.Admin, Broadcaster: shared}, watchInput{Follow: true}, func(jobs []WatchedJob) error {
		each(look, jobs)
		if look++; look == most {
			return enough
		}
		return nil
	})
	require.ErrorIs(t, err, enough)
}

// A watch that follows shows the jobs of all events, although no snapshot has seen them active, and shows
// the end of a job once.
func TestWatch_FollowsEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shared := NewBroadcaster(time.Second)
		n := 0
		shared.events = func(context.Context, *operation.Env) ([]job.NewEvent, error) {
			if n++; n == 3 {
				return []job.NewEvent{
					{ControlEvent: job.ControlEvent{ID: 7, Subject: job.SubjectJob, Name: "17", Kind: job.EventAborted}, Act: true},
					{ControlEvent: job.ControlEvent{ID: 3, Subject: "lane", Name: "19", Kind: "paused"}, Act: true},
				}, nil
			}
			return nil, nil
		}
		shared.read = func(_ context.Context, _ *operation.Env, ids []int64, _ bool) (r reading, err error) {
			for _, id := range ids {
				r.states = append(r.states, JobState{Job: job.Job{ID: id, Status: job.Aborted}})
			}
			return r, nil
		}
		var told []int64
		followed(t, shared, 5, func(look int, jobs []WatchedJob) {
			for _, one := range jobs {
				told = append(told, int64(look), one.ID)
			}
		})
		require.Equal(t, []int64{2, 17}, told)
		require.Empty(t, shared.ids, "an ended watch is not registered")
		require.Zero(t, shared.followers)
	})
}

// A slow watch receives the events of snapshots that it missed.
func TestWatch_FollowsEventsOfMissedSnapshots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shared := NewBroadcaster(time.Second)
		var n atomic.Int64
		shared.events = func(context.Context, *operation.Env) ([]job.NewEvent, error) {
			id := n.Add(1)
			return []job.NewEvent{{ControlEvent: job.ControlEvent{ID: id, Subject: job.SubjectJob, Name: text.Int(id)}}}, nil
		}
		shared.read = func(_ context.Context, _ *operation.Env, ids []int64, _ bool) (r reading, err error) {
			for _, id := range ids {
				r.states = append(r.states, JobState{Job: job.Job{ID: id, Status: job.Processed}})
			}
			return r, nil
		}
		go func() {
			_, _ = watchJobs(t.Context(), &operation.Env{Role: operation.Admin, Broadcaster: shared}, watchInput{Follow: true}, func([]WatchedJob) error { return nil })
		}()
		told, first := make(map[int64]bool), int64(0)
		followed(t, shared, 6, func(look int, jobs []WatchedJob) {
			if look == 0 {
				first = n.Load()
			}
			for _, one := range jobs {
				told[one.ID] = true
			}
			<-time.After(4 * time.Second)
		})
		for id := first + 1; id <= first+16; id++ {
			require.Contains(t, told, id, "since %d", first)
		}
	})
}

// The next snapshot contains the events that a failed snapshot has read.
func TestWatch_KeepsEventsOfAFailedSnapshot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shared := NewBroadcaster(time.Second)
		snapshots := 0
		shared.events = func(context.Context, *operation.Env) ([]job.NewEvent, error) {
			if snapshots++; snapshots == 3 {
				return []job.NewEvent{{ControlEvent: job.ControlEvent{ID: 7, Subject: job.SubjectJob, Name: "17"}}}, nil
			}
			return nil, nil
		}
		shared.read = func(_ context.Context, _ *operation.Env, ids []int64, _ bool) (r reading, err error) {
			if snapshots == 3 {
				return r, &pgconn.PgError{Code: "57P01", Message: "terminating connection due to administrator command"}
			}
			for _, id := range ids {
				r.states = append(r.states, JobState{Job: job.Job{ID: id, Status: job.Aborted}})
			}
			return r, nil
		}
		told := 0
		followed(t, shared, 5, func(_ int, jobs []WatchedJob) { told += len(jobs) })
		require.Equal(t, 1, told)
	})
}

// Each watch sees a change immediately; many changes do not cause as many snapshots.
func TestBroadcaster_ReadsAfterAChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var snapshots atomic.Int64
		shared := NewBroadcaster(time.Minute)
		shared.read = func(_ context.Context, _ *operation.Env, ids []int64, _ bool) (reading, error) {
			snapshots.Add(1)
			return running(ids...), nil
		}
		env := &operation.Env{Role: operation.Admin, Broadcaster: shared}
		for range 3 {
			go func() {
				_, _ = watchJobs(t.Context(), env, watchInput{IDs: []int64{1}}, func([]WatchedJob) error { return nil })
			}()
		}
		<-time.After(time.Second)
		require.EqualValues(t, 1, snapshots.Load())
		env.Broadcaster.Changed()
		synctest.Wait()
		require.EqualValues(t, 2, snapshots.Load(), "at once")
		for range 1_000 {
			<-time.After(time.Millisecond)
			env.Broadcaster.Changed()
		}
		<-time.After(time.Second)
		require.LessOrEqual(t, snapshots.Load(), int64(2+11))
		require.Greater(t, snapshots.Load(), int64(2+8))
	})
}
