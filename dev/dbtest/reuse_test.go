package dbtest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// used runs f as a test with a reused database would, and says whether the next test gets
// the same one.
func used(t *testing.T, f func(t *testing.T, db *DB)) bool {
	t.Helper()
	const size = 3 // only of these tests
	r := &recorder{TB: t}
	db := Reused(r, size)
	name := db.Name
	f(t, db)
	r.end()
	require.False(t, r.Failed())
	next := &recorder{TB: t}
	defer next.end()
	return Reused(next, size).Name == name
}

// What a test writes is gone for the next one, whatever it is.
func TestReused_IsAsItWasMade(t *testing.T) { //nolint:paralleltest // one after the other
	content := func(t *testing.T, db *DB) (rows []string) {
		t.Helper()
		for _, sql := range []string{
			`SELECT coalesce(string_agg(t::text, ' ' ORDER BY t::text), '') FROM belfry.platforms t`,
			`SELECT coalesce(string_agg(t::text, ' ' ORDER BY t::text), '') FROM belfry.categories t`,
			`SELECT coalesce(string_agg(t::text, ' ' ORDER BY t::text), '') FROM belfry.limits t`,
			`SELECT coalesce(string_agg(t::text, ' ' ORDER BY t::text), '') FROM belfry.events t`,
			`SELECT coalesce(string_agg(t::text, ' ' ORDER BY t::text), '') FROM belfry.lanes t`,
			`SELECT concat_ws(' ', i.system_identifier, i.database_oid = d.oid, i.halted_at) FROM belfry.installation i, pg_database d WHERE d.datname = current_database()`,
			`SELECT count(*)::text FROM belfry.channels`,
			`SELECT count(*)::text FROM belfry.jobs`,
			`SELECT count(*)::text FROM belfry.job_events`,
			`SELECT coalesce(string_agg(sequencename || last_value, ' ' ORDER BY sequencename), '') FROM pg_sequences WHERE schemaname = 'belfry'`,
			`SELECT current_setting('work_mem') || current_user`,
			`SELECT count(*)::text FROM pg_statistic WHERE starelid >= 16384`,
			`SELECT sum(n)::text FROM (SELECT count(*) n FROM pg_class UNION ALL SELECT count(*) FROM pg_proc UNION ALL SELECT count(*) FROM pg_trigger
				UNION ALL SELECT count(*) FROM pg_constraint UNION ALL SELECT count(*) FROM pg_namespace WHERE nspname !~ '_temp_') o`,
			`SELECT count(*)::text FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
		} {
			var text string
			require.NoError(t, db.Pool.QueryRow(t.Context(), sql).Scan(&text), sql)
			rows = append(rows, text)
		}
		return rows
	}
	want := content(t, New(t))
	for range 3 {
		require.True(t, used(t, func(t *testing.T, db *DB) {
			t.Helper()
			require.Equal(t, want, content(t, db))
			for _, sql := range []string{
				`INSERT INTO belfry.channels (external_id, platform) VALUES ('a', 'ios')`,
				`SELECT belfry.enqueue('push', 'operator_notice', 'told')`,
				`SELECT belfry.send(1, 'activity', 'told')`,
				`UPDATE belfry.categories SET cap = 1, cap_window = '1 hour' WHERE name = 'operator_notice'`,
				`UPDATE belfry.limits SET max_skips = 5`,
				`SELECT belfry.halt('me', 'a test')`,
				`UPDATE belfry.installation SET database_oid = 1`,
				`ALTER TABLE belfry.message_rows ADD CONSTRAINT of_test CHECK (channel_id > 0)`,
				`CREATE ROLE belfry_test_reused; GRANT USAGE ON SCHEMA belfry TO belfry_test_reused; GRANT SELECT ON ALL TABLES IN SCHEMA belfry TO belfry_test_reused`,
				`DROP OWNED BY belfry_test_reused; DROP ROLE belfry_test_reused`,
				`DELETE FROM belfry.platforms WHERE name = 'web'`,
				`INSERT INTO belfry.platforms (name, description) VALUES ('watch', 'on a wrist')`,
				`CREATE SCHEMA app; CREATE TABLE app.users (id int PRIMARY KEY); CREATE TABLE users (id int REFERENCES app.users); CREATE VIEW seen AS TABLE users`,
				`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$`,
				`CREATE TRIGGER refuse BEFORE INSERT ON belfry.jobs FOR EACH ROW EXECUTE FUNCTION refuse()`,
				`CREATE CONSTRAINT TRIGGER late AFTER INSERT ON belfry.jobs DEFERRABLE FOR EACH ROW EXECUTE FUNCTION refuse()`,
				`CREATE TEMP TABLE mine (); ANALYZE belfry.platforms`,
				`SET work_mem = '64kB'`,
				`SELECT pg_advisory_lock(7)`,
			} {
				_, err := db.Pool.Exec(t.Context(), sql)
				require.NoError(t, err, sql)
			}
		}))
	}
}

// A database of which more was changed than rows is nobody else's.
func TestLong_ReusedNotAfterMoreThanRows(t *testing.T) { //nolint:paralleltest // one after the other
	for name, sql := range map[string]string{
		"a trigger is off":    `ALTER TABLE belfry.jobs DISABLE TRIGGER USER`,
		"a trigger was off":   `ALTER TABLE belfry.jobs DISABLE TRIGGER USER; ALTER TABLE belfry.jobs ENABLE TRIGGER USER`,
		"an index less":       `DROP INDEX belfry.messages_due_idx`,
		"a type more":         `CREATE TYPE public.own AS ENUM ('a')`,
		"a function replaced": `CREATE OR REPLACE FUNCTION belfry.delivers() RETURNS boolean LANGUAGE sql AS 'SELECT true'`,
		"a column's default":  `ALTER TABLE belfry.jobs ALTER title SET DEFAULT 'x'`,
		"a right":             `GRANT SELECT ON belfry.jobs TO PUBLIC`,
		"a setting":           `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET work_mem = ''64kB''', current_database()); END $$`,
		"emptied":             `TRUNCATE belfry.channels CASCADE`,
		"many rows":           `INSERT INTO belfry.lanes (name) SELECT 'lane' || g FROM generate_series(1, 40000) g`,
	} {
		t.Run(name, func(t *testing.T) {
			require.False(t, used(t, func(t *testing.T, db *DB) {
				t.Helper()
				_, err := db.Pool.Exec(t.Context(), sql)
				require.NoError(t, err)
			}))
		})
	}
}
