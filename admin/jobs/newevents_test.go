package jobs

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
)

// polledTexts returns new events as "SUBJECT NAME KIND", with a star if the event is an act.
func polledTexts(t *testing.T, n *newEvents, db *dbtest.DB) (texts []string) {
	t.Helper()
	list, err := n.poll(t.Context(), db.Pool)
	require.NoError(t, err)
	for _, e := range list {
		text := e.Subject + " " + e.Name + " " + e.Kind
		if e.Act {
			text += " *"
		}
		texts = append(texts, text)
	}
	return texts
}

// enqueued inserts a job.
func enqueued(t *testing.T, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
},
) (id int64) {
	t.Helper()
	require.NoError(t, db.QueryRow(t.Context(), `INSERT INTO belfry.jobs (type, category, title) VALUES ('inbox', 'operator_notice', 'x') RETURNING id`).Scan(&id))
	return id
}

func TestNewEvents_AreReturnedOnce(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	first := enqueued(t, db.Pool)
	var n newEvents
	require.Contains(t, polledTexts(t, &n, db), fmt.Sprintf("job %d enqueued *", first), "what was there before")
	require.Empty(t, polledTexts(t, &n, db))
	_, err := job.NewStore(db.Pool).Abort(t.Context(), job.One(first), job.Act{Actor: "ann"})
	require.NoError(t, err)
	_, err = job.NewStore(db.Pool).PauseLane(t.Context(), "news", job.Act{Actor: "ann"})
	require.NoError(t, err)
	require.Equal(t, []string{fmt.Sprintf("job %d aborted *", first), "lane news paused *"}, polledTexts(t, &n, db))
	require.Empty(t, polledTexts(t, &n, db))
}

// The lower of two ids is committed after the other was seen.
func TestNewEvents_FindWhatIsCommittedLate(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	var n newEvents
	polledTexts(t, &n, db)
	tx, err := db.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(t.Context()) //nolint:errcheck // it is committed
	late := enqueued(t, tx)
	soon := enqueued(t, db.Pool)
	require.Equal(t, []string{fmt.Sprintf("job %d enqueued *", soon)}, polledTexts(t, &n, db))
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, []string{fmt.Sprintf("job %d enqueued *", late)}, polledTexts(t, &n, db))
	for range 3 {
		_, err = db.Pool.Exec(t.Context(), `INSERT INTO belfry.job_events (job_id, kind, actor) SELECT $1, 'throttled', 'r' FROM generate_series(1, 500)`, soon)
		require.NoError(t, err)
		require.Len(t, polledTexts(t, &n, db), 500, "however many there are")
	}
}

// A poll reads a few hundred entries at the end of two indexes, however long the timelines are.
func TestNewEvents_AreReadFromTheEndOfTheirIndexes(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	id := enqueued(t, db.Pool)
	for _, sql := range []string{
		`INSERT INTO belfry.job_events (job_id, kind, actor) SELECT $1, 'throttled', 'r' FROM generate_series(1, 5000)`,
		`INSERT INTO belfry.events (subject, name, kind, actor) SELECT 'lane', $1::bigint::text, 'paused', 'ann' FROM generate_series(1, 5000)`,
	} {
		_, err := db.Pool.Exec(t.Context(), sql, id)
		require.NoError(t, err)
	}
	dbtest.Vacuum(t, db.Pool, "belfry.job_events", "belfry.events")
	rows, err := db.Pool.Query(t.Context(), "EXPLAIN (COSTS OFF) "+queries.newestEvents, pgx.StrictNamedArgs{"job": int64(5), "other": int64(5), "limit": newEventsMost})
	require.NoError(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	plan := strings.Join(lines, "\n")
	require.Contains(t, plan, "Index Scan Backward using job_events_pkey on job_events")
	require.Contains(t, plan, "Index Scan Backward using events_pkey on events")
	require.NotContains(t, plan, "Seq Scan")
}
