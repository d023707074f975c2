package node

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/db"
)

// odd is another value of each setting that db.Settings pins.
var odd = map[string]string{
	"row_security": "on", "standard_conforming_strings": "off", "backslash_quote": "on", "array_nulls": "off", "transform_null_equals": "on",
	"quote_all_identifiers": "on", "datestyle": "SQL, DMY", "intervalstyle": "sql_standard", "extra_float_digits": "-15", "bytea_output": "escape",
	"gin_fuzzy_search_limit": "1", "transaction_timeout": "3600000", "idle_session_timeout": "3600000",
	"default_transaction_isolation": "serializable", "default_transaction_deferrable": "on", "default_transaction_read_only": "on",
}

// inSessions are pinned for sessions only: BEGIN names isolation, access mode and deferrability, no
// transaction is idle for an hour, and a program's pool with a transaction_timeout is refused.
var inSessions = []string{"idle_session_timeout", "transaction_timeout", "default_transaction_isolation", "default_transaction_deferrable", "default_transaction_read_only"}

// No default of a role reaches belfry's transactions: not in a session of belfry's, not behind a
// pooler in transaction mode, and not in a pool that the program opened. A session of belfry's is
// free of them outside of transactions too.
func TestSession_EverySettingIsPinnedWhateverTheDefaultsAre(t *testing.T) {
	t.Parallel()
	server := dbtest.New(t)
	role := server.Role(t, "GRANT USAGE ON SCHEMA belfry TO :role")
	require.Len(t, db.Settings(), len(odd), "each has another value here")
	var names []string
	for name, value := range odd {
		var known bool
		require.NoError(t, server.Pool.QueryRow(t.Context(), "SELECT current_setting($1, true) IS NOT NULL", name).Scan(&known))
		if !known {
			continue
		}
		names = append(names, name)
		_, err := server.Pool.Exec(t.Context(), "ALTER ROLE "+pgx.Identifier{role.User}.Sanitize()+" SET "+name+" = '"+value+"'")
		require.NoError(t, err)
	}
	c := DefaultConfig().Database
	own, err := OpenPool(t.Context(), role.DSN, c, false, zerolog.Nop())
	require.NoError(t, err)
	defer own.Close()
	pooler := dbtest.StartPgBouncer(t, role.DSN, nil)
	pooled, err := OpenPool(t.Context(), pooler.DSN(role.Name), c, false, zerolog.Nop())
	require.NoError(t, err)
	defer pooled.Close()
	foreign, err := pgxpool.New(t.Context(), role.DSN)
	require.NoError(t, err)
	defer foreign.Close()
	values := func(q interface {
		QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	}) map[string]string {
		out := map[string]string{}
		for _, name := range names {
			var value string
			require.NoError(t, q.QueryRow(t.Context(), "SELECT current_setting($1)", name).Scan(&value))
			out[name] = value
		}
		return out
	}
	pinned := map[string]string{}
	for _, s := range db.Settings() {
		pinned[s.Name] = s.Value
	}
	defaults := values(foreign)
	for way, pool := range map[string]*pgxpool.Pool{"own": own, "pooled": pooled, "foreign": foreign} {
		require.NoError(t, db.InTx(t.Context(), pool, db.Options{Limit: statementTimeout, Reads: true}, func(_ context.Context, tx pgx.Tx) error {
			for name, value := range values(tx) {
				if !slices.Contains(inSessions, name) {
					require.NotEqual(t, defaults[name], value, "%s: %s", way, name)
					require.Equal(t, pinned[name], value, "%s: %s", way, name)
				}
			}
			return nil
		}))
	}
	for name, value := range values(own) {
		require.NotEqual(t, defaults[name], value, name)
		require.Equal(t, pinned[name], value, name)
	}
	refused, err := OddSettings(t.Context(), foreign)
	require.NoError(t, err)
	for _, s := range db.Settings() {
		if s.Foreign && s.Name != "transaction_timeout" {
			require.Contains(t, refused, s.Name)
		}
	}
}

// What belfry cannot work with ends a start in one sentence.
func TestSession_RefusesDefaultsThatItCannotSet(t *testing.T) {
	t.Parallel()
	server := dbtest.New(t)
	for setting, words := range map[string]string{
		"session_replication_role = replica": "session_replication_role is replica",
		"search_path = belfry, pg_catalog":   "leave pg_catalog out of it",
	} {
		role := server.Role(t, "GRANT USAGE ON SCHEMA belfry TO :role", "ALTER ROLE :role SET "+setting)
		pool, err := OpenPool(t.Context(), role.DSN, DefaultConfig().Database, false, zerolog.Nop())
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		err = Ping(t.Context(), pool)
		require.ErrorAs(t, err, new(*UnfitError), setting)
		require.ErrorContains(t, err, words)
		require.NotContains(t, strings.ToLower(err.Error()), "reach")
	}
}
