package admintest

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/access"
	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/job"
)

// Reserve gives an API three connections that are reserved for stops. Tokens are looked up on the connections of the
// request, so that a lookup waits for one of them.
func Reserve(t *testing.T, c *api.Options) {
	t.Helper()
	config := c.Env.DB.Config()
	config.MaxConns = 3
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	env := c.Env
	env.DB, env.Jobs = pool, job.NewStore(pool)
	authenticate := c.Authenticate
	on := func(pool *pgxpool.Pool) func(context.Context, string) (access.Identity, error) {
		return func(ctx context.Context, token string) (access.Identity, error) {
			ctx, cancel := context.WithTimeout(ctx, Patience)
			defer cancel()
			if err := pool.Ping(ctx); err != nil {
				return access.Identity{}, err
			}
			return authenticate(ctx, token)
		}
	}
	c.Authenticate, c.Stops = on(c.Env.DB), &api.Reserve{Env: env, Authenticate: on(pool)}
}
