package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/job/schedule"
)

// Invariant 1: eight nodes look at the same moment, moment after moment.
func TestFire_EightNodesFireEachOccurrenceOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := popular()
	d.Cron, d.Every, d.Missed = "", "1m", schedule.All
	d.Template.Type, d.Template.Types = "", []string{"inbox", "push"}
	b.put(t, d, "05-01 12:00:00")
	const nodes, minutes = 8, 15
	for minute := 1; minute <= minutes; minute++ {
		b.now = at(t, "05-01 12:00:00").Add(time.Duration(minute) * time.Minute)
		found := make([][]string, nodes)
		errs := make([]error, nodes)
		start := make(chan struct{})
		var all sync.WaitGroup
		for node := range nodes {
			all.Go(func() {
				f := b.firer(schedule.WithName(fmt.Sprint("node ", node)))
				<-start
				fired, err := f.FireDue(context.Background())
				found[node], errs[node] = occurrences(fired), err
			})
		}
		close(start)
		all.Wait()
		require.NoError(t, errors.Join(errs...))
		require.Equal(t, []string{b.now.Format("01-02 15:04:05")}, slices.Concat(found...))
	}
	require.Len(t, b.keys(t), 2*minutes)
	require.Equal(t, minutes, one[int](t, b, `SELECT count(DISTINCT idempotency_key)::int FROM belfry.jobs`))
	require.Equal(t, minutes, one[int](t, b, `SELECT count(*)::int FROM belfry.events WHERE kind = 'fired' AND actor LIKE 'node _'`))
}

// A row that another node holds is skipped, not waited for.
func TestFire_ALockedScheduleKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := popular()
	other.Name = "other"
	b.put(t, other, "05-01 08:00:00")
	b.put(t, popular(), "05-01 08:00:00")
	b.now = at(t, "05-01 09:00:00")
	reached, leave := make(chan struct{}), make(chan struct{})
	var once sync.Once
	slow := b.firer(schedule.WithFailpoint(func(_ context.Context, point string) error {
		if point == "enqueued" {
			once.Do(func() { close(reached); <-leave })
		}
		return nil
	}))
	ended := make(chan error, 1)
	go func() {
		_, err := slow.FireDue(context.Background())
		ended <- err
	}()
	<-reached // one of them is locked now
	fired, err := b.firer().FireDue(context.Background())
	require.NoError(t, err)
	require.Len(t, fired.Occurrences, 1)
	close(leave)
	require.NoError(t, <-ended)
	require.Len(t, b.keys(t), 2)
}

// What changed between the look and the lock counts: a pause, a failure that another
// node has just met, a removal.
func TestFire_TheLockLooksAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, c := range []struct {
		name   string
		happen func()
		left   int // failures
	}{
		{"pause", func() { b.exec(t, `SELECT belfry.pause_schedule('pause')`) }, 0},
		{"fail", func() {
			_, err := b.firer().FireDue(context.Background())
			require.NoError(t, err)
		}, 1},
		{"remove", func() { b.exec(t, `DELETE FROM belfry.schedules WHERE name = 'remove'`) }, 0},
	} {
		d := popular()
		d.Name, d.Query = c.name, `SELECT '' AS title`
		b.put(t, d, "05-01 08:00:00")
		b.now = at(t, "05-01 09:00:00")
		fired, err := b.firer(schedule.WithFailpoint(func(_ context.Context, point string) error {
			if point == "due" {
				c.happen()
			}
			return nil
		})).FireDue(context.Background())
		require.NoError(t, err)
		require.Equal(t, schedule.Fired{}, fired, c.name)
		require.Equal(t, c.left, one[int](t, b, `SELECT coalesce(sum(failures), 0)::int FROM belfry.schedules WHERE name = $1`, c.name))
		b.exec(t, `DELETE FROM belfry.schedules`)
	}
}

var errCrash = errors.New("crash")

// Invariant 1: a node that dies at any point leaves everything or nothing, and the
// next node's look completes it: never twice, never lost. Its end is a context that is
// cancelled, a server connection that is terminated, or an error out of nowhere; after
// "committed" it is a reply that got lost.
func TestFire_ADeathAtAnyPoint(t *testing.T) {
	t.Parallel()
	deaths(t, map[string][]string{"locked": {"error"}, "enqueued": {"terminate"}, "commit": {"cancel"}, "committed": {"terminate"}})
}

// Each death, at each point.
func TestFault_FireEachDeathAtAnyPoint(t *testing.T) {
	t.Parallel()
	each := []string{"error", "cancel", "terminate"}
	deaths(t, map[string][]string{"locked": each, "enqueued": each, "commit": each, "committed": each})
}

// deaths has a node die while it fires, and another go on, by the points where it dies.
func deaths(t *testing.T, points map[string][]string) {
	t.Helper()
	b := setup(t)
	for point, ways := range points {
		for _, death := range ways {
			b.inOrder(t, point+" "+death, func(t *testing.T) {
				d := popular()
				d.Query = `SELECT 'Row ' || g AS title FROM generate_series(1, 3) g`
				b.put(t, d, "05-01 08:00:00")
				b.now = at(t, "05-01 09:00:00")
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				pool, err := pgxpool.New(ctx, b.db.DSN+"&application_name=victim")
				require.NoError(t, err)
				defer pool.Close()
				doomed := schedule.NewFirer(pool, schedule.WithClock(func() time.Time { return b.now }),
					schedule.WithFailpoint(func(_ context.Context, at string) error {
						if at != point {
							return nil
						}
						switch death {
						case "cancel":
							cancel()
						case "terminate":
							b.exec(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'victim' AND datname = current_database()`)
							return nil
						}
						return errCrash
					}))
				_, err = doomed.FireDue(ctx)
				if point != "committed" || death != "terminate" { // idle by then
					require.Error(t, err)
				}
				want := 0
				if point == "committed" {
					want = 3
				}
				require.Len(t, b.keys(t), want)
				// The dead one's connection may hold the row a moment longer.
				tick := time.NewTicker(time.Millisecond)
				defer tick.Stop()
				for began := time.Now(); b.get(t, "popular").Fired == 0; <-tick.C {
					require.Less(t, time.Since(began), time.Minute)
					_, err = b.firer().FireDue(context.Background())
					require.NoError(t, err)
				}
				fired, err := b.firer().FireDue(context.Background())
				require.NoError(t, err)
				require.Empty(t, fired.Occurrences)
				key := "schedule:popular:2026-05-01T09:00:00Z"
				require.Equal(t, []string{key + ":1", key + ":2", key + ":3"}, b.keys(t))
				require.EqualValues(t, 1, b.get(t, "popular").Fired)
				require.Equal(t, []string{"created", "fired"}, b.kinds(t, "popular"))
			})
		}
	}
}

// The second line of defence: a schedule that is set back fires no occurrence twice.
func TestFire_SetBackItFindsItsJobs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(t, popular(), "05-01 08:00:00")
	first := b.fire(t, "05-01 09:00:00")
	b.exec(t, `UPDATE belfry.schedules SET next_at = '2026-05-01 09:00Z'`)
	second := b.fire(t, "05-01 09:01:00")
	require.Equal(t, first, second)
	require.Len(t, b.keys(t), 1)
}

// Without a server the error says so.
func TestStore_AnUnreachableDatabaseIsNamed(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(context.Background(), "postgres://127.0.0.1:1/none?connect_timeout=1")
	require.NoError(t, err)
	defer pool.Close()
	_, err = schedule.NewStore(pool).List(context.Background())
	require.ErrorIs(t, err, job.ErrUnreachable)
	_, err = schedule.NewFirer(pool).FireDue(context.Background())
	require.ErrorIs(t, err, job.ErrUnreachable)
}

// A role that fires schedules may lock their table. An operator's change ends after 5 seconds, before the deadline of
// an API's client, and names the session.
func TestStore_NamesTheSessionThatLocksTheTable(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `INSERT INTO belfry.schedules (name, cron, template) VALUES ('a', '@daily', '{"type": "push", "category": "operator_notice", "title": "x"}')`)
	run := b.db.Role(t, `GRANT USAGE ON SCHEMA belfry TO :role`, `GRANT SELECT, INSERT, UPDATE ON belfry.schedules TO :role`)
	tx, err := run.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(context.WithoutCancel(t.Context()))) }()
	var pid int
	require.NoError(t, tx.QueryRow(t.Context(), `SELECT pg_backend_pid()`).Scan(&pid))
	_, err = tx.Exec(t.Context(), `LOCK TABLE belfry.schedules`)
	require.NoError(t, err)
	began := time.Now()
	_, err = b.store.Pause(t.Context(), "a", job.Act{Actor: "ann"})
	require.ErrorContains(t, err, fmt.Sprintf("schedule a is locked by session %d of %s", pid, run.User))
	require.Less(t, time.Since(began), 11*time.Second, "the wait of 12 seconds before")
}
