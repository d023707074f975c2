package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
)

// everyProfile are the kinds of roles that do not own the schema.
var everyProfile = []string{"enqueue", "run", "deliver", "operate", "monitor", "inbox"}

// A role of each kind cannot have a stronger one execute code: it cannot name the relations
// that SQL functions read with their caller's rights. If the row names its view after all, or
// the row became writable by a mistake, nothing of the view is executed.
func TestRoles_NoneHasAnotherRunItsCode(t *testing.T) {
	t.Parallel()
	for _, kind := range everyProfile {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			db := dbtest.New(t)
			weak := withProfiles(t, db, "", kind)
			lair(t, db, weak)
			names := func(table string) string {
				return `UPDATE belfry.` + table + ` SET relation_schema = (SELECT nspname FROM pg_namespace WHERE oid = pg_my_temp_schema()), relation_name = 'evil'`
			}
			attach := `INSERT INTO belfry.attachments (relation_schema, relation_name, relation_owner, key_column, key_type, columns, relation_id, shape)
				VALUES ('lair', 'evil', 'x', 'external_id', 'text', '{"external_id": "external_id"}', 0, '{"external_id": {"type": "text"}}')`
			refused := func(want string) {
				t.Helper()
				conn, err := weak.Pool.Acquire(t.Context())
				require.NoError(t, err)
				defer conn.Release()
				_, err = conn.Exec(t.Context(), `CREATE OR REPLACE TEMP VIEW evil AS SELECT * FROM lair.evil`)
				require.NoError(t, err)
				for _, sql := range []string{names("recipients"), names("attachments"), attach, `SELECT belfry.record_recipients('lair.evil')`} {
					_, err = conn.Exec(t.Context(), sql)
					require.ErrorContains(t, err, want, sql)
				}
			}
			refused("permission denied")
			grant(t, db, weak, `GRANT ALL ON belfry.recipients, belfry.attachments TO `)
			require.ErrorContains(t, execEach(db, `SELECT belfry.record_recipients('pg_temp.evil')`), "does not exist")
			_, err := weak.Pool.Exec(t.Context(), attach)
			require.ErrorContains(t, err, "may not name the relation; allowed roles: ")
			_, err = weak.Pool.Exec(t.Context(), `SELECT belfry.record_recipients('lair.evil')`)
			require.ErrorContains(t, err, "may not name the relation; allowed roles: ")

			// As if the triggers had not been there.
			require.NoError(t, execEach(db, `SET session_replication_role = replica`, `UPDATE belfry.recipients SET relation_schema = 'lair', relation_name = 'evil'`, attach, `SET session_replication_role = origin`))
			require.NoError(t, execEach(db, `SELECT belfry.enqueue('inbox', 'popular_content', 'x', audience => belfry.audience_channels(1, 2))`))
			for _, sql := range []string{
				`SELECT belfry.audience_missing(belfry.audience_channels(1, 2))`, `SELECT belfry.send_external('x', 'activity', 'x')`,
				`SELECT belfry.notify_external('x', 'activity', 'x')`,
				`SELECT belfry.attachment_step(NULL, 10, false)`, `SELECT belfry.attachment_strays(0, 10, false)`, `SELECT belfry.attachment_follow()`,
			} {
				require.ErrorContains(t, execEach(db, sql), "lair.evil belongs to "+weak.User, sql)
			}
			if kind == "inbox" { // its functions have the owner's rights, and none reads the relation
				for _, sql := range []string{`belfry.inbox_page(1)`, `belfry.inbox_unread(1)`, `belfry.inbox_read_all(1)`, `belfry.inbox_prefer(1, '*', '*', true)`} {
					_, err = weak.Pool.Exec(t.Context(), `SELECT FROM `+sql)
					require.NoError(t, err, sql)
				}
			}
			r := command(t, []string{"BELFRY_DATABASE_URL=" + db.DSN}, "channels", "verify", "--dry-run")
			require.Equal(t, codeFailure, r.code)
			require.Contains(t, r.stderr, "lair.evil belongs to "+weak.User)
			requireUnharmed(t, db)
		})
	}
}

// A query that a role has stored is not run with rights that the role does not have.
func TestRoles_AStoredQueryIsNotRunByAStrongerRole(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"run", "operate"} {
		db := dbtest.New(t)
		weak := withProfiles(t, db, "", kind)
		lair(t, db, weak)
		_, err := weak.Pool.Exec(t.Context(), `INSERT INTO belfry.schedules (name, every, template, query)
			VALUES ('evil', '1 second', '{"type": "inbox", "category": "popular_content"}', 'SELECT external_id AS title FROM lair.evil')`)
		require.NoError(t, err)
		env := []string{"BELFRY_DATABASE_URL=" + db.DSN}
		r := command(t, env, "schedules", "run", "evil")
		require.Equal(t, codeFailure, r.code)
		require.Contains(t, r.stderr, "query_role: is required, as "+weak.User+" stored the query and may not become ")
		require.Contains(t, command(t, env, "doctor").stdout, "query_role: is required")
		requireUnharmed(t, db)
		require.NoError(t, execEach(db, `UPDATE belfry.schedules SET query = 'SELECT ''x'' AS title'`))
		r = command(t, env, "schedules", "run", "evil")
		require.Equal(t, codeDone, r.code, r.stderr)
	}
}

// lair is a schema of a role with a view whose rows make whoever reads them a superuser of
// its own choice.
func lair(t *testing.T, db, weak *dbtest.DB) {
	t.Helper()
	grant(t, db, weak, `CREATE SCHEMA lair; CREATE TABLE public.harm (who text); GRANT ALL ON public.harm TO PUBLIC; GRANT ALL ON SCHEMA lair TO `)
	_, err := weak.Pool.Exec(t.Context(), `CREATE FUNCTION lair.pwn() RETURNS text LANGUAGE plpgsql AS $$
		BEGIN
			IF current_user <> '`+weak.User+`' THEN
				BEGIN INSERT INTO public.harm VALUES (current_user); EXCEPTION WHEN OTHERS THEN RETURN 'harm to ' || current_user; END;
			END IF;
			RETURN 'x';
		END $$;
		CREATE VIEW lair.evil AS SELECT 1::bigint AS id, lair.pwn() AS external_id`)
	require.NoError(t, err)
}

func requireUnharmed(t *testing.T, db *dbtest.DB) {
	t.Helper()
	var harmed bool
	require.NoError(t, db.Pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM public.harm) OR EXISTS (SELECT FROM belfry.jobs WHERE title LIKE 'harm%')`).Scan(&harmed))
	require.False(t, harmed)
}

func grant(t *testing.T, db, to *dbtest.DB, sql string) {
	t.Helper()
	require.NoError(t, execEach(db, sql+`"`+to.User+`"`))
}

// execEach executes statements on one connection.
func execEach(db *dbtest.DB, statements ...string) error {
	conn, err := db.Pool.Acquire(context.Background())
	if err != nil {
		return err
	}
	defer conn.Release()
	for _, sql := range statements {
		if _, err := conn.Exec(context.Background(), sql); err != nil {
			return err
		}
	}
	return nil
}

// A role that only enqueues learns of no user or token whether it exists, and no job of it goes
// before jobs that were there: a schedule_at in the past is the present.
func TestRoles_EnqueueLearnsNoNamesAndWaitsItsTurn(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	weak, reads := withProfiles(t, db, "", "enqueue"), withProfiles(t, db, "", "monitor")
	require.NoError(t, execEach(db, `INSERT INTO belfry.events (subject, name, kind, actor) VALUES ('user', 'ann', 'created', 'x')`))
	version := func(role *dbtest.DB) (v int64) {
		require.NoError(t, role.Pool.QueryRow(t.Context(), `SELECT belfry.version('user', 'ann')`).Scan(&v))
		return v
	}
	require.Zero(t, version(weak))
	require.Positive(t, version(reads))

	var late bool
	insert := `INSERT INTO belfry.jobs (type, category, title, schedule_at) VALUES ('inbox', 'popular_content', 'x', '1970-01-03')`
	_, err := weak.Pool.Exec(t.Context(), insert)
	require.NoError(t, err)
	require.NoError(t, db.Pool.QueryRow(t.Context(), `SELECT schedule_at = created_at FROM belfry.jobs`).Scan(&late))
	require.True(t, late)

	// A request that is repeated when its times are over is the one that was enqueued.
	const again = `SELECT belfry.enqueue('inbox', 'popular_content', 'x', schedule_at => now() - interval '2 hours', idempotency_key => 'k', %s => now() - interval '1 hour')`
	for _, column := range []string{"deliver_at", "expires_at"} {
		var first, repeated int64
		sql := strings.Replace(fmt.Sprintf(again, column), "'k'", "'"+column+"'", 1)
		require.NoError(t, db.Pool.QueryRow(t.Context(), sql).Scan(&first))
		require.NoError(t, weak.Pool.QueryRow(t.Context(), sql).Scan(&repeated), column)
		require.Equal(t, first, repeated, column)
	}
}
