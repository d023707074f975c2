package access

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
)

// An open page asks again and again whether its session is valid: by an index, however many there are.
func TestSessions_AreReadByAnIndex(t *testing.T) {
	t.Parallel()
	base := dbtest.New(t)
	for _, sql := range []string{
		`INSERT INTO belfry.users (name, role, created_by, password) VALUES ('ann', 'operator', 'x', '$argon2id$v=19$m=19456,t=2,p=1$MDEyMzQ1Njc4OWFiY2RlZg$MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY')`,
		`INSERT INTO belfry.sessions (kind, sha256, name, role, via, address, expires_at)
			SELECT 'session', sha256(g::text::bytea), 'ann', 'operator', 'password', '192.0.2.1', now() + interval '1 hour' FROM generate_series(1, 5000) g`,
	} {
		_, err := base.Pool.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	dbtest.Vacuum(t, base.Pool, "belfry.sessions")
	rows, err := base.Pool.Query(t.Context(), "EXPLAIN (COSTS OFF) "+queries.sessionsPeek,
		pgx.NamedArgs{"sha256": [][]byte{make([]byte, 32), make([]byte, 31)}, "idle": "1 hour"})
	require.NoError(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	plan := strings.Join(lines, "\n")
	require.Contains(t, plan, "sessions_sha256_key")
	require.NotContains(t, plan, "Seq Scan on sessions ")
}
