package dbtest

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// Vacuum vacuums and analyses tables, named with their schema, until their pages are
// all-visible, on which the choice of an index-only scan depends. A connection that is just
// starting, to any database of the server, or autovacuum can keep one VACUUM from that. A
// page that was never written never is, so that one in fifty may be left.
func Vacuum(t testing.TB, pool *pgxpool.Pool, tables ...string) {
	t.Helper()
	for _, table := range tables {
		for began, visible := time.Now(), false; !visible; require.Less(t, time.Since(began), time.Minute, table) {
			//sql:allow a table's name is no argument
			_, err := pool.Exec(t.Context(), `VACUUM (ANALYZE) `+table)
			require.NoError(t, err)
			require.NoError(t, pool.QueryRow(t.Context(), queries.visiblePages, pgx.StrictNamedArgs{"table": table}).Scan(&visible))
		}
	}
}
