package schedule_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/job/schedule"
)

// attack is owned by the query's role. lair.replace replaces the prepared statements at the beginning of each
// transaction and at the end of a firing by statements that call lair.evil, and returns their number. lair.planned runs
// when a statement is planned.
const attack = `SET ROLE :role;
CREATE TABLE lair.log (line text); GRANT ALL ON lair.log TO PUBLIC; GRANT USAGE ON SCHEMA lair TO PUBLIC;
CREATE FUNCTION lair.evil() RETURNS text LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO lair.log VALUES (current_user || '/' || session_user);
	UPDATE belfry.jobs SET approved_count = 1000000 WHERE awaits_approval;
	RETURN '';
END $$;
CREATE FUNCTION lair.replace() RETURNS text LANGUAGE plpgsql AS $$ DECLARE r record; n integer := 0; BEGIN
	FOR r IN SELECT p.name, array_to_string(p.parameter_types, ', ') AS types,
			CASE WHEN p.statement ~ 'fired = fired' THEN 'SELECT lair.evil()'
			ELSE replace(p.statement, 'set_config(''lock_timeout'', ', 'set_config(lair.evil()||''lock_timeout'', ') END AS evil
		FROM pg_prepared_statements p WHERE p.statement ~ 'set_config\(''lock_timeout''|fired = fired \+ 1' LOOP
		EXECUTE format('DEALLOCATE %I', r.name);
		EXECUTE format('PREPARE %I (%s) AS %s', r.name, r.types, r.evil);
		n := n + 1;
	END LOOP;
	RETURN n;
END $$;
CREATE FUNCTION lair.planned() RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN lair.replace(); END $$;
CREATE FUNCTION lair.fail() RETURNS text LANGUAGE plpgsql AS $$ BEGIN
	PERFORM pg_advisory_lock(4711);
	RAISE EXCEPTION '% replaced', lair.replace();
END $$;
CREATE VIEW lair.quiz AS SELECT lair.planned() AS title;
RESET ROLE`

// setupAttack returns a guarded database, a pool of the node with one connection, and a job that awaits approval.
func setupAttack(t *testing.T) (*guarded, *pgxpool.Pool) {
	t.Helper()
	g := setupGuarded(t)
	g.exec(t, strings.ReplaceAll(attack, ":role", g.reader))
	g.exec(t, `INSERT INTO belfry.categories (name, approval_above) VALUES ('careful', 0)`)
	_, err := g.jobs.Enqueue(t.Context(), job.Spec{Type: "inbox", Category: "careful", Title: "wait"})
	require.NoError(t, err)
	c := g.node.Pool.Config()
	c.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), c)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	d := popular()
	d.Name = "plain"
	g.put(t, d, "04-01 08:00:00")
	return g, pool
}

// warm has the node's only connection prepare the statements of a firing.
func (g *guarded) warm(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	for range 2 {
		_, err := schedule.NewStore(pool).RunNow(t.Context(), "plain", operator)
		require.NoError(t, err)
	}
	g.exec(t, `UPDATE belfry.schedules SET next_at = $1 WHERE name = 'plain'`, g.now.Add(-time.Minute))
}

// harmless checks that no statement of the node has called lair.evil, nor does the next one.
func (g *guarded) harmless(t *testing.T, pool *pgxpool.Pool, what string) {
	t.Helper()
	for range 2 {
		require.Zero(t, one[int](t, g.bundle, `SELECT count(*) FROM lair.log`), what)
		require.Equal(t, 1, one[int](t, g.bundle, `SELECT count(*) FROM belfry.jobs WHERE category = 'careful' AND awaits_approval`), what)
		_, err := schedule.NewStore(pool).RunNow(t.Context(), "plain", operator)
		require.NoError(t, err, what)
	}
}

// The owner of a function that a query reaches cannot replace a prepared statement of the node, which has more rights.
func TestQuery_CannotReplaceTheStatementsOfTheNode(t *testing.T) {
	t.Parallel()
	g, pool := setupAttack(t)
	d := popular()
	d.Name, d.Query, d.QueryRole = "quiz", `SELECT title FROM lair.quiz`, g.reader
	g.put(t, d, "05-01 08:00:00")
	replaced := func() string { // by the query of the newest job
		return one[string](t, g.bundle, `SELECT title FROM belfry.jobs WHERE requested_by = 'schedule quiz' ORDER BY id DESC LIMIT 1`)
	}
	store := schedule.NewStore(pool)
	for _, moment := range []string{"05-01 09:00:00", "05-02 09:00:00", "05-03 09:00:00"} {
		g.now = at(t, moment)
		g.warm(t, pool)
		fired, err := schedule.NewFirer(pool, schedule.WithClock(func() time.Time { return g.now })).FireDue(t.Context())
		require.NoError(t, err)
		require.Empty(t, fired.Failed)
		require.Equal(t, "plain", fired.Occurrences[0].Schedule)
		require.Equal(t, "3", replaced(), "one of them was ScheduleFired, which follows")
		g.harmless(t, pool, "firing")
	}
	for name, act := range map[string]func(context.Context) error{
		"run":   func(ctx context.Context) error { _, err := store.RunNow(ctx, "quiz", operator); return err },
		"check": func(ctx context.Context) error { return store.CheckQuery(ctx, g.get(t, "quiz")) },
		"try": func(ctx context.Context) error {
			made, err := store.Try(ctx, g.get(t, "quiz"), operator)
			require.Equal(t, "2", made[0].Spec.Title)
			return err
		},
	} {
		g.warm(t, pool)
		require.NoError(t, act(t.Context()), name)
		g.harmless(t, pool, name)
	}
}

// So do queries that fail, of values, and without a role. The advisory locks of a query that fails are released.
func TestQuery_CannotReplaceTheStatementsOfTheNodeOtherwise(t *testing.T) {
	t.Parallel()
	g, pool := setupAttack(t)
	fails := popular()
	fails.Name, fails.Query, fails.QueryRole = "fails", `SELECT lair.fail() AS title`, g.reader
	values := popular()
	values.Name, values.QueryRole = "values", g.reader
	values.Template.Values = true
	values.Query = `SELECT 1 AS channel_id, jsonb_build_object('n', lair.replace()::integer) AS value`
	for _, d := range []schedule.Definition{fails, values} {
		g.put(t, d, "05-01 08:00:00")
	}
	for range 3 {
		for name, want := range map[string]string{"fails": "2 replaced", "values": ""} {
			g.warm(t, pool)
			_, err := schedule.NewStore(pool).RunNow(t.Context(), name, operator)
			if want == "" {
				require.NoError(t, err)
				require.Equal(t, 2, one[int](t, g.bundle, `SELECT (value ->> 'n')::integer FROM belfry.job_values ORDER BY job_id DESC LIMIT 1`))
			} else {
				require.ErrorContains(t, err, want)
			}
			require.Eventually(t, func() bool {
				return one[int](t, g.bundle, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711`) == 0
			}, 5*time.Second, time.Millisecond)
			g.harmless(t, pool, name)
		}
	}
}
