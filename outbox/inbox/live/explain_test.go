package live

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
)

// The polls read ranges of indexes, however many activities, jobs and notifications there are.
func TestLive_PollsReadIndexes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	dbtest.Past(t, b.DB.Pool, `INSERT INTO belfry.activities (id, channel_id, title, route, inbox)
		SELECT -g, 1 + g % 300, 'x', '{}', true FROM generate_series(1, 20000) g`)
	dbtest.Past(t, b.DB.Pool, `INSERT INTO belfry.notifications (channel_id, arrival)
		SELECT 1 + g % 300, g FROM generate_series(1, 25000) g`)
	dbtest.Past(t, b.DB.Pool, `INSERT INTO belfry.jobs
		(id, type, category, title, route, status, arrival, started_at, finished_at, walked_at, fence)
		SELECT nextval('belfry.jobs_id_seq'), 'inbox', 'operator_notice', 'x', '{push}', 'PROCESSED', g, now(), now(), now(), 1
		  FROM generate_series(20001, 25000) g`)
	dbtest.Vacuum(t, b.DB.Pool, "belfry.notifications_0", "belfry.jobs", "belfry.activities")
	reads := func(name string, most int64, sql string, args ...any) {
		tx, err := b.DB.Pool.Begin(t.Context())
		require.NoError(t, err)
		var before, after int64
		const reads = `SELECT sum(pg_stat_get_xact_tuples_fetched(c.oid) + pg_stat_get_xact_tuples_returned(c.oid))::bigint
			FROM pg_class c WHERE c.relnamespace = 'belfry'::regnamespace`
		require.NoError(t, tx.QueryRow(t.Context(), reads).Scan(&before))
		_, err = tx.Exec(t.Context(), sql, args...)
		require.NoError(t, err)
		require.NoError(t, tx.QueryRow(t.Context(), reads).Scan(&after))
		require.NoError(t, tx.Rollback(t.Context()))
		t.Log(name, after-before)
		require.LessOrEqual(t, after-before, most, name)
	}
	for call, most := range map[string]int64{
		`inbox_arrivals(24990, '{}', 4000)`:                                                40,
		`inbox_arrivals(24990, ARRAY(SELECT generate_series(1, 24000, 48)::bigint), 4000)`: 2100,
		`inbox_walks('{24000}')`:                                                           10,
		`inbox_reached(24000, ARRAY(SELECT generate_series(1, 300)::bigint))`:              300,
		`inbox_since(2, 24000, '{5}', 101)`:                                                20,
	} {
		reads(call, most, `SELECT belfry.`+call)
	}
	b.Exec(t, `INSERT INTO belfry.opt_outs (channel_id, category, opted_out_at) VALUES (2, 'activity', now() - interval '1 day')`)
	reads("hidden", 100, queries.entryList, pgx.StrictNamedArgs{"channels": []int64{2, 2}, "arrivals": []int64{19801, 19501}})
}
