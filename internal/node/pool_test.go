package node

import (
	"math"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/migrations/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// A pooler makes its process numbers up: any 32 bits. Half of them are larger than
// PostgreSQL's type for its own.
func TestSession_BeginsBehindAPoolerWhateverNumberItMakesUp(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	pooler := dbtest.StartPgBouncer(t, db.DSN, nil)
	for range 100 {
		conn, err := pgx.Connect(t.Context(), pooler.DSN(db.Name))
		require.NoError(t, err)
		pid := conn.PgConn().PID()
		require.NoError(t, standardSession(t.Context(), conn), "%d", pid)
		require.NoError(t, conn.Close(t.Context()))
		if pid > math.MaxInt32 {
			return
		}
	}
	require.Fail(t, "it makes small numbers up only")
}
