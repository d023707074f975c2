package jobs

import (
	"context"
	"encoding/json"
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
	"github.com/belfryhq/belfry/channels"
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

// Without a terminal, a job has a line for each change. The passing of time is not a change.
func TestProgressView_IgnoresRelativeTimes(t *testing.T) {
	t.Parallel()
	due := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	now := due.Add(-3 * time.Minute)
	var out strings.Builder
	page := &text.Terminal{Output: &out, Times: text.Times{Relative: true, Now: func() time.Time { return now }}}
	b := newProgressView()
	jobs := watchedAt(make(map[int64]*paces), now, delivery.Standstill{}, JobState{Job: job.Job{ID: 1, Type: "inbox", Title: "x", Status: job.Pending, ScheduleAt: due}})
	page.Show(func(d *text.Doc) { b.text(d, Update{Jobs: jobs}) })
	now = due.Add(-time.Minute)
	page.Show(func(d *text.Doc) { b.text(d, Update{Jobs: jobs}) })
	require.Equal(t, 1, strings.Count(out.String(), "\n"), out.String())
	require.Contains(t, out.String(), "due in 3m")
	jobs[0].ScheduleAt = due.Add(time.Minute)
	page.Show(func(d *text.Doc) { b.text(d, Update{Jobs: jobs}) })
	require.Contains(t, out.String(), "due in 2m", "a change")
}

// A view reports once that no job is active, and keeps ended jobs on the screen.
func TestProgressView_KeepsEndedJobs(t *testing.T) {
	t.Parallel()
	var out, notes strings.Builder
	page := &text.Terminal{Output: &out, Notes: &notes, Columns: 80, Rows: 200}
	b := newProgressView()
	show := func(u Update) { page.Show(func(d *text.Doc) { b.text(d, u) }) }
	show(Update{})
	show(Update{})
	require.Equal(t, 1, strings.Count(notes.String(), "no job is running"))
	p := make(map[int64]*paces)
	for id := int64(1); id <= watchMost+20; id++ {
		status := job.Aborted
		if id == 1 {
			status = job.Running
		}
		show(Update{
			Jobs:   watchedAt(p, time.Now(), delivery.Standstill{}, JobState{Job: job.Job{ID: id, Type: "inbox", Title: "x", Status: status}}),
			Events: []job.ControlEvent{{Subject: job.SubjectJob, Name: text.Int(id), Kind: "enqueued", Actor: "ann"}},
		})
	}
	require.Len(t, b.kept, watchMost)
	require.EqualValues(t, 1, b.kept[0].ID, "ended jobs are removed first")
	require.EqualValues(t, 22, b.kept[1].ID)
	require.EqualValues(t, watchMost+20, b.kept[watchMost-1].ID)
	require.Len(t, b.events, shownEvents)
	require.Contains(t, out.String(), "ann: job 120 enqueued")
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

// running are jobs that run, as a poll reads them.
func running(ids ...int64) reading {
	r := reading{active: ids}
	for _, id := range ids {
		r.states = append(r.states, JobState{Job: job.Job{ID: id, Status: job.Running}})
	}
	return r
}

// at are jobs at a status, none of which runs.
func at(status job.Status, ids []int64) (r reading) {
	for _, id := range ids {
		r.states = append(r.states, JobState{Job: job.Job{ID: id, Status: status}})
	}
	return r
}

// polled is a Broadcaster with what its polls read.
func polled(interval time.Duration, read func(ids []int64) (reading, error), events func() []newEvent) *Broadcaster {
	b := NewBroadcaster(interval)
	b.read = func(_ context.Context, _ *operation.Env, ids []int64) (reading, error) { return read(ids) }
	b.events = func(context.Context, *operation.Env) ([]newEvent, error) {
		if events == nil {
			return nil, nil
		}
		return events(), nil
	}
	return b
}

func abortEvent(id int64, name string) newEvent {
	return newEvent{ControlEvent: job.ControlEvent{ID: id, Subject: job.SubjectJob, Name: name, Kind: job.EventAborted}, Act: true}
}

// watching reads a stream.
func watching(ctx context.Context, b *Broadcaster, in watchInput, each func(Update) error) error {
	_, err := watchJobs(ctx, &operation.Env{Role: operation.Admin, Broadcaster: b}, in, each)
	return err
}

var errEnough = errors.New("enough")

// I13: fifty pages are one poll a second, whenever they were opened and whatever they show.
func TestBroadcaster_ManyStreamsCostNoMoreThanOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var polls atomic.Int64
		b := polled(time.Second, func(ids []int64) (reading, error) {
			polls.Add(1)
			return at(job.Pending, ids), nil
		}, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second+time.Millisecond)
		defer cancel()
		updates := make([]atomic.Int64, 50)
		ended := make(chan error)
		for i := range updates {
			go func() {
				<-time.After(time.Duration(i) * 37 * time.Millisecond)
				ended <- watching(ctx, b, watchInput{IDs: []int64{int64(i%7) + 1}}, func(u Update) error {
					if len(u.Jobs) != 1 || u.Jobs[0].ID != int64(i%7)+1 {
						return errors.New("another stream's jobs")
					}
					updates[i].Add(1)
					return nil
				})
			}()
		}
		for range updates {
			require.NoError(t, <-ended)
		}
		require.LessOrEqual(t, polls.Load(), int64(21))
		for i := range updates {
			require.GreaterOrEqual(t, updates[i].Load(), int64(17), "stream %d", i)
		}
		require.Empty(t, b.named, "a stream that ends names no jobs")
	})
}

// A stream that ends during its poll does not take it from the streams that wait for it.
func TestBroadcaster_AStreamThatEndsTakesNothingFromOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := polled(time.Second, nil, nil)
		b.read = func(ctx context.Context, _ *operation.Env, ids []int64) (reading, error) {
			select {
			case <-ctx.Done():
				return reading{}, ctx.Err()
			case <-time.After(100 * time.Millisecond):
				return at(job.Pending, ids), nil
			}
		}
		leaving, leave := context.WithCancel(t.Context())
		ended, other := make(chan error, 1), make(chan error, 1)
		go func() {
			ended <- watching(leaving, b, watchInput{IDs: []int64{1}}, func(Update) error { return errors.New("an update") })
		}()
		synctest.Wait()
		go func() {
			other <- watching(t.Context(), b, watchInput{IDs: []int64{2}}, func(u Update) error {
				if u.Jobs[0].ID != 2 {
					return errors.New("another stream's job")
				}
				return errEnough
			})
		}()
		synctest.Wait()
		leave()
		require.NoError(t, <-ended)
		require.ErrorIs(t, <-other, errEnough)
	})
}

// The end of a job that ran is sent once, a job that was pruned is not sent, and the stream ends when no job
// runs. A stream that is open for days remembers no more than the last polls.
func TestWatch_SendsTheEndOfWhatRan(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := int64(0)
		b := polled(time.Second, func(ids []int64) (reading, error) {
			n++
			if n > 300 {
				return at(job.Processed, ids), nil
			}
			r := running(n)
			for _, id := range ids {
				if id != 2 { // 2 is pruned as soon as it is over
					r.states = append(r.states, JobState{Job: job.Job{ID: id, Status: job.Processed}})
				}
			}
			return r, nil
		}, nil)
		var updates [][]WatchedJob
		require.NoError(t, watching(t.Context(), b, watchInput{}, func(u Update) error {
			updates = append(updates, u.Jobs)
			require.LessOrEqual(t, len(b.jobs), pollsKept+2)
			return nil
		}))
		require.Len(t, updates, 301, "until no job runs")
		ids := func(jobs []WatchedJob) (ids []int64) {
			for _, j := range jobs {
				ids = append(ids, j.ID)
			}
			return ids
		}
		require.Equal(t, []int64{1}, ids(updates[0]))
		require.Equal(t, []int64{2, 1}, ids(updates[1]), "running jobs first")
		require.Equal(t, []int64{3}, ids(updates[2]))
		require.Equal(t, []int64{4, 3}, ids(updates[3]))
		require.Equal(t, job.Processed, updates[3][1].Status)
		require.Equal(t, []int64{300}, ids(updates[300]))
	})
}

// A job with an event is sent once, though it never ran; a job that only another stream names is not.
func TestWatch_SendsJobsWithEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := 0
		b := polled(time.Second, func(ids []int64) (reading, error) { return at(job.Aborted, ids), nil }, func() []newEvent {
			if n++; n == 3 {
				return []newEvent{
					abortEvent(7, "17"), {ControlEvent: job.ControlEvent{ID: 3, Subject: "lane", Name: "19", Kind: "paused"}, Act: true},
					{ControlEvent: job.ControlEvent{ID: 8, Subject: job.SubjectJob, Name: "17", Kind: "throttled"}},
				}
			}
			return nil
		})
		b.name([]int64{5}, 1) // by another stream
		var jobs, events []int64
		look := 0
		require.ErrorIs(t, watching(t.Context(), b, watchInput{Follow: true}, func(u Update) error {
			for _, one := range u.Jobs {
				jobs = append(jobs, int64(look), one.ID)
			}
			for _, one := range u.Events {
				events = append(events, int64(look), one.ID)
			}
			if look++; look == 5 {
				return errEnough
			}
			return nil
		}), errEnough)
		require.Equal(t, []int64{2, 17}, jobs)
		require.Equal(t, []int64{2, 7, 2, 3}, events, "acts, and not what runs do")
		n = 1 // the first update has no events
		require.ErrorIs(t, watching(t.Context(), b, watchInput{IDs: []int64{17}, Follow: true}, func(u Update) error {
			if len(u.Events) == 0 {
				return nil
			}
			require.Len(t, u.Events, 1, "of the named job")
			require.EqualValues(t, 7, u.Events[0].ID)
			return errEnough
		}), errEnough)
	})
}

// The stream hides from a viewer what the pages of a job to a radius hide.
func TestWatch_HidesWhoIsInside(t *testing.T) {
	t.Parallel()
	for role, hidden := range map[operation.Role]bool{operation.Viewer: true, operation.Author: true, operation.Operator: false, operation.Admin: false} {
		synctest.Test(t, func(t *testing.T) {
			n := 0
			b := polled(time.Second, func(ids []int64) (reading, error) {
				r := at(job.Aborted, ids)
				for i := range r.states {
					if r.states[i].ID == 17 {
						r.states[i].Audience.Kind = channels.KindRadius
					}
				}
				return r, nil
			}, func() (list []newEvent) {
				if n++; n == 3 {
					list = []newEvent{abortEvent(7, "17"), abortEvent(8, "18"), {ControlEvent: job.ControlEvent{ID: 9, Subject: job.SubjectDeadLetter, Name: "17"}, Act: true}}
					for i := range list {
						list[i].Detail = json.RawMessage(`{"n":1}`)
					}
				}
				return list
			})
			told := make(map[int64]bool)
			_, err := watchJobs(t.Context(), &operation.Env{Role: role, Broadcaster: b}, watchInput{Follow: true}, func(u Update) error {
				for _, e := range u.Events {
					told[e.ID] = string(e.Detail) == `{"n":1}`
				}
				if len(u.Events) > 0 {
					return errEnough
				}
				return nil
			})
			require.ErrorIs(t, err, errEnough)
			require.Equal(t, map[int64]bool{7: !hidden, 8: true, 9: !hidden}, told, role)
		})
	}
}

// A stream that is slower than the polls gets all that they found meanwhile.
func TestWatch_ASlowReaderMissesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		b := polled(time.Second, func(ids []int64) (reading, error) { return at(job.Processed, ids), nil },
			func() []newEvent { return []newEvent{abortEvent(n.Add(1), text.Int(n.Load()))} })
		go func() {
			_ = watching(t.Context(), b, watchInput{Follow: true}, func(Update) error { return nil })
		}()
		jobs, events, first, updates := make(map[int64]bool), make(map[int64]bool), int64(0), 0
		require.ErrorIs(t, watching(t.Context(), b, watchInput{Follow: true}, func(u Update) error {
			if updates == 0 {
				first = n.Load()
			}
			for _, one := range u.Jobs {
				jobs[one.ID] = true
			}
			for _, one := range u.Events {
				require.False(t, events[one.ID], "twice")
				events[one.ID] = true
			}
			if updates++; updates == 6 {
				return errEnough
			}
			<-time.After(4 * time.Second)
			return nil
		}), errEnough)
		for id := first + 1; id <= first+16; id++ {
			require.Contains(t, jobs, id, "since %d", first)
			require.Contains(t, events, id, "since %d", first)
		}
	})
}

// Events of a poll that failed afterwards are sent with the next.
func TestWatch_LosesNothingToAPollThatFailed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		polls := 0
		b := polled(time.Second, func(ids []int64) (reading, error) {
			if polls == 3 {
				return reading{}, &pgconn.PgError{Code: "57P01", Message: "terminating connection due to administrator command"}
			}
			return at(job.Aborted, ids), nil
		}, func() []newEvent {
			if polls++; polls == 3 {
				return []newEvent{abortEvent(7, "17")}
			}
			return nil
		})
		updates, jobs, events := 0, 0, 0
		require.ErrorIs(t, watching(t.Context(), b, watchInput{Follow: true}, func(u Update) error {
			jobs, events = jobs+len(u.Jobs), events+len(u.Events)
			if updates++; updates == 5 {
				return errEnough
			}
			return nil
		}), errEnough)
		require.Equal(t, 1, jobs)
		require.Equal(t, 1, events)
	})
}

// A change through this process is read at once; many changes are not as many polls.
func TestBroadcaster_PollsAtOnceAfterAChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var polls atomic.Int64
		b := polled(time.Minute, func(ids []int64) (reading, error) {
			polls.Add(1)
			return at(job.Pending, ids), nil
		}, nil)
		for range 3 {
			go func() {
				_ = watching(t.Context(), b, watchInput{IDs: []int64{1}}, func(Update) error { return nil })
			}()
		}
		<-time.After(time.Second)
		require.EqualValues(t, 1, polls.Load())
		b.Changed()
		synctest.Wait()
		require.EqualValues(t, 2, polls.Load(), "at once")
		for range 1_000 {
			<-time.After(time.Millisecond)
			b.Changed()
		}
		<-time.After(time.Second)
		require.LessOrEqual(t, polls.Load(), int64(2+11))
		require.Greater(t, polls.Load(), int64(2+8))
	})
}
