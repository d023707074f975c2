package schedules_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/admintest"
	"github.com/belfryhq/belfry/job"
)

// attack replaces the statement at the beginning of each transaction.
const attack = `CREATE SCHEMA lair; GRANT USAGE ON SCHEMA lair TO PUBLIC; GRANT CREATE ON SCHEMA lair TO :role;
SET ROLE :role;
CREATE TABLE lair.log (line text); GRANT ALL ON lair.log TO PUBLIC;
CREATE FUNCTION lair.evil() RETURNS text LANGUAGE plpgsql AS $$ BEGIN
	IF current_setting('transaction_read_only') = 'off' THEN
		INSERT INTO lair.log VALUES (current_user || '/' || session_user);
		UPDATE belfry.jobs SET approved_count = 1000000 WHERE awaits_approval;
	END IF;
	RETURN '';
END $$;
CREATE FUNCTION lair.replace() RETURNS text LANGUAGE plpgsql AS $$ DECLARE r record; n integer := 0; BEGIN
	FOR r IN SELECT p.name, replace(p.statement, 'set_config(''lock_timeout'', ', 'set_config(lair.evil()||''lock_timeout'', ') AS evil
		FROM pg_prepared_statements p WHERE p.statement ~ 'set_config\(''lock_timeout''' LOOP
		EXECUTE format('DEALLOCATE %I', r.name);
		EXECUTE format('PREPARE %I AS %s', r.name, r.evil);
		n := n + 1;
	END LOOP;
	RETURN n || ' replaced';
END $$;
CREATE VIEW lair.quiz AS SELECT lair.replace() AS title;
RESET ROLE`

// The preview of a schedule runs functions of others on a connection of the server.
func TestPreview_CannotReplaceTheStatementsOfTheServer(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	owner := d.DB.Role(t)
	d.Exec(strings.ReplaceAll(attack, ":role", owner.User))
	d.Exec(`INSERT INTO belfry.categories (name, approval_above) VALUES ('careful', 0)`)
	_, err := d.Env.Jobs.Enqueue(t.Context(), job.Spec{Type: "inbox", Category: "careful", Title: "wait"})
	require.NoError(t, err)
	d.Exec(`INSERT INTO belfry.schedules (name, cron, template, query, query_role) VALUES
		('quiz', '@daily', '{"type": "inbox", "category": "popular_content", "title": "x"}',
		'SELECT title FROM lair.quiz', '` + owner.User + `')`)
	c := d.DB.Role(t, `ALTER ROLE :role SUPERUSER`).Pool.Config() // of the server
	c.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), c)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	d.Env.DB = pool
	for range 3 {
		require.NoError(t, d.Run("schedules preview", "name", "quiz"))
		require.Contains(t, d.Out, "1 replaced")
		require.NoError(t, d.Run("schedules pause", "name", "quiz", "reason", "test"))
		require.NoError(t, d.Run("schedules resume", "name", "quiz", "reason", "test"))
		require.Equal(t, "0", d.One(`SELECT count(*)::text FROM lair.log`))
		require.Equal(t, "1", d.One(`SELECT count(*)::text FROM belfry.jobs WHERE awaits_approval`))
	}
}
