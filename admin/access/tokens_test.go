package access_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/access"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/dev/admintest"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/job"
)

// created makes a token through its operation.
func created(t *testing.T, env *operation.Env, name, role string) access.NewToken {
	t.Helper()
	out, err := admintest.Do(t, env, "tokens create", "name", name, "role", role, "reason", "because")
	require.NoError(t, err)
	return out.(access.NewToken)
}

func revoked(t *testing.T, env *operation.Env, name string) error {
	t.Helper()
	_, err := admintest.Do(t, env, "tokens revoke", "name", name)
	return err
}

func TestTokens_AreGoodUntilTheyExpireOrAreRevoked(t *testing.T) {
	t.Parallel()
	base := dbtest.New(t)
	env := &operation.Env{DB: base.Pool, Jobs: job.NewStore(base.Pool), Role: operation.Admin, Actor: "ann@host"}
	token := created(t, env, "ci", "operator")
	require.Regexp(t, `^belfry_[A-Za-z0-9_-]{43}$`, token.Secret)
	require.Equal(t, "ann@host", token.CreatedBy)
	require.WithinRange(t, token.ExpiresAt, time.Now().Add(89*24*time.Hour), time.Now().Add(91*24*time.Hour))
	for range 2 {
		who, err := access.Authenticate(t.Context(), base.Pool, token.Secret, true)
		require.NoError(t, err)
		require.Equal(t, access.Identity{Name: "ci", Role: operation.Operator}, who)
	}
	for _, secret := range []string{"", "belfry_", "ci", token.Secret + "x", token.Secret[:49], strings.ToUpper(token.Secret), " " + token.Secret, "belfry_" + strings.Repeat("x", 5000), "belfry_\x00"} {
		_, err := access.Authenticate(t.Context(), base.Pool, secret, true)
		require.ErrorIs(t, err, access.ErrToken, "%q", secret)
	}
	other := created(t, env, "other", "viewer")
	require.NoError(t, revoked(t, env, "other"))
	require.NoError(t, revoked(t, env, "other"), "it is, already")
	require.ErrorIs(t, revoked(t, env, "nobody"), access.ErrNoToken)
	_, err := access.Authenticate(t.Context(), base.Pool, other.Secret, true)
	require.ErrorIs(t, err, access.ErrToken)
	_, err = base.Pool.Exec(t.Context(), `UPDATE belfry.tokens SET created_at = now() - interval '2 days', expires_at = now() - interval '1 second' WHERE name = 'ci'`)
	require.NoError(t, err)
	_, err = access.Authenticate(t.Context(), base.Pool, token.Secret, true)
	require.ErrorIs(t, err, access.ErrToken)

	var dump string
	require.NoError(t, base.Pool.QueryRow(t.Context(), `SELECT coalesce(string_agg(to_jsonb(e)::text, ''), '') || (SELECT string_agg(to_jsonb(t)::text, '') FROM belfry.tokens t) FROM belfry.events e`).Scan(&dump))
	require.NotContains(t, dump, strings.TrimPrefix(token.Secret, "belfry_"), "the secret is nowhere")
	events, err := env.Jobs.ControlEvents(t.Context(), "token", "other", 0, 0)
	require.NoError(t, err)
	require.Len(t, events, 2, "made, and revoked once")
	require.Equal(t, []string{"created", "ann@host", "because"}, []string{events[1].Kind, events[1].Actor, events[1].Reason})
	require.NotContains(t, string(events[1].Detail), "sha256")
	list, err := admintest.Operation(t, "tokens list").Run(t.Context(), env, admintest.Operation(t, "tokens list").NewInput())
	require.NoError(t, err)
	text, err := json.Marshal(list)
	require.NoError(t, err)
	require.NotContains(t, string(text), "secret")
	require.Contains(t, string(text), `"name":"other","role":"viewer"`)
}

// That a token is used is written once a minute, and not at all where nothing is marked.
func TestTokens_LastUseIsRightToAMinute(t *testing.T) {
	t.Parallel()
	base := dbtest.New(t)
	env := &operation.Env{DB: base.Pool, Role: operation.Admin}
	token := created(t, env, "ci", "viewer")
	used := func(mark bool) (at *time.Time) {
		t.Helper()
		_, err := access.Authenticate(t.Context(), base.Pool, token.Secret, mark)
		require.NoError(t, err)
		require.NoError(t, base.Pool.QueryRow(t.Context(), `SELECT last_used_at FROM belfry.tokens`).Scan(&at))
		return at
	}
	require.Nil(t, used(false))
	require.NotNil(t, used(true))
	_, err := base.Pool.Exec(t.Context(), `UPDATE belfry.tokens SET last_used_at = now() - interval '61 seconds'`)
	require.NoError(t, err)
	old := used(false)
	require.NotEqual(t, old, used(true))
	_, err = base.Pool.Exec(t.Context(), `UPDATE belfry.tokens SET last_used_at = now() + interval '1 hour'`) // as one of this minute, on any machine
	require.NoError(t, err)
	require.Equal(t, used(false), used(true))
	var events int
	require.NoError(t, base.Pool.QueryRow(t.Context(), `SELECT count(*) FROM belfry.events WHERE subject = 'token'`).Scan(&events))
	require.Equal(t, 1, events, "to be used is no event")
}

func TestTokens_RefuseWhatIsNotAllowed(t *testing.T) {
	t.Parallel()
	base := dbtest.New(t)
	env := &operation.Env{DB: base.Pool, Role: operation.Admin}
	o := admintest.Operation(t, "tokens create")
	require.EqualError(t, admintest.Set(t, o, o.NewInput(), "role", "root"), "allowed values: viewer, author, operator, admin")
	try := func(name, expires string) error {
		in := o.NewInput()
		require.NoError(t, admintest.Set(t, o, in, "name", name))
		require.NoError(t, admintest.Set(t, o, in, "role", "viewer"))
		require.NoError(t, admintest.Set(t, o, in, "expires_at", expires))
		_, err := o.Run(t.Context(), env, in)
		return err
	}
	require.ErrorContains(t, try("Ann", "+1h"), `name: 'Ann' is not the name of a token; allowed values: 1 to 63 of a-z, 0-9`)
	require.ErrorContains(t, try("ann", "2020-01-01T00:00:00Z"), "expires_at: is not allowed; allowed values: after now, and within 366 days")
	require.ErrorContains(t, try("ann", "+9000h"), "expires_at: is not allowed")
	require.NoError(t, try("ann", "+1h"))
	require.ErrorIs(t, try("ann", "+1h"), access.ErrTokenExists)
	require.Equal(t, db.KindConflict, db.KindOf(try("ann", "+1h")))
	env.Role = operation.Operator
	require.ErrorContains(t, try("bob", "+1h"), "tokens create needs the role admin; this is operator")
	_, err := o.Run(t.Context(), &operation.Env{DB: base.Pool}, o.NewInput())
	require.ErrorContains(t, err, "this is no role", "without a role nothing is done")
}

// Whoever reads every table does not see the hashes.
// What the API keeps of requests, people and sessions is seen by who serves it, and not by a role
// that reads every table.
func TestRoles_SecretsAreForWhoServes(t *testing.T) {
	t.Parallel()
	base := dbtest.New(t)
	_, err := base.Pool.Exec(t.Context(), `
		INSERT INTO belfry.requests (who, key, fingerprint, ends_at, status, answer) VALUES ('ann', 'k', sha256(''), now(), 200, 'what ann was answered');
		INSERT INTO belfry.users (name, role, identity, password_at, created_by) VALUES ('oidc:kim', 'viewer', 'https://provider kim', NULL, 'ann');
		INSERT INTO belfry.sessions (kind, name, role, via, sha256, expires_at) VALUES ('session', 'oidc:kim', 'viewer', 'oidc', sha256(''), now() + interval '1 hour')`)
	require.NoError(t, err)
	for _, table := range []string{"requests", "users", "sessions"} {
		seen := func(grant string) (n int) {
			role := base.Role(t, "GRANT USAGE ON SCHEMA belfry TO :role", grant)
			require.NoError(t, role.Pool.QueryRow(t.Context(), `SELECT count(*) FROM belfry.`+table).Scan(&n), table)
			return n
		}
		require.Equal(t, 0, seen("GRANT SELECT ON ALL TABLES IN SCHEMA belfry TO :role"), table)
		require.Equal(t, 1, seen("GRANT SELECT, INSERT, UPDATE, DELETE ON belfry."+table+" TO :role"), table)
	}
}

func TestTokens_HashesAreForWhoOperates(t *testing.T) {
	t.Parallel()
	base := dbtest.New(t)
	created(t, &operation.Env{DB: base.Pool, Role: operation.Admin}, "ci", "viewer")
	count := func(grant string) (n int) {
		role := base.Role(t, "GRANT USAGE ON SCHEMA belfry TO :role", grant)
		require.NoError(t, role.Pool.QueryRow(t.Context(), `SELECT count(*) FROM belfry.tokens`).Scan(&n))
		return n
	}
	require.Equal(t, 0, count("GRANT SELECT ON ALL TABLES IN SCHEMA belfry TO :role"))
	require.Equal(t, 1, count("GRANT SELECT, INSERT, UPDATE ON belfry.tokens TO :role"))
	role := base.Role(t, "GRANT USAGE ON SCHEMA belfry TO :role", "GRANT SELECT ON belfry.tokens TO :role")
	_, err := role.Pool.Exec(t.Context(), `UPDATE belfry.tokens SET role = 'admin'`)
	require.ErrorContains(t, err, "permission denied")
}
