package api_test

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/belfryhq/belfry/admin/access"
	"github.com/belfryhq/belfry/admin/operation"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/api"
)

// A token is made, used and revoked over HTTP; whatever is not one is refused alike.
func TestAPI_Tokens(t *testing.T) {
	t.Parallel()
	var pool *pgxpool.Pool
	b := setup(t, func(c *api.Options) {
		pool = c.Env.DB
		c.Authenticate = func(ctx context.Context, secret string) (access.Identity, error) {
			if secret == "root" {
				return access.Identity{Name: "root", Role: operation.Admin}, nil
			}
			return access.Authenticate(ctx, pool, secret, true)
		}
	})
	a := b.call(t, "root", "POST", "/tokens/ci/create", `{"role": "operator", "expires_at": "+1h"}`)
	require.Equal(t, http.StatusOK, a.status, a.text)
	var token access.NewToken
	require.NoError(t, json.Unmarshal([]byte(a.text), &token))
	require.Equal(t, "root", token.CreatedBy)
	a = b.call(t, token.Secret, "POST", "/lanes/night/pause", "")
	require.Equal(t, http.StatusOK, a.status, a.text)
	require.Contains(t, a.text, `"paused_by":"ci"`)
	a = b.call(t, token.Secret, "POST", "/tokens/mine/create", `{"role": "admin"}`)
	require.Equal(t, http.StatusForbidden, a.status, "nobody makes himself more")
	require.Equal(t, http.StatusOK, b.call(t, "", "GET", "/lanes", "", "Authorization", "bearer "+token.Secret).status)

	refused := func(header string) {
		t.Helper()
		a := b.call(t, "", "GET", "/lanes", "", "Authorization", header)
		require.Equal(t, http.StatusUnauthorized, a.status, header)
		require.Contains(t, a.header.Get("WWW-Authenticate"), "Bearer")
		require.NotContains(t, a.text, token.Secret)
	}
	forged := []byte(token.Secret)
	forged[len(forged)-2] ^= 1
	for _, header := range []string{"Bearer " + string(forged), "Bearer", "Bearer ", "Basic " + token.Secret, token.Secret, "Bearer  " + token.Secret} {
		refused(header)
	}
	require.Equal(t, http.StatusOK, b.call(t, "root", "POST", "/tokens/ci/revoke", "").status)
	refused("Bearer " + token.Secret)

	locked := false
	for i := 0; i < 1000 && !locked; i++ { // one more is allowed every six seconds
		a = b.call(t, "nobody", "GET", "/lanes", "")
		locked = a.status == http.StatusTooManyRequests
	}
	require.True(t, locked)
	require.NotEmpty(t, a.header.Get("Retry-After"))
	a.problem(t)
	require.Equal(t, http.StatusOK, b.call(t, "root", "GET", "/lanes", "").status, "a good token goes on")
}

// A database that is away is no reason to say that a token is not good.
func TestAPI_TokenOfADatabaseThatIsAway(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Options) {
		c.Authenticate = func(ctx context.Context, _ string) (access.Identity, error) {
			pool, err := pgxpool.New(ctx, "postgres://127.0.0.1:1/x")
			if err != nil {
				return access.Identity{}, err
			}
			defer pool.Close()
			return access.Authenticate(ctx, pool, "belfry_x", false)
		}
	})
	a := b.call(t, "belfry_x", "GET", "/lanes", "")
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	require.NotEmpty(t, a.header.Get("Retry-After"))
	require.NotContains(t, a.problem(t).Detail, "127.0.0.1")
}
