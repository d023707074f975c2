package channels

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
)

// TestCheck_NamesEveryFault has one relation per case and its faults in a golden
// file: what an operator reads in `belfry doctor`.
func TestCheck_NamesEveryFault(t *testing.T) {
	t.Parallel()
	const users = `CREATE TABLE users (uid bigint PRIMARY KEY, name text UNIQUE, os text, off boolean, lon float8, lat float8);
		CREATE INDEX ON users USING gist (point(lon, lat));
		INSERT INTO users SELECT i, i, 'ios', false, 1, 1 FROM generate_series(1, 100) i;`
	tests := []struct{ name, relation, setUp string }{
		{"own_table", DefaultRelation, ``},
		{"no_such_relation", "app.nowhere", ``},
		{"no_such_schema_table", "nowhere", ``},
		{"sequence", "counter", `CREATE SEQUENCE counter`},
		{"good_view", "people", users + `CREATE VIEW people AS SELECT uid AS id, name AS external_id, os AS platform, NOT off AS active, point(lon, lat) AS location FROM users`},
		{"good_table_without_options", "plain", `CREATE TABLE plain (id bigint PRIMARY KEY, external_id text UNIQUE, platform text, active boolean)`},
		{"good_partitions", "parts", `CREATE TABLE parts (id bigint PRIMARY KEY, external_id text, platform text, active boolean) PARTITION BY RANGE (id);
			CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (1000); CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (1000) TO (2000);
			CREATE INDEX ON parts (external_id)`},
		{"lowest_bigint", "low", `CREATE TABLE low (id bigint PRIMARY KEY, external_id text UNIQUE, platform text, active boolean); INSERT INTO low VALUES (-9223372036854775808, 'a', 'ios', true)`},
		{"good_longest_ids", "long", `CREATE TABLE long (id bigint PRIMARY KEY, external_id text UNIQUE, platform text, active boolean);
			INSERT INTO long VALUES (-9223372036854775807, 'a', 'ios', true), (9223372036854775807, 'b', 'ios', true)`},
		{"good_int_table", "accounts", `CREATE TABLE accounts (id int PRIMARY KEY, external_id text UNIQUE, platform text, active boolean, addresses jsonb)`},
		{"good_smallint_view", "shops", `CREATE TABLE shop (sid smallint PRIMARY KEY, name text UNIQUE); CREATE VIEW shops AS SELECT sid AS id, name AS external_id, 'web'::text AS platform, true AS active FROM shop`},
		{"view_that_casts_its_key", "cast_accounts", `CREATE TABLE accounts (aid int PRIMARY KEY, name text UNIQUE); INSERT INTO accounts SELECT i, i FROM generate_series(1, 100) i;
			CREATE VIEW cast_accounts AS SELECT aid::bigint AS id, name AS external_id, 'web'::text AS platform, true AS active FROM accounts`},
		{"everything_missing", "bare", `CREATE TABLE bare (name text)`},
		{"no_index", "heap", `CREATE TABLE heap (id bigint, external_id text, platform text, active boolean, location point)`},
		{"wrong_types", "odd", `CREATE TYPE os AS ENUM ('ios'); CREATE TABLE odd (id uuid PRIMARY KEY, external_id uuid UNIQUE, platform os, active integer, location text,
			locale integer, time_zone interval, attributes json, addresses hstore_like[]); `},
		{"partial_unique_index", "part", `CREATE TABLE part (id bigint NOT NULL, external_id text UNIQUE, platform text, active boolean); CREATE UNIQUE INDEX ON part (id) WHERE active; CREATE INDEX ON part (id)`},
		{"unique_with_another_column", "pair", `CREATE TABLE pair (tenant int, id bigint, external_id text UNIQUE, platform text, active boolean, PRIMARY KEY (id, tenant))`},
		{"nullable_id", "loose", `CREATE TABLE loose (id bigint UNIQUE, external_id text UNIQUE, platform text, active boolean)`},
		{"view_that_repeats", "twice", users + `CREATE VIEW twice AS SELECT uid AS id, name AS external_id, os AS platform, true AS active FROM users UNION ALL SELECT uid, name, os, true FROM users`},
		{"view_that_computes_its_key", "computed", users + `CREATE VIEW computed AS SELECT uid + 1 AS id, name AS external_id, os AS platform, true AS active FROM users`},
		{"view_with_a_window", "ranked", users + `CREATE VIEW ranked AS SELECT row_number() OVER (ORDER BY name) AS id, name AS external_id, os AS platform, true AS active FROM users`},
		{"view_that_sorts", "sorted", users + `CREATE VIEW sorted AS SELECT uid AS id, name AS external_id, os AS platform, true AS active FROM users ORDER BY os`},
		{"view_with_null_keys", "joined", users + `CREATE TABLE log (uid bigint); INSERT INTO log VALUES (1), (NULL); CREATE UNIQUE INDEX ON log (uid);
			CREATE VIEW joined AS SELECT uid AS id, 'x'::text AS external_id, 'ios'::text AS platform, true AS active FROM log`},
		{"view_without_expression_index", "mapped", users + `CREATE VIEW mapped AS SELECT uid AS id, name AS external_id, os AS platform, true AS active, point(lon + 0, lat) AS location FROM users`},
	}
	b := setup(t)
	for _, tt := range tests {
		inOrder(t, tt.name, func(t *testing.T) {
			store, err := New(Config{Relation: tt.relation})
			require.NoError(t, err)
			b.exec(t, `DROP SCHEMA public CASCADE; CREATE SCHEMA public`)
			b.exec(t, strings.ReplaceAll(tt.setUp, "hstore_like[]", "text[]"))
			faults, err := store.Check(b.ctx, b.pool)
			require.NoError(t, err)
			var out strings.Builder
			for _, f := range faults {
				out.WriteString(f.String() + "\n")
			}
			if strings.HasPrefix(tt.name, "good_") || tt.name == "own_table" {
				for _, f := range faults {
					require.False(t, f.Fatal, "%s", f)
				}
			} else {
				require.NotEmpty(t, faults)
			}
			dbtest.Golden(t, "testdata/contract/"+tt.name+".golden", out.String())
		})
	}
}

// What Check executes with planner nodes switched off is not compiled where jit is on.
func TestCheck_CompilesNothing(t *testing.T) {
	t.Parallel()
	b := setupOn(t, "people")
	b.exec(t, `CREATE TABLE users (uid bigint PRIMARY KEY); CREATE TABLE names (uid bigint, name text);
		CREATE VIEW people AS SELECT u.uid AS id, n.name AS external_id FROM users u JOIN names n USING (uid)`)
	tx, err := b.pool.Begin(b.ctx)
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(b.ctx)) }()
	_, err = tx.Exec(b.ctx, `SET LOCAL jit = on; SET LOCAL jit_above_cost = 100000`)
	require.NoError(t, err)
	_, err = tx.Exec(b.ctx, queries.preferIndexes)
	require.NoError(t, err)
	rows, err := tx.Query(b.ctx, "EXPLAIN (ANALYZE) "+b.store.render(queries.sampleKeys), pgx.StrictNamedArgs{"limit": sampledKeys})
	require.NoError(t, err)
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.NotContains(t, strings.Join(plan, "\n"), "JIT:")
}

func TestCheck_WorksForAUserWithoutRights(t *testing.T) {
	t.Parallel()
	b := setupOn(t, "private")
	b.exec(t, `CREATE TABLE private (id bigint PRIMARY KEY, external_id text, platform text, active boolean)`)
	tx, err := b.pool.Begin(b.ctx)
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(b.ctx)) }()
	_, err = tx.Exec(b.ctx, `CREATE ROLE belfry_channels_nobody; SET LOCAL ROLE belfry_channels_nobody`)
	require.NoError(t, err)
	faults, err := b.store.Check(b.ctx, tx)
	require.NoError(t, err)
	require.Equal(t, []Fault{{Problem: "this user may not read it", Remedy: `GRANT SELECT ON "public"."private"`, Fatal: true}}, faults)
	encoded, err := json.Marshal(faults[0])
	require.NoError(t, err)
	require.JSONEq(t, `{"column": "", "problem": "this user may not read it", "remedy": "GRANT SELECT ON \"public\".\"private\"", "fatal": true}`, string(encoded))
}

func TestConfig_RelationIsAnIdentifier(t *testing.T) {
	t.Parallel()
	require.NoError(t, DefaultConfig().Validate())
	for _, good := range []string{"users", "app.Users", "_a.b$1"} {
		s, err := New(Config{Relation: good})
		require.NoError(t, err)
		require.Equal(t, good, s.Relation())
	}
	for _, bad := range []string{"", ".", "a.", ".b", "a.b.c", `a"b`, `"a`, `""`, `"{{location}}"`, "a b", "a;DROP TABLE x", "1a", "pé", "a\n", strings.Repeat("x", 64), "{{location}}"} {
		_, err := New(Config{Relation: bad})
		require.ErrorContains(t, err, "channels.relation: ", bad)
		require.ErrorContains(t, err, "allowed values")
	}
}
