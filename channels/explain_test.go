package channels

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/cursor"
	"github.com/belfryhq/belfry/dev/dbtest"
)

// goldenVersion is the PostgreSQL whose wording the golden plans have. The other
// versions are held to what matters: no scan of the relation, no sort.
const goldenVersion = 15

// TestLong_PlansOfHotStatements pins the plans of every statement that a page or an
// Open runs, over enough analysed rows that the planner has a choice. A changed
// golden file is a change of what a chunk costs: review it as code.
func TestLong_PlansOfHotStatements(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.pool = dbtest.New(t).Pool // of which the planner knows nothing
	b.exec(t, `INSERT INTO belfry.channels (external_id, platform, active, location)
		SELECT 'u-' || i, (ARRAY['ios','android','web'])[1 + i % 3], i % 100 > 0, point(i % 360 - 180, i % 170 - 85) FROM generate_series(1, 50000) i`)
	b.exec(t, `INSERT INTO belfry.segments (name) VALUES ('s')`)
	b.exec(t, `INSERT INTO belfry.segment_members SELECT 's', i FROM generate_series(1, 50000, 2) i`)
	b.exec(t, `CREATE SCHEMA app`)
	b.exec(t, `CREATE TABLE app.users (uid bigint PRIMARY KEY, name text UNIQUE, os text, off boolean, lon float8, lat float8)`)
	b.exec(t, `INSERT INTO app.users SELECT id, external_id, platform, NOT active, location[0], location[1] FROM belfry.channels`)
	b.exec(t, `CREATE INDEX users_place ON app.users USING gist (point(lon, lat))`)
	b.exec(t, `CREATE VIEW app.people AS SELECT uid AS id, name AS external_id, os AS platform, NOT off AS active, point(lon, lat) AS location FROM app.users`)
	// As pgbench makes its accounts: an int key and nothing on any expression of it.
	b.exec(t, `CREATE TABLE app.accounts (id int NOT NULL, external_id text, platform text, active boolean, location point, addresses jsonb)`)
	b.exec(t, `INSERT INTO app.accounts SELECT id, external_id, platform, active, location, '{}' FROM belfry.channels`)
	b.exec(t, `ALTER TABLE app.accounts ADD PRIMARY KEY (id), ADD UNIQUE (external_id); CREATE INDEX accounts_place ON app.accounts USING gist (location) INCLUDE (id)`)
	b.exec(t, `INSERT INTO belfry.opt_outs (channel_id, medium) SELECT i, 'sms' FROM generate_series(1, 20000) i`)
	b.exec(t, `INSERT INTO belfry.invalid_addresses (channel_id, medium, sha256) SELECT i, 'sms', sha256(i::text::bytea) FROM generate_series(1, 20000) i`)
	dbtest.Vacuum(t, b.pool, "belfry.opt_outs", "belfry.invalid_addresses", "belfry.channels", "belfry.segment_members", "app.users", "app.accounts")
	view, err := New(Config{Relation: "app.people"})
	require.NoError(t, err)
	accounts, err := New(Config{Relation: "app.accounts"})
	require.NoError(t, err)
	var version int
	require.NoError(t, b.pool.QueryRow(b.ctx, `SELECT current_setting('server_version_num')::int / 10000`).Scan(&version))

	for name, store := range map[string]*Store{"own": b.store, "view": view, "int": accounts} {
		everyone, err := store.Open(b.ctx, b.pool, Everyone(), cursor.Position{}, cursor.Int64(50000))
		require.NoError(t, err)
		store.lookAhead = 1
		circle, err := store.Open(b.ctx, b.pool, Within(0, 180, 3e6), cursor.Position{}, cursor.Int64(50000))
		require.NoError(t, err)
		window := func(args pgx.StrictNamedArgs) pgx.StrictNamedArgs {
			args["after"], args["bound"], args["limit"] = int64(10000), int64(50000), 1000
			return args
		}
		segment, err := store.Inspect(b.ctx, b.pool, InSegment("s"))
		require.NoError(t, err)
		have, err := store.Columns(b.ctx, b.pool)
		require.NoError(t, err)
		recipients := store.renderOptional(queries.recipients, have)
		inspected := circle.filterArgs()
		inspected["segment"] = "s"
		slice := circle.filterArgs()
		slice["ids"] = []int64{1, 2, 3, 500, 20000}
		candidates := circle.circleArgs()
		platforms := []string{"ios"}
		for _, statement := range []struct {
			name, sql string
			args      pgx.StrictNamedArgs
		}{
			{"Bound", store.sql.bound, pgx.StrictNamedArgs{}},
			{"PageEveryone", store.sql.pageEveryone, window(pgx.StrictNamedArgs{})},
			{"PagePlatforms", store.sql.pagePlatforms, window(pgx.StrictNamedArgs{"platforms": platforms})},
			{"PageRadius", store.sql.pageRadius, window(circle.filterArgs())},
			{"SliceIDs", circle.sliceIDs, slice},
			{"SegmentIDs", store.sql.segmentIDs, window(pgx.StrictNamedArgs{"segment": "s", "platforms": platforms})},
			{"PageChannels", everyone.pageChannels, window(everyone.filterArgs())},
			{"SliceChannels", circle.sliceChannels, slice},
			{"SegmentChannels", everyone.segmentChannels, window(pgx.StrictNamedArgs{"segment": "s", "platforms": nil})},
			{"ChannelsInspect", segment.page, window(inspected)},
			{"RadiusCandidates", store.sql.radiusCandidates, window(candidates)},
			{"Recipients", recipients, pgx.StrictNamedArgs{"ids": []int64{1, 2, 3, 500, 20000}, "attributes": true}},
			{"RecipientsRange", store.renderOptional(queries.recipientsRange, have), pgx.StrictNamedArgs{"low": int64(10000), "high": int64(10999), "attributes": false}},
			{"OptOuts", queries.optOuts, pgx.StrictNamedArgs{"ids": []int64{1, 2, 3, 500, 20000}}},
			{"OptOutsRange", queries.optOutsRange, pgx.StrictNamedArgs{"low": int64(1), "high": int64(3)}},
			{"InvalidAddresses", queries.invalidAddresses, pgx.StrictNamedArgs{"ids": []int64{1, 2, 3, 500, 20000}}},
			{"InvalidAddressesRange", queries.invalidAddressesRange, pgx.StrictNamedArgs{"low": int64(1), "high": int64(3)}},
			{"ResolveExternalIDs", store.sql.resolveExternalIDs, pgx.StrictNamedArgs{"external_ids": []string{"u-1", "u-2"}, "after": int64(0), "bound": int64(50000)}},
		} {
			plan := b.explain(t, statement.sql, statement.args)
			require.NotContains(t, plan, "Seq Scan", "%s on %s scans without bound", statement.name, name)
			require.NotContains(t, plan, "Sort", "%s on %s sorts", statement.name, name)
			if version != goldenVersion {
				continue // other versions word the same plan otherwise
			}
			dbtest.Golden(t, fmt.Sprintf("testdata/explain_%s_%s.golden", name, statement.name), plan)
		}
	}
}

// explain returns the plan without costs, with the server's own settings.
func (b bundle) explain(t *testing.T, sql string, args pgx.StrictNamedArgs) string {
	t.Helper()
	rows, err := b.pool.Query(b.ctx, "EXPLAIN (COSTS OFF) "+sql, args)
	require.NoError(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return strings.Join(lines, "\n") + "\n"
}
