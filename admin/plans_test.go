package admin

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
)

// Every page of the console asks for the status, and every open one whether its session is good: both
// read by indexes, however much there is.
func TestQueries_OfEveryPageReadByIndexes(t *testing.T) {
	t.Parallel()
	base := dbtest.New(t)
	dbtest.Past(t, base.Pool, `INSERT INTO belfry.jobs (id, type, category, title, status, abort_requested, finished_at, idempotency_key, route)
		SELECT nextval('belfry.jobs_id_seq'), 'inbox', 'popular_content', 'old', 'ABORTED', true, now(), 'k' || g, '{}' FROM generate_series(1, 5000) g`)
	dbtest.Past(t, base.Pool, `INSERT INTO belfry.job_events (job_id, kind, actor) SELECT id, 'aborted', 'ann' FROM belfry.jobs`)
	for _, sql := range []string{
		`INSERT INTO belfry.events (subject, name, kind, actor) SELECT 'lane', 'news', 'paused', 'ann' FROM generate_series(1, 5000)`,
		`INSERT INTO belfry.users (name, role, created_by, password) VALUES ('ann', 'operator', 'x', '$argon2id$v=19$m=19456,t=2,p=1$MDEyMzQ1Njc4OWFiY2RlZg$MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY')`,
		`INSERT INTO belfry.sessions (kind, sha256, name, role, via, address, expires_at)
			SELECT 'session', sha256(g::text::bytea), 'ann', 'operator', 'password', '192.0.2.1', now() + interval '1 hour' FROM generate_series(1, 5000) g`,
	} {
		_, err := base.Pool.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	dbtest.Vacuum(t, base.Pool, "belfry.jobs", "belfry.job_events", "belfry.events", "belfry.sessions")
	for statement, want := range map[string][]string{
		queries.statusRead:   {"jobs_one_running_per_lane", "job_events_pkey", "events_pkey"},
		queries.sessionsLook: {"sessions_sha256_key"},
		queries.segmentUsers: {"jobs_status_idx"},
	} {
		rows, err := base.Pool.Query(t.Context(), "EXPLAIN (COSTS OFF) "+statement, pgx.NamedArgs{
			"limit": 100, "segment": "beta", "looks": segmentLooks, "sha256": [][]byte{make([]byte, 32), make([]byte, 31)}, "idle": "1 hour",
		})
		require.NoError(t, err)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		plan := strings.Join(lines, "\n")
		for _, index := range want {
			require.Contains(t, plan, index)
		}
		for _, large := range []string{"jobs", "job_events", "events", "sessions"} {
			require.NotContains(t, plan, "Seq Scan on "+large+" ")
		}
	}
}
