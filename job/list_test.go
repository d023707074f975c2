package job_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
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
	require.Len(t, list, 2)
	require.Equal(t, []string{"hour 10"}, titles(job.Filter{Since: at(10), Until: at(13), BeforeID: list[1].ID}))

	_, err = db.Pool.Exec(t.Context(), `UPDATE belfry.jobs SET needs_approval = true WHERE title IN ('hour 11', 'hour 50')`)
	require.NoError(t, err)
	require.Equal(t, []string{"hour 11"}, titles(job.Filter{Awaiting: true, Since: at(10), Until: at(13)}))

	require.Equal(t, []string{"hour 91", "hour 90", "hour 9"}, titles(job.Filter{Text: "HOUR 9", Until: at(92)}))
	require.Equal(t, []string{"hour 50"}, titles(job.Filter{Text: "5", Awaiting: true}))
	require.Empty(t, titles(job.Filter{Text: "hour_"}), "no character has a meaning of its own")
}

// A list of a time has all jobs of its first transaction, also those that were changed since.
func TestList_OfATimeBeginsWithAWholeTransaction(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	store := job.NewStore(db.Pool)
	_, err := db.Pool.Exec(t.Context(), `INSERT INTO belfry.jobs (type, category, title) SELECT 'inbox', 'operator_notice', 'No. ' || g FROM generate_series(1, 3) g`)
	require.NoError(t, err)
	_, err = store.Abort(t.Context(), job.One(1), job.Act{Actor: "ann"})
	require.NoError(t, err)
	list, err := store.List(t.Context(), job.Filter{Since: new(time.Now().Add(-time.Hour))})
	require.NoError(t, err)
	require.Len(t, list, 3)
}

// twoKinds are jobs in two lanes: those of night are all inbox and question, those of day all push
// and popular_content, but for one in a thousand. A third of them is PROCESSED.
const twoKinds = `
ALTER TABLE belfry.jobs DISABLE TRIGGER USER;
INSERT INTO belfry.jobs (id, type, category, title, lane, schedule_at, route, created_at)
SELECT g, CASE WHEN g % 2 = 0 OR g % 1000 = 7 THEN 'inbox' ELSE 'push' END, CASE WHEN g % 2 = 0 THEN 'question' ELSE 'popular_content' END, 'x',
       CASE WHEN g % 2 = 0 THEN 'night' ELSE 'day' END, now(), '{}', now() - (20000 - g) * interval '1 minute'
  FROM generate_series(1, 20000) g;
UPDATE belfry.jobs SET status = 'PROCESSED', started_at = now(), finished_at = now() WHERE id % 3 = 0;
ALTER TABLE belfry.jobs ENABLE TRIGGER USER;`

// A page with several filters looks at a bounded number of jobs, though many are of each kind and
// few or none of all, and the pages together have what a list has.
func TestLong_ListPagesOfSeveralFiltersAreBounded(t *testing.T) {
	t.Parallel()
	const mostLooks = 2000
	db := dbtest.New(t)
	store := job.NewStore(db.Pool)
	_, err := db.Pool.Exec(t.Context(), twoKinds)
	require.NoError(t, err)
	since := time.Now().Add(-100 * time.Hour)
	for _, f := range []job.Filter{
		{Lane: "night", Type: "push"}, {Lane: "night", Category: "popular_content"}, {Category: "question", Type: "push"},
		{Lane: "day", Type: "inbox"}, {Lane: "day", Category: "popular_content"}, {Lane: "none", Type: "inbox"},
		{Lane: "day", Category: "popular_content", Type: "inbox"}, {Lane: "night", Category: "question", Type: "push"},
		{Lane: "day", Type: "inbox", Statuses: []job.Status{job.Processed}}, {Lane: "day", Type: "inbox", Since: &since}, {Lane: "day", Type: "inbox", Until: &since},
	} {
		rows, err := db.Pool.Query(t.Context(), `SELECT id FROM belfry.jobs WHERE $1 IN ('', lane) AND $2 IN ('', category) AND $3 IN ('', type)
			AND (cardinality($4::text[]) = 0 OR status = ANY ($4)) AND created_at >= coalesce($5::timestamptz, '-infinity') AND created_at < coalesce($6::timestamptz, 'infinity') ORDER BY id DESC`,
			f.Lane, f.Category, f.Type, append([]job.Status{}, f.Statuses...), f.Since, f.Until)
		require.NoError(t, err)
		want, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		require.NoError(t, err)
		var got []int64
		pages := 0
		for f.Limit = 500; ; pages++ {
			list, lookedTo, err := store.Page(t.Context(), f)
			require.NoError(t, err)
			require.LessOrEqual(t, len(list), f.Limit)
			for _, j := range list {
				got = append(got, j.ID)
			}
			if f.BeforeID = lookedTo; lookedTo == 0 {
				if len(list) < f.Limit {
					break
				}
				f.BeforeID = list[len(list)-1].ID
			}
		}
		require.Equal(t, want, append([]int64{}, got...), "%+v", f)
		require.LessOrEqual(t, pages, 2+20_000/min(mostLooks, f.Limit), "%+v", f)
	}
	for _, analysed := range []bool{false, true} {
		if analysed {
			_, err = db.Pool.Exec(t.Context(), "VACUUM ANALYZE belfry.jobs")
			require.NoError(t, err)
		}
		for _, by := range []string{"lane", "category", "type"} {
			plan := explained(t, db, "JobsLooked", pgx.StrictNamedArgs{
				"before_id": int64(1 << 40), "lowest": int64(1), "statuses": []string{"PENDING", "PROCESSED"}, "by": by, "looks": mostLooks,
				"lane": "night", "category": "popular_content", "type": "push", "text": nil, "group_id": nil, "since": nil, "until": nil,
			})
			require.LessOrEqual(t, plan.looked("jobs"), 2*mostLooks, "by %s: %s", by, plan)
		}
	}
	list, lookedTo, err := store.Page(t.Context(), job.Filter{Lane: "night", Type: "push", Limit: 10})
	require.NoError(t, err)
	require.Empty(t, list)
	require.NotZero(t, lookedTo)
	list, lookedTo, err = store.Page(t.Context(), job.Filter{Lane: "night", Type: "inbox", Limit: 10})
	require.NoError(t, err)
	require.Len(t, list, 10)
	require.Zero(t, lookedTo)
}

// A page of jobs with long lists of recipients was 200 MB in memory. Here data stands for the lists: it takes the race
// detector no time to decode.
func TestList_EndsAPageBySize(t *testing.T) {
	t.Parallel()
	db := dbtest.Reused(t, 10)
	_, err := db.Pool.Exec(t.Context(), `INSERT INTO belfry.jobs (type, category, title) SELECT 'inbox', 'operator_notice', 'x' FROM generate_series(1, 18)`)
	require.NoError(t, err)
	dbtest.Past(t, db.Pool, `UPDATE belfry.jobs SET data = jsonb_build_object('x', repeat('x', 1020000))`)
	store := job.NewStore(db.Pool)
	for _, awaiting := range []bool{false, true} {
		list, lookedTo, err := store.Page(t.Context(), job.Filter{Awaiting: awaiting})
		require.NoError(t, err)
		require.Len(t, list, 16, "16 MB")
		require.Equal(t, list[15].ID, lookedTo)
		list, lookedTo, err = store.Page(t.Context(), job.Filter{Awaiting: awaiting, BeforeID: lookedTo})
		require.NoError(t, err)
		require.Len(t, list, 2)
		require.Zero(t, lookedTo)
		all, err := store.List(t.Context(), job.Filter{Awaiting: awaiting})
		require.NoError(t, err)
		require.Len(t, all, 18)
		_, err = db.Pool.Exec(t.Context(), `UPDATE belfry.jobs SET needs_approval = true`)
		require.NoError(t, err)
	}
}
