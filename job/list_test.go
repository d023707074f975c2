package job_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/migrations/dbtest"
)

// A list of a time has the jobs of it, page by page, and what was inserted late as well: by a
// transaction that had been open for less than an hour.
func TestList_OfATimeHasWhatWasRequestedThen(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	store := job.NewStore(db.Pool)
	start := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	dbtest.Past(t, db.Pool, `INSERT INTO belfry.jobs (id, type, category, title, route, created_at)
		SELECT nextval('belfry.jobs_id_seq'), 'inbox', 'operator_notice', 'hour ' || g, '{}', '2026-03-01Z'::timestamptz + make_interval(hours => g) FROM generate_series(0, 99) g`)
	dbtest.Past(t, db.Pool, `INSERT INTO belfry.jobs (id, type, category, title, route, created_at)
		SELECT nextval('belfry.jobs_id_seq'), 'inbox', 'operator_notice', 'late', '{}', '2026-03-05 02:30Z'::timestamptz`) // after hour 99, which is 03:00
	titles := func(f job.Filter) (titles []string) {
		list, err := store.List(t.Context(), f)
		require.NoError(t, err)
		for _, j := range list {
			titles = append(titles, j.Title)
		}
		return titles
	}
	at := func(hour int) *time.Time { return new(start.Add(time.Duration(hour) * time.Hour)) }
	require.Equal(t, []string{"hour 12", "hour 11", "hour 10"}, titles(job.Filter{Since: at(10), Until: at(13)}))
	require.Equal(t, []string{"late", "hour 99"}, titles(job.Filter{Since: new(at(98).Add(time.Minute))}))
	require.Equal(t, []string{"late", "hour 98"}, titles(job.Filter{Since: at(98), Until: at(99)}))
	require.Equal(t, []string{"hour 1", "hour 0"}, titles(job.Filter{Until: at(2), Statuses: []job.Status{job.Pending}}))
	require.Empty(t, titles(job.Filter{Since: at(500)}))
	require.Empty(t, titles(job.Filter{Until: at(0)}))
	require.Empty(t, titles(job.Filter{Since: at(10), Until: at(13), Statuses: []job.Status{job.Failed}}))
	list, err := store.List(t.Context(), job.Filter{Since: at(10), Until: at(13), Limit: 2})
	require.NoError(t, err)
	require.Equal(t, []string{"hour 10"}, titles(job.Filter{Since: at(10), Until: at(13), BeforeID: list[1].ID}))

	_, err = db.Pool.Exec(t.Context(), `UPDATE belfry.jobs SET needs_approval = true WHERE title IN ('hour 11', 'hour 50')`)
	require.NoError(t, err)
	require.Equal(t, []string{"hour 11"}, titles(job.Filter{Awaiting: true, Since: at(10), Until: at(13)}))
}
