package dbtest

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// Recount sets belfry.job_progress to the counts of belfry.messages, for tests that write or change
// messages themselves. Relays may run: a transaction that changes messages also changes counts, so that with the table
// locked, messages and counts of each are both committed, or neither.
func Recount(t require.TestingT, pool *pgxpool.Pool) {
	_, err := pool.Exec(context.Background(), `BEGIN;
		LOCK TABLE belfry.job_deliveries IN EXCLUSIVE MODE;
		DELETE FROM belfry.job_deliveries;
		INSERT INTO belfry.job_deliveries (job_id, relay, written, sent, dead, cancelled)
		SELECT m.job_id, '', count(*), count(*) FILTER (WHERE m.status = 'SENT'), count(*) FILTER (WHERE m.status = 'DEAD'),
		       count(*) FILTER (WHERE m.status = 'CANCELLED')
		  FROM belfry.messages m WHERE m.job_id > 0 GROUP BY m.job_id;
		COMMIT`)
	require.NoError(t, err)
}

// Miscounted lists the jobs whose belfry.job_progress differs from the counts of belfry.messages in the
// same snapshot, without jobs whose messages retention has deleted.
func Miscounted(t require.TestingT, pool *pgxpool.Pool) []string {
	list, err := Miscount(context.Background(), pool)
	require.NoError(t, err)
	return list
}

// Miscount is Miscounted for tests in which the database may be down.
func Miscount(ctx context.Context, pool *pgxpool.Pool) (list []string, err error) {
	//sql:allow for tests of several packages
	err = pool.QueryRow(ctx, `SELECT array_agg(format('job %s: %s, counted %s', p.job_id, p, m) ORDER BY p.job_id)
		  FROM belfry.job_progress p
		 CROSS JOIN LATERAL (SELECT count(*) AS messages, count(*) FILTER (WHERE m.status = 'SENT') AS sent,
		        count(*) FILTER (WHERE m.status = 'DEAD') AS dead,
		                            count(*) FILTER (WHERE m.status = 'CANCELLED') AS cancelled,
		                            count(*) FILTER (WHERE m.status IN ('PENDING', 'QUEUED', 'PROCESSING')) AS waiting
		                       FROM belfry.messages m WHERE m.job_id = p.job_id) m
		 WHERE (p.messages, p.sent, p.dead, p.cancelled, p.waiting)
		       IS DISTINCT FROM (m.messages, m.sent, m.dead, m.cancelled, m.waiting)`).Scan(&list)
	return list, err
}

// RequireStock requires PostgreSQL's default settings of the planner and jit.
func RequireStock(t require.TestingT, pool *pgxpool.Pool) {
	var changed []string
	//sql:allow for tests of several packages
	require.NoError(t, pool.QueryRow(context.Background(), `SELECT array_agg(name) FROM pg_settings
		 WHERE (category LIKE 'Query Tuning%' OR name = 'work_mem') AND source <> 'default' OR name = 'jit' AND setting <> 'on'`).Scan(&changed))
	require.Empty(t, changed)
}
