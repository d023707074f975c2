package schedule_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/job/schedule"
)

// Invariants 1 and 2 over random histories: ticks at random distances by nodes that die
// at random points, queries that break and are fixed, pauses. In the end every
// occurrence has one job, or was skipped and counted, or fell into a pause.
func TestFire_RandomHistories(t *testing.T) {
	t.Parallel()
	histories(t, 0, 4)
}

// More of them.
func TestModel_FireRandomHistories(t *testing.T) {
	t.Parallel()
	histories(t, 4, 16)
}

func histories(t *testing.T, from, to uint64) {
	t.Helper()
	b := setup(t)
	b.exec(t, `CREATE TABLE broken (yes boolean)`)
	b.exec(t, `INSERT INTO broken VALUES (false)`)
	for seed := from; seed < to; seed++ {
		h := &history{bundle: b, random: rand.New(rand.NewPCG(seed, 7)), name: fmt.Sprint("history-", seed)}
		h.run(t)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

type history struct {
	*bundle
	random *rand.Rand
	name   string
	every  time.Duration
	armed  time.Time // the model's: occurrences after it are expected
	want   int64     // those of the time before armed
}

func (h *history) run(t *testing.T) {
	t.Helper()
	h.every = time.Duration(1+h.random.IntN(30)) * time.Minute
	d := popular()
	d.Name, d.Cron, d.Every, d.After = h.name, "", fmt.Sprintf("%ds", int(h.every.Seconds())), "10m"
	d.Missed = []schedule.Policy{schedule.Skip, schedule.Once, schedule.All}[h.random.IntN(3)]
	d.Query = `SELECT CASE WHEN yes THEN '' ELSE 'x' END AS title FROM broken`
	h.put(t, d, "05-01 00:00:00")
	h.armed = h.now
	for range 30 {
		h.now = h.now.Add(time.Duration(h.random.Int64N(int64(40 * time.Minute)))).Truncate(time.Second)
		switch h.random.IntN(8) {
		case 0:
			h.exec(t, `UPDATE broken SET yes = $1`, h.random.IntN(2) == 0)
		case 1:
			h.pause(t)
		}
		dies := []string{"", "", "locked", "enqueued", "commit", "committed"}[h.random.IntN(6)]
		_, err := h.firer(schedule.WithFailpoint(func(_ context.Context, point string) error {
			if point == dies {
				return errCrash
			}
			return nil
		})).FireDue(context.Background())
		if err != nil {
			require.ErrorIs(t, err, errCrash)
		}
	}
	h.exec(t, `UPDATE broken SET yes = false`)
	h.now = h.now.Add(2 * time.Minute) // past every retry
	h.settle(t)
	h.check(t)
	require.NoError(t, h.store.Remove(context.Background(), h.name, operator))
}

// pause lets everything due happen, then pauses for a while.
func (h *history) pause(t *testing.T) {
	t.Helper()
	h.exec(t, `UPDATE broken SET yes = false`)
	h.exec(t, `UPDATE belfry.schedules SET retry_at = NULL`)
	h.settle(t)
	h.want += h.due()
	_, err := h.store.Pause(context.Background(), h.name, operator)
	require.NoError(t, err)
	h.now = h.now.Add(time.Duration(h.random.IntN(7200)) * time.Second)
	fired, err := h.firer().FireDue(context.Background())
	require.NoError(t, err)
	require.Empty(t, fired.Occurrences)
	_, err = h.store.Resume(context.Background(), h.name, operator)
	require.NoError(t, err)
	h.exec(t, `UPDATE belfry.schedules SET armed_at = $2 WHERE name = $1`, h.name, h.now)
	h.armed = h.now
}

// settle ticks until nothing is due: a tick takes a hundred occurrences.
func (h *history) settle(t *testing.T) {
	t.Helper()
	for {
		fired, err := h.firer().FireDue(context.Background())
		require.NoError(t, err)
		if len(fired.Occurrences) == 0 && fired.Skipped == 0 {
			return
		}
	}
}

// due counts the occurrences from armed to now.
func (h *history) due() int64 {
	created := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	return int64(h.now.Sub(created)/h.every) - int64(h.armed.Sub(created)/h.every)
}

func (h *history) check(t *testing.T) {
	t.Helper()
	s := h.get(t, h.name)
	require.Equal(t, h.want+h.due(), s.Fired+s.Skipped, "%s: every occurrence is fired or counted", h.name)
	require.True(t, s.NextAt.After(h.now))
	require.Equal(t, s.Fired, one[int64](t, h.bundle, `SELECT count(*) FROM belfry.jobs WHERE requested_by = 'schedule ' || $1::text`, h.name))
	require.Equal(t, s.Fired, one[int64](t, h.bundle, `SELECT count(DISTINCT schedule_at) FROM belfry.jobs WHERE requested_by = 'schedule ' || $1::text`, h.name))
	require.Equal(t, s.Fired, one[int64](t, h.bundle, `SELECT count(*) FROM belfry.events WHERE name = $1 AND kind = 'fired'`, h.name))
	require.Equal(t, s.Skipped, one[int64](t, h.bundle, `SELECT coalesce(sum((detail ->> 'count')::bigint), 0)::bigint FROM belfry.events WHERE name = $1 AND kind = 'skipped'`, h.name))
}
