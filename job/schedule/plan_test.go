package schedule

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Every due occurrence is dropped or fired, in order and once, as the policy says:
// compared with a walk over all of them.
func TestDecide_AgreesWithAWalkOverAll(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		every := time.Duration(rapid.IntRange(1, 4000).Draw(t, "every")) * time.Second
		table := interval{anchor: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), every: every}
		now := table.anchor.Add(time.Duration(rapid.IntRange(4000, 400_000).Draw(t, "now")) * time.Second / 10)
		var due []time.Time
		for o := table.next(table.anchor); !o.After(now); o = table.next(o) {
			due = append(due, o)
		}
		if len(due) == 0 || len(due) >= maxCounted {
			return
		}
		r := rules{
			missed:      rapid.SampledFrom([]Policy{Skip, Once, All}).Draw(t, "missed"),
			missedAfter: time.Duration(rapid.IntRange(1, 5000).Draw(t, "missed after")) * time.Second,
		}
		if rapid.Bool().Draw(t, "expires") {
			r.expiresAfter = time.Duration(rapid.IntRange(1, 9000).Draw(t, "expires after")) * time.Second
		}

		var want []time.Time
		var expired, missed, onTime []time.Time
		for _, o := range due {
			switch {
			case r.expiresAfter > 0 && !o.Add(r.expiresAfter).After(now):
				expired = append(expired, o)
			case now.Sub(o) > r.missedAfter:
				missed = append(missed, o)
			default:
				onTime = append(onTime, o)
			}
		}
		dropped := len(missed)
		switch {
		case r.missed == All:
			want, dropped = append(want, missed...), 0
		case r.missed == Once && len(missed) > 0 && len(onTime) == 0:
			want, dropped = append(want, missed[len(missed)-1]), len(missed)-1
		}
		want = append(want, onTime...)
		want = want[:min(len(want), maxFirings)]

		d := decide(table, due[0], now, r)
		require.Equal(t, len(expired), d.expired)
		require.Equal(t, dropped, d.missed)
		require.Len(t, d.fire, len(want))
		for i, o := range want {
			require.Equal(t, o, d.fire[i])
		}
		first := table.next(now) // the first that is neither dropped nor older than what is
		if skipped := d.expired + d.missed; skipped < len(due) {
			first = due[skipped]
		}
		require.Equal(t, first, d.next)
	})
}

// Years of downtime cost one tick a bounded amount of work, and nothing is forgotten.
func TestDecide_TakesALongAbsenceInSteps(t *testing.T) {
	t.Parallel()
	table := interval{anchor: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC), every: time.Minute}
	now := table.anchor.Add(25_000 * time.Minute)
	next, skipped, ticks := table.next(table.anchor), 0, 0
	for {
		d := decide(table, next, now, rules{missed: Once, missedAfter: 30 * time.Second})
		next, skipped, ticks = d.next, skipped+d.missed, ticks+1
		require.LessOrEqual(t, d.missed, maxCounted)
		if len(d.fire) > 0 {
			require.Equal(t, []time.Time{now}, d.fire)
			break
		}
	}
	require.Equal(t, 24_999, skipped)
	require.Equal(t, 3, ticks)
}

func TestLast_FindsTheNewestBefore(t *testing.T) {
	t.Parallel()
	table := mustCron(t, "*/10 3 1 1 *", time.UTC)
	from := table.next(time.Date(2020, 6, 1, 0, 0, 0, 0, time.UTC))
	require.Equal(t, "2026-01-01T03:50:00Z", last(table, from, time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)).Format(time.RFC3339))
	require.Equal(t, "2026-01-01T03:00:00Z", last(table, from, time.Date(2026, 1, 1, 3, 10, 0, 0, time.UTC)).Format(time.RFC3339))
	require.Equal(t, from, last(table, from, from.Add(1)))
	off := from.Add(time.Hour + 17) // set by hand: it counts as one, though it is no occurrence
	require.Equal(t, off, last(table, off, off.Add(time.Hour)))
}
