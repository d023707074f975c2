package db_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/db"
)

// planOf executes a statement on a table in a transaction of o, and returns how.
func planOf(t *testing.T, pool *pgxpool.Pool, o db.Options) (plan string) {
	t.Helper()
	const by = "SELECT count(*) FROM public.things WHERE id = $1"
	o.Limit = time.Minute
	require.NoError(t, db.InTx(t.Context(), pool, o, func(ctx context.Context, tx pgx.Tx) error {
		var name string
		if _, err := tx.Exec(ctx, by, 7); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, "SELECT name FROM pg_prepared_statements WHERE statement = $1", by).Scan(&name); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, "EXPLAIN (COSTS OFF) EXECUTE "+pgx.Identifier{name}.Sanitize()+"(7)", pgx.QueryExecModeSimpleProtocol)
		if err != nil {
			return err
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		plan = strings.Join(lines, "\n")
		return err
	}))
	return plan
}

// What is begun often keeps its plans, and none of a table that was small a second ago.
func TestInTx_KeepsPlansForASecond(t *testing.T) {
	t.Parallel()
	c := dbtest.New(t).Pool.Config()
	c.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), c)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	exec := func(sql string) {
		_, err := pool.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	exec("CREATE TABLE things (id integer) WITH (autovacuum_enabled = off)")
	exec("INSERT INTO things VALUES (7)")
	exec("CREATE INDEX ON things (id)")
	exec("ANALYZE things")
	kept, scans := func(plan string) bool { return strings.Contains(plan, "$1") }, func(plan string) bool { return strings.Contains(plan, "Seq Scan") }
	for range 10 {
		plan := planOf(t, pool, db.Options{})
		require.False(t, kept(plan), plan)
	}
	var plan string
	for began := time.Now(); !kept(plan); { // from the sixth on, if they are within one second
		plan = planOf(t, pool, db.Options{Often: true})
		require.Less(t, time.Since(began), time.Minute, plan)
	}
	require.True(t, scans(plan), plan)
	exec("INSERT INTO things SELECT generate_series(1, 100000)")
	plan = planOf(t, pool, db.Options{})
	require.False(t, kept(plan) || scans(plan), plan)
	for began := time.Now(); !kept(plan) || scans(plan); {
		plan = planOf(t, pool, db.Options{Often: true})
		require.Less(t, time.Since(began), time.Minute, plan)
	}
}

// A stock server compiles what it thinks expensive, which a recursive look at a few rows is.
func TestInTx_CompilesNothing(t *testing.T) {
	t.Parallel()
	c := dbtest.New(t).Pool.Config()
	c.ConnConfig.RuntimeParams["jit"] = "on"
	pool, err := pgxpool.NewWithConfig(t.Context(), c)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	var jit string
	require.NoError(t, db.InTx(t.Context(), pool, db.Options{Limit: time.Minute, Often: true}, func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, "SHOW jit").Scan(&jit)
	}))
	require.Equal(t, "off", jit)
	require.NoError(t, pool.QueryRow(t.Context(), "SHOW jit").Scan(&jit))
	require.Equal(t, "on", jit)
}

// A role that may CREATE in a schema of a login's search_path could define a closer match of a function or an operator
// than PostgreSQL's own, which belfry's statements then executed with the login's rights.
func TestInTx_ResolvesNoFunctionOfThePath(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	for _, sql := range []string{
		`CREATE FUNCTION public.format(text, text) RETURNS text LANGUAGE sql AS $$ SELECT 'planted' $$`,
		`CREATE FUNCTION public.planted(jsonb, varchar) RETURNS boolean LANGUAGE sql AS $$ SELECT true $$`,
		`CREATE OPERATOR public.? (LEFTARG = jsonb, RIGHTARG = varchar, FUNCTION = public.planted)`,
	} {
		_, err := d.Pool.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	const statement = `SELECT format('%s', 'own'), '{}'::jsonb ? 'a'::varchar`
	read := func(ctx context.Context, q interface {
		QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	}) (text string, has bool) {
		require.NoError(t, q.QueryRow(ctx, statement).Scan(&text, &has))
		return text, has
	}
	own := func(text string, has bool) { require.Equal(t, "own false", fmt.Sprint(text, " ", has)) }
	planted := func(text string, has bool) { require.Equal(t, "planted true", fmt.Sprint(text, " ", has)) }
	planted(read(t.Context(), d.Pool))
	own(read(t.Context(), db.NewReader(d.Pool, time.Minute)))
	for _, o := range []db.Options{{}, {Reads: true}, {Snapshot: true}, {Often: true}, {Policies: true}} {
		o.Limit = time.Minute
		require.NoError(t, db.InTx(t.Context(), d.Pool, o, func(ctx context.Context, tx pgx.Tx) error { own(read(ctx, tx)); return nil }))
		o.Path = true
		require.NoError(t, db.InTx(t.Context(), d.Pool, o, func(ctx context.Context, tx pgx.Tx) error { planted(read(ctx, tx)); return nil }))
	}
	planted(read(t.Context(), d.Pool))
}
