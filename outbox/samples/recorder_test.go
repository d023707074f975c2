package samples_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/samples"
)

// accepts answers each statement by the process's clock.
func accepts(int) (time.Time, bool, error) { return time.Now(), false, nil }

// sent reports n sent messages of job 1.
func sent(r *samples.Recorder, n int) {
	r.Relay(map[string]string{"fcm": "push"}).Recorded(outbox.Recording{Recorded: outbox.RecordedSent, JobID: 1, Sender: "fcm"}, n)
}

// One statement for each minute with events, whatever their number, and none for a minute without.
func TestRecorder_WritesOncePerMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, written := samples.NewFake(accepts)
		stop := r.Start()
		time.Sleep(time.Second / 20) //nolint:forbidigo // the clock is fake
		for range 5 * 600 {          // ten a second, for five minutes
			sent(r, 1)
			time.Sleep(time.Second / 10) //nolint:forbidigo // the clock is fake
		}
		time.Sleep(10 * time.Minute) //nolint:forbidigo // the clock is fake
		sent(r, 1)
		stop()
		list := written()
		require.Len(t, list, 6)
		for i, w := range list[:5] {
			require.Equal(t, []string{"job 1 0 600", "sender fcm 0 600"}, w.Rows, i)
			require.Less(t, w.At.Second(), 5, "soon after the minute")
		}
		require.Equal(t, []string{"job 1 0 1", "sender fcm 0 1"}, list[5].Rows, "the stop writes the rest")
	})
}

// Minutes begin with the database's.
func TestRecorder_FollowsTheDatabasesClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const ahead = 25 * time.Second
		r, written := samples.NewFake(func(int) (time.Time, bool, error) { return time.Now().Add(ahead), false, nil })
		stop := r.Start()
		for range 180 {
			sent(r, 1)
			time.Sleep(time.Second) //nolint:forbidigo // the clock is fake
		}
		stop()
		for _, w := range written()[1:3] {
			require.Less(t, w.At.Add(ahead).Second(), 5)
		}
	})
}

// Figures wait for a database that fails, for ten minutes at most, and are not written again once they may be
// stored.
func TestRecorder_KeepsFiguresOfAFailureAndDropsUnknownOnes(t *testing.T) {
	t.Parallel()
	run := func(minutes int, answer func(n int) (time.Time, bool, error)) (list []samples.Written) {
		synctest.Test(t, func(*testing.T) {
			r, written := samples.NewFake(answer)
			stop := r.Start()
			time.Sleep(30 * time.Second) //nolint:forbidigo // the clock is fake
			for range minutes {
				sent(r, 1)
				time.Sleep(time.Minute) //nolint:forbidigo // the clock is fake
			}
			time.Sleep(10 * time.Second) //nolint:forbidigo // the clock is fake
			stop()
			list = written()
		})
		return list
	}
	failure := errors.New("no")
	list := run(3, func(n int) (time.Time, bool, error) {
		if n < 3 {
			return time.Time{}, false, failure
		}
		return time.Now(), false, nil
	})
	require.Len(t, list, 3)
	require.Equal(t, 3, list[2].Minutes, "the third statement has all minutes")
	list = run(15, func(int) (time.Time, bool, error) { return time.Time{}, false, failure })
	require.Equal(t, 10, list[len(list)-1].Minutes, "ten minutes at most")
	list = run(3, func(int) (time.Time, bool, error) { return time.Time{}, true, failure })
	require.Equal(t, 1, list[2].Minutes, "an unknown outcome is not repeated")
}

// The rows of a run are those that its job's row has more than at the claim, each once: whatever a lost COMMIT or a
// crash of the server did, and none of another run.
func TestRecorder_CountsEachRowOfARunOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, written := samples.NewFake(accepts)
		stop, walk := r.Start(), r.Walk()
		event := func(kind string, fence, rows int64) {
			walk(job.Progress{Event: kind, Job: job.Job{ID: 3, Lane: "night", Fence: fence, RowsWritten: rows}})
		}
		event(job.EventResumed, 2, 1000)
		event("chunk", 2, 1100)
		event(job.EventThrottled, 2, 1200) // a COMMIT whose answer was lost
		event("chunk", 2, 1150)            // a crash of the server lost rows
		event("chunk", 2, 1250)
		event("lost", 3, 9000) // another run's
		stop()
		require.Equal(t, []string{"job 3 250 0", "lane night 250 0"}, written()[0].Rows)
	})
}

// The busiest jobs have rows of their own, and the rest is added up.
func TestRecorder_BoundsTheSubjects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, written := samples.NewFake(accepts)
		stop := r.Start()
		observer := r.Relay(nil)
		for id := range 20_000 {
			observer.Recorded(outbox.Recording{Recorded: outbox.RecordedSent, JobID: int64(id + 1)}, 1+id%1000)
		}
		require.Equal(t, 10_001, samples.Jobs(r), "I13")
		stop()
		rows := written()[0].Rows
		require.Len(t, rows, samples.Busiest+1)
		sum, rest := 0, 0
		for _, row := range rows {
			var name string
			var n, zero int
			_, err := fmt.Sscanf(row, "job %s %d %d", &name, &zero, &n)
			require.NoError(t, err)
			if sum += n; name == samples.Rest {
				rest = n
				continue
			}
			require.GreaterOrEqual(t, n, 980)
		}
		require.Equal(t, 20*(1000*1001/2), sum)
		require.NotZero(t, rest)
		require.False(t, strings.HasPrefix(rows[0], "sender"), "no sender is known")
	})
}

// Activities belong to no job, and their messages count for their sender.
func TestRecorder_CountsActivitiesBySender(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, written := samples.NewFake(accepts)
		stop := r.Start()
		r.Relay(map[string]string{"fcm": "push"}).Recorded(outbox.Recording{Recorded: outbox.RecordedSent, Sender: "fcm"}, 4)
		stop()
		require.Equal(t, []string{"sender fcm 0 4"}, written()[0].Rows)
	})
}

func TestDurations_Percentile(t *testing.T) {
	t.Parallel()
	require.Zero(t, samples.P95())
	require.EqualValues(t, 1, samples.P95(time.Microsecond))
	var list []time.Duration
	for ms := range 1000 {
		list = append(list, time.Duration(ms+1)*time.Millisecond)
	}
	require.InDelta(t, 950, samples.P95(list...), 190)
	require.GreaterOrEqual(t, samples.P95(list...), int64(950))
	require.Positive(t, samples.P95(1000*time.Hour))
}

// A database that does not answer delays neither the events nor the stop for long.
func TestRecorder_NeverBlocks(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	r := b.recorder(20 * time.Millisecond)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	tx, err := b.DB.Pool.Begin(ctx)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, `LOCK TABLE belfry.samples`)
	require.NoError(t, err)
	stop := r.Start()
	sent(r, 1)
	b.Eventually(t, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`)
	sent(r, 2)
	began := time.Now()
	stop()
	require.Less(t, time.Since(began), 20*time.Second)
	require.NoError(t, tx.Rollback(ctx))
	require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.samples`))
}
