package relay_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a cap lets through goes out in the first drain, and the rest ends there, however
// many jobs are due to the same channels at once and whoever has them in flight.
func TestLong_DrainTwoDueJobsSentNoneUnderACap(t *testing.T) {
	t.Parallel()
	for _, relays := range []int{1, 2} {
		b := setup(t, 200)
		b.exec(t, `UPDATE belfry.categories SET cap = 1, cap_window = '24 hours' WHERE name = 'operator_notice'`)
		b.job(t, "a", 1, 200)
		b.job(t, "b", 1, 200)
		s := &script{}
		var all sync.WaitGroup
		for n := range relays {
			all.Go(func() { b.drain(t, config([]string{"r1", "r2"}[n]), push(s)) })
		}
		all.Wait()
		require.Equal(t, map[string]int{"SENT": 200, "CANCELLED capped": 200}, b.statuses(t), "%d relays", relays)
		require.Len(t, s.all(), 200)
	}
}

// A drain ends although a category has more jobs in the window of its cap than are counted, and delivers the
// messages without a cap.
func TestLong_DrainLeavesWhatACapCannotCount(t *testing.T) {
	t.Parallel()
	b := setup(t, 200)
	b.exec(t, `UPDATE belfry.categories SET cap = 1, cap_window = '24 hours' WHERE name = 'operator_notice'`)
	b.past(t, `INSERT INTO belfry.jobs (id, type, category, title, route, started_at, delivered_at)
		SELECT nextval('belfry.jobs_id_seq'), 'push', 'operator_notice', 'x', '{push}', now(), now() FROM generate_series(1, 50000)`)
	b.job(t, "a", 1, 200)
	for channel := range 50 {
		b.activity(t, 1+channel)
	}
	b.drain(t, config("r"), push(&script{}))
	require.Equal(t, map[string]int{"SENT": 50, "PENDING uncounted": 200}, b.statuses(t))
}
