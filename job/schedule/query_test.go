package schedule_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job/schedule"
)

// patience is a limit that only a hang reaches.
const patience = 2 * time.Minute

func (b *bundle) eventually(t *testing.T, sql string, args ...any) {
	t.Helper()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for began := time.Now(); !one[bool](t, b, sql, args...); <-look.C {
		require.Less(t, time.Since(began), patience, sql)
	}
}

// A query that sleeps keeps nobody waiting: not those that are due with it, nor those that
// are due while it sleeps, with a query or without. The end of Run ends it.
func TestRun_ASleepingQueryHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, query := range map[string]string{"sleeper": "SELECT pg_sleep(1000)::text AS title", "asks": "SELECT 'x' AS title", "plain": ""} {
		d := popular()
		d.Name, d.Cron, d.Every, d.Query, d.QueryTimeout = name, "", "1s", query, "5m"
		b.put(t, d, "05-01 08:00:00")
	}
	// Not from then on: each second would be an occurrence that was missed.
	b.exec(t, `UPDATE belfry.schedules SET created_at = now() - interval '2 seconds', armed_at = now() - interval '2 seconds'`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ticks, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		schedule.NewFirer(b.db.Pool).Run(ctx, ticks, nil, func() bool { return false })
	}()
	const sleeps = `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep')`
	for range 3 {
		for _, name := range []string{"asks", "plain"} {
			before := b.get(t, name).Fired
			b.exec(t, `UPDATE belfry.schedules SET next_at = date_trunc('second', now()) - interval '1 second' WHERE name = $1`, name)
			for b.get(t, name).Fired == before {
				select {
				case ticks <- struct{}{}:
				case <-time.After(patience):
					require.FailNow(t, "the firer does not tick any more")
				}
			}
		}
		b.eventually(t, sleeps)
	}
	require.Zero(t, b.get(t, "sleeper").Fired)
	cancel()
	select {
	case <-ended:
	case <-time.After(patience):
		require.FailNow(t, "Run does not end")
	}
	b.eventually(t, `SELECT NOT (`+sleeps+`)`)
	require.Zero(t, b.get(t, "sleeper").Failures, "a shutdown is no failure of the schedule")
}

// FireDue has queries asked beside each other: each of these waits for the other one.
func TestFireDue_QueriesRunBesideEachOther(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE FUNCTION holders(n oid) RETURNS bigint LANGUAGE sql AS $$
		SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = n AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) $$`)
	b.exec(t, `CREATE FUNCTION meet() RETURNS text LANGUAGE plpgsql AS $$
		BEGIN
			PERFORM pg_advisory_lock_shared(7); -- until the query has been read
			WHILE holders(7) < 2 LOOP PERFORM pg_sleep(0.01); END LOOP;
			PERFORM pg_advisory_lock_shared(8);
			WHILE holders(8) < 2 AND holders(7) = 2 LOOP PERFORM pg_sleep(0.01); END LOOP;
			RETURN 'met';
		END $$`)
	for _, name := range []string{"one", "two"} {
		d := popular()
		d.Name, d.Query, d.QueryTimeout = name, "SELECT meet() AS title", "2m"
		b.put(t, d, "05-01 08:00:00")
	}
	fired := b.fire(t, "05-01 09:00:00")
	require.Empty(t, fired.Failed)
	require.Equal(t, []string{"05-01 09:00:00", "05-01 09:00:00"}, occurrences(fired))
	b.eventually(t, `SELECT holders(7) + holders(8) = 0`) // what a query has locked is not locked after it
}

// Each query has the deadline of its schedule, the default is ten seconds.
func TestQuery_HasADeadlineOfItsOwn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, timeout := range map[string]string{"brief": "1s", "usual": "", "long": "5m"} {
		d := popular()
		d.Name, d.Query, d.QueryTimeout = name, "SELECT current_setting('statement_timeout') AS title", timeout
		if name == "brief" {
			d.Query = "SELECT pg_sleep(1000)::text AS title"
		}
		b.put(t, d, "05-01 08:00:00")
	}
	fired := b.fire(t, "05-01 09:00:00")
	require.Len(t, fired.Failed, 1)
	require.Equal(t, "query: took longer than 1s", b.get(t, "brief").LastError)
	require.Equal(t, []string{"10s", "5min"}, one[[]string](t, b, `SELECT array_agg(title ORDER BY title) FROM belfry.jobs`))
	require.Equal(t, "10s", b.get(t, "usual").QueryTimeout)
	b.exec(t, `UPDATE belfry.schedules SET query = 'SELECT pg_sleep(0)::text || ''on demand'' AS title', query_timeout = '5m' WHERE name = 'brief'`)
	jobs, err := b.store.RunNow(context.Background(), "brief", operator)
	require.NoError(t, err)
	require.Len(t, jobs, 1)
}

// guarded is a database in which a node's role may read everything, and become reader,
// who may read little.
type guarded struct {
	*bundle

	node   *dbtest.DB
	reader string
}

func setupGuarded(t *testing.T) *guarded {
	t.Helper()
	b := setup(t)
	b.exec(t, `CREATE TABLE public.posts (title text); INSERT INTO public.posts VALUES ('the post'); CREATE TABLE public.secret (title text); INSERT INTO public.secret VALUES ('the secret')`)
	reader := b.db.Role(t, `GRANT SELECT ON public.posts TO :role`)
	b.exec(t, `CREATE SCHEMA lair`)
	b.exec(t, `GRANT USAGE, CREATE ON SCHEMA lair TO `+reader.User)
	node := b.db.Role(t, `GRANT USAGE ON SCHEMA belfry TO :role`, `GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA belfry TO :role`,
		`GRANT SELECT ON public.secret TO :role`, `GRANT `+reader.User+` TO :role`)
	return &guarded{b, node, reader.User}
}

// fireAs has the node's role fire at a moment.
func (g *guarded) fireAs(t *testing.T, moment string) schedule.Fired {
	t.Helper()
	g.now = at(t, moment)
	fired, err := schedule.NewFirer(g.node.Pool, schedule.WithClock(func() time.Time { return g.now })).FireDue(context.Background())
	require.NoError(t, err)
	return fired
}

// A query with a role runs as that one, sees what it may see, and the node goes on as
// itself.
func TestQuery_RunsAsItsRole(t *testing.T) {
	t.Parallel()
	g := setupGuarded(t)
	d := popular()
	d.Query, d.QueryRole = `SELECT concat_ws(' ', title, current_user, current_setting('belfry.occurrence'), current_setting('statement_timeout')) AS title FROM public.posts -- all`, g.reader
	g.put(t, d, "05-01 08:00:00")
	require.Equal(t, g.reader, g.get(t, "popular").QueryRole)
	fired := g.fireAs(t, "05-01 09:00:00")
	require.Empty(t, fired.Failed)
	require.Equal(t, "the post "+g.reader+" 2026-05-01T09:00:00Z 10s", one[string](t, g.bundle, `SELECT title FROM belfry.jobs`))
	require.Equal(t, "schedule popular", one[string](t, g.bundle, `SELECT requested_by FROM belfry.jobs`))
	require.Zero(t, one[int](t, g.bundle, `SELECT count(*) FROM pg_proc WHERE proname = 'belfry_schedule_rows'`), "nothing is left of it")
	g.exec(t, `UPDATE belfry.schedules SET query = 'SELECT title FROM public.secret'`)
	require.Len(t, g.fireAs(t, "05-02 09:00:00").Failed, 1)
	require.Equal(t, "query: permission denied for table secret (SQLSTATE 42501)", g.get(t, "popular").LastError)
}

// escapes are what a query may try to get the node's rights back.
var escapes = []string{
	`SELECT set_config('role', 'none', true) AS title`,
	`SELECT set_config('role', '%[1]s', true) AS title`,
	`SELECT set_config('session_authorization', '%[1]s', true) AS title`,
	`SELECT set_config('role', 'none', false) || (xpath('//title/text()', query_to_xml('SELECT title FROM public.secret', false, false, '')))[1]::text AS title`,
	`SELECT (xpath('//title/text()', query_to_xml('SELECT set_config(''role'', ''none'', true) AS title', false, false, '')))[1]::text || (xpath('//title/text()', query_to_xml('SELECT title FROM public.secret', false, false, '')))[1]::text AS title`,
	`SELECT lair.leave() AS title`,
	`SELECT lair.leave_quietly() AS title`,
	`SELECT 'x' AS title) q; RESET ROLE; SELECT row_to_json(q)::text FROM (SELECT title FROM public.secret`,
	`SELECT belfry.enqueue('inbox', 'operator_notice', 'as the node')::text AS title`,
	`SELECT 'x' AS title FROM pg_terminate_backend(pg_backend_pid())`,
}

// The node's session could become anything the node can. A query with a role cannot,
// whatever it calls: this is a boundary and no courtesy.
func TestQuery_CannotLeaveItsRole(t *testing.T) {
	t.Parallel()
	g := setupGuarded(t)
	g.exec(t, `SET ROLE `+g.reader+`;
		CREATE FUNCTION lair.leave() RETURNS text LANGUAGE plpgsql AS $$ BEGIN RESET ROLE; RETURN (SELECT title FROM public.secret); END $$;
		CREATE FUNCTION lair.leave_quietly() RETURNS text LANGUAGE plpgsql AS $$
		BEGIN
			BEGIN RESET ROLE; EXCEPTION WHEN OTHERS THEN NULL; END;
			BEGIN EXECUTE 'SET SESSION AUTHORIZATION DEFAULT'; EXCEPTION WHEN OTHERS THEN NULL; END;
			RETURN (SELECT title FROM public.secret);
		END $$;
		RESET ROLE`)
	for i, query := range escapes {
		d := popular()
		d.Name, d.Query, d.QueryRole = fmt.Sprintf("escape-%02d", i), query, g.reader
		if strings.Contains(query, "%[1]s") {
			d.Query = fmt.Sprintf(query, g.node.User)
		}
		g.put(t, d, "05-01 08:00:00")
	}
	g.put(t, popular(), "05-01 08:00:00")
	fired := g.fireAs(t, "05-01 09:00:00")
	for i, query := range escapes {
		require.NotEmpty(t, g.get(t, fmt.Sprintf("escape-%02d", i)).LastError, query)
	}
	require.Equal(t, "query: cannot set parameter \"role\" within security-definer function (SQLSTATE 42501)", g.get(t, "escape-04").LastError)
	require.Equal(t, "query: permission denied for table secret (SQLSTATE 42501)", g.get(t, "escape-06").LastError)
	require.Len(t, fired.Failed, len(escapes))
	require.Equal(t, []string{"Today"}, one[[]string](t, g.bundle, `SELECT array_agg(title) FROM belfry.jobs`))
}

// Whoever has a query run as a role, or changes what it runs, must be able to become that
// role himself. What else an operator does to such a schedule, he may.
func TestSQL_OnlyItsMembersNameARole(t *testing.T) {
	t.Parallel()
	g := setupGuarded(t)
	ctx := context.Background()
	writes := []string{`GRANT USAGE ON SCHEMA belfry TO :role`, `GRANT SELECT, INSERT, UPDATE ON belfry.schedules TO :role`}
	stranger, member := g.db.Role(t, writes...), g.db.Role(t, append(writes, `GRANT `+g.reader+` TO :role`)...)
	d := popular()
	d.Query, d.QueryRole = `SELECT title FROM public.posts`, g.reader
	_, err := schedule.NewStore(stranger.Pool).Put(ctx, d, schedule.FromDatabase, operator)
	require.EqualError(t, err, fmt.Sprintf("belfry.schedules.query_role: %s may not become '%s'; allowed values: null, or a role that %[1]s may become by SET ROLE (GRANT %[2]s TO %[1]s allows it.)", stranger.User, g.reader))
	_, err = schedule.NewStore(member.Pool).Put(ctx, d, schedule.FromDatabase, operator)
	require.NoError(t, err)
	for _, sql := range []string{`query = 'SELECT title FROM public.posts LIMIT 1'`, `query_role = 'postgres'`, `query = NULL`} {
		_, err = stranger.Pool.Exec(ctx, `UPDATE belfry.schedules SET `+sql)
		require.ErrorContains(t, err, "belfry.schedules.query_role: ", sql)
	}
	_, err = schedule.NewStore(stranger.Pool).Pause(ctx, "popular", operator)
	require.NoError(t, err)
	_, err = stranger.Pool.Exec(ctx, `UPDATE belfry.schedules SET cron = '@daily', query_timeout = '20 s'`)
	require.NoError(t, err)
	_, err = stranger.Pool.Exec(ctx, `UPDATE belfry.schedules SET query_role = NULL`)
	require.NoError(t, err, "as any schedule that he writes")
	require.Contains(t, one[string](t, g.bundle, `SELECT detail ->> 'before' FROM belfry.events WHERE kind = 'changed' ORDER BY id DESC LIMIT 1`), g.reader)
}

// What the node's role lacks is said with the GRANT.
func TestQuery_SaysWhatTheNodeMayNot(t *testing.T) {
	t.Parallel()
	g := setupGuarded(t)
	d := popular()
	d.Query, d.QueryRole = `SELECT title FROM public.posts`, g.reader
	g.put(t, d, "05-01 08:00:00")
	database := pgx.Identifier{g.db.Name}.Sanitize()
	store := schedule.NewStore(g.node.Pool)
	failure := func(moment string) string {
		checked := store.CheckQuery(t.Context(), g.get(t, "popular"))
		require.Len(t, g.fireAs(t, moment).Failed, 1)
		failed := g.get(t, "popular").LastError
		require.EqualError(t, checked, failed, "a look at it says the same")
		return strings.ReplaceAll(failed, `"`, "")
	}
	g.exec(t, fmt.Sprintf(`REVOKE %s FROM %s`, g.reader, g.node.User))
	require.Equal(t, fmt.Sprintf("query_role: %s may not become %s; run: GRANT %[2]s TO %[1]s", g.node.User, g.reader), failure("05-01 09:00:00"))
	g.exec(t, fmt.Sprintf(`GRANT %s TO %s`, g.reader, g.node.User))
	g.exec(t, fmt.Sprintf(`REVOKE TEMPORARY ON DATABASE %s FROM PUBLIC`, database))
	require.Equal(t, fmt.Sprintf("query_role: %s may not make the temporary function that keeps a query to its role (permission denied to create temporary tables in database %s); run: GRANT TEMPORARY ON DATABASE %[2]s TO %[1]s",
		g.reader, g.db.Name), failure("05-01 09:10:00"))
	g.exec(t, fmt.Sprintf(`GRANT TEMPORARY ON DATABASE %s TO %s`, database, g.reader))
	require.NoError(t, store.CheckQuery(t.Context(), g.get(t, "popular")))
	require.Empty(t, g.fireAs(t, "05-01 09:20:00").Failed)
	g.exec(t, `REVOKE SELECT ON public.posts FROM `+g.reader)
	require.Equal(t, "query: permission denied for table posts (SQLSTATE 42501)", failure("05-02 09:00:00"))
	g.exec(t, `ALTER TABLE belfry.schedules DISABLE TRIGGER USER`)
	g.exec(t, `UPDATE belfry.schedules SET query_role = 'was_dropped'`)
	require.Equal(t, fmt.Sprintf("query_role: was_dropped is not a role of this server; run: CREATE ROLE was_dropped; GRANT was_dropped TO %s", g.node.User), failure("05-02 09:10:00"))
}
