package api_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/belfryhq/belfry/admin/operation"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/text"
)

// endless is an operation whose statement does not end by itself, within a deadline here and a limit
// of the server.
func endless(name string, deadline, limit time.Duration) operation.Operation {
	o := operation.Operation{Name: name, Short: "Sleep", Role: operation.Viewer, Deadline: deadline}
	return operation.Define(o, func(ctx context.Context, env *operation.Env, _ operation.None) (none operation.None, err error) {
		err = db.InTx(ctx, env.DB, db.Options{Limit: limit, Grace: time.Minute, Reads: true}, func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `SELECT pg_sleep(600)`)
			return err
		})
		return none, err
	}, func(*text.Doc, operation.None, operation.None) {})
}

// A request that takes longer than its operation may is answered, and leaves no query behind,
// whoever is the first to end it: this process by its deadline, or the server by its own.
func TestAPI_RequestsOverTheirTimeLeaveNoQueryRunning(t *testing.T) {
	t.Parallel()
	const short = 200 * time.Millisecond
	b := setup(t, func(c *api.Options) {
		c.Operations = []operation.Operation{endless("here", short, 10*time.Minute), endless("there", 10*time.Minute, short)}
	})
	for _, path := range []string{"/here", "/there"} {
		a := b.call(t, "viewer", "GET", path, "")
		require.Equal(t, http.StatusServiceUnavailable, a.status, a.text)
		p := a.problem(t)
		require.Equal(t, db.KindTooSlow, p.Kind)
		require.Equal(t, "this took too long and was ended", p.Detail)
		require.NotEmpty(t, a.header.Get("Retry-After"))
		require.Eventually(t, func() bool {
			var running int
			require.NoError(t, b.db.Pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'SELECT pg_sleep%' AND state <> 'idle'`).Scan(&running))
			return running == 0
		}, patience, 20*time.Millisecond, path)
	}
}
