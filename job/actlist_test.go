package job_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// pages reads all acts, page by page.
func (b *bundle) pages(t tester, f job.ActFilter) (all []job.ControlEvent, pages int) {
	t.Helper()
	for {
		list, next, err := b.jobs.Acts(t.Context(), f)
		require.NoError(t, err)
		require.LessOrEqual(t, len(list), f.Limit)
		all, pages = append(all, list...), pages+1
		if next == (job.ActPosition{}) {
			return all, pages
		}
		f.Before = next
	}
}

// Who did what is one story, whatever it was done to; what belfry did by itself is not in it.
func TestActs_TellOfEverything(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	b.exec(t, `INSERT INTO belfry.schedules (name, source, every, template) VALUES ('digest', 'database', '1 hour', '{"type": "inbox", "category": "operator_notice", "title": "x"}')`)
	b.exec(t, `INSERT INTO belfry.events (subject, name, kind, actor, detail) VALUES ('schedule', 'digest', 'fired', 'belfry', '{"occurrence": "2026-11-25T00:00:00Z"}')`)
	id := b.enqueue(t, job.Spec{})
	b.runDue(t, b.runner(t, "r"))
	stopped := b.enqueue(t, job.Spec{})
	_, err := b.jobs.PauseLane(t.Context(), "default", job.Act{Actor: "ann", Reason: "database move"})
	require.NoError(t, err)
	_, err = b.jobs.Abort(t.Context(), job.One(stopped), job.Act{Actor: "ben"})
	require.NoError(t, err)
	b.halt(t)
	b.lift(t)

	want := []string{"installation lifted", "installation halted", "job aborted", "lane paused", "job enqueued", "job enqueued", "schedule created"}
	for limit := 1; limit <= len(want)+1; limit++ {
		all, _ := b.pages(t, job.ActFilter{Limit: limit})
		var got []string
		for _, e := range all {
			if e.Kind != "adopted" { // whatever the database was born with
				got = append(got, e.Subject+" "+e.Kind)
			}
		}
		require.Equal(t, want, got, "by %d", limit)
	}
	count := func(f job.ActFilter) int {
		f.Limit = 100
		all, _ := b.pages(t, f)
		return len(all)
	}
	require.Equal(t, 3, count(job.ActFilter{Subject: "job"}))
	require.Equal(t, 1, count(job.ActFilter{Subject: "lane"}))
	require.Equal(t, 2, count(job.ActFilter{Actor: "ann"}))
	require.Equal(t, 1, count(job.ActFilter{Actor: "ben", Subject: "job"}))
	later := time.Now().Add(time.Hour)
	require.Zero(t, count(job.ActFilter{Since: &later}))
	all, _ := b.pages(t, job.ActFilter{Subject: "job", Limit: 100})
	require.Equal(t, text.Int(id), all[2].Name)
}

// A page looks at so many entries and no more; what passes a filter comes once all the same, in its
// order, though clocks of different sessions and the ids do not agree to the moment.
func TestActs_PagesLeaveNothingOut(t *testing.T) {
	t.Parallel()
	const n = 5_000
	b := setup(t, 1)
	id := b.enqueue(t, job.Spec{})
	dbtest.Past(t, b.db.Pool, `INSERT INTO belfry.job_events (job_id, at, kind, actor)
		SELECT `+text.Int(id)+`, now() - interval '1 day' + g * interval '1 second' + random() * interval '1.8 seconds',
		       CASE WHEN g % 5 = 0 THEN 'changed' ELSE 'claimed' END, CASE WHEN g % 10 = 0 THEN 'ann' ELSE 'r' END
		  FROM generate_series(1, 5000) g`)
	dbtest.Past(t, b.db.Pool, `INSERT INTO belfry.events (subject, name, at, kind, actor)
		SELECT 'lane', 'l' || g, now() - interval '2 days' + g * interval '25 seconds' + random() * interval '1.8 seconds', 'changed', CASE WHEN g % 50 = 0 THEN 'ann' ELSE 'r' END
		  FROM generate_series(1, 5000) g`)
	for _, limit := range []int{7, 100, 1000} {
		all, pages := b.pages(t, job.ActFilter{Actor: "ann", Limit: limit})
		require.Len(t, all, n/10+n/50, "by %d", limit)
		require.GreaterOrEqual(t, pages, 3, "no page looks at everything")
		seen := make(map[string]bool)
		for i, e := range all {
			require.False(t, seen[e.Subject+text.Int(e.ID)])
			seen[e.Subject+text.Int(e.ID)] = true
			if i > 0 {
				require.False(t, e.At.After(all[i-1].At.Add(2*time.Second)), "by %d, at %d", limit, i)
			}
		}
	}
}
