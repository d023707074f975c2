package job_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/job"
)

// Once whoever could INSERT could switch off the protection of the database and go before
// everybody in a lane.
func TestLimits_BindWhoMayOnlyInsert(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	enqueuer := b.db.Role(t, `GRANT USAGE ON SCHEMA belfry TO :role`, `GRANT INSERT ON belfry.jobs TO :role`)
	insert := func(column, value string) error {
		_, err := enqueuer.Pool.Exec(t.Context(), `INSERT INTO belfry.jobs (type, category, title, `+column+`) VALUES ('inbox', 'operator_notice', 'x', `+value+`)`)
		return err
	}
	for _, c := range []struct{ column, beyond, within, allowed string }{
		{"priority", "1", "-5", "-10 to 0"},
		{"chunk_target_ms", "1001", "1000", "null (the runner's setting), 20 to 1000"},
		{"max_chunk_rows", "50001", "50000", "null (the runner's setting), 100 to 50000"},
		{"max_skips", "10001", "10000", "null (the runner's setting), 0 to 10000"},
		{"health_checks", "false", "true", "null (the runner's setting), true"},
	} {
		err := insert(c.column, c.beyond)
		var refused *pgconn.PgError
		require.ErrorAs(t, err, &refused, c.column)
		require.Equal(t, []string{"23514", c.column}, []string{refused.Code, refused.ColumnName})
		require.Equal(t, "belfry.jobs."+c.column+": "+c.beyond+" is beyond the ceiling for "+enqueuer.User+"; allowed values: "+c.allowed, refused.Message)
		require.Contains(t, refused.Hint, "Roles that may UPDATE belfry.jobs ("+c.column+") go further.")
		require.NoError(t, insert(c.column, c.within))
		require.NoError(t, insert(c.column, "DEFAULT"))
	}
	// Without a ceiling a column goes as far as it goes; the other two have none at first.
	require.NoError(t, insert("duty_cycle", "1"))
	require.NoError(t, insert("max_rows_per_second", "0"))
	b.exec(t, `UPDATE belfry.limits SET duty_cycle = 0.5, max_rows_per_second = 100, priority = NULL, health_checks = false`)
	require.ErrorContains(t, insert("duty_cycle", "0.6"), "allowed values: null (the runner's setting), 0.1 to 0.5")
	require.ErrorContains(t, insert("max_rows_per_second", "0"), "allowed values: null (the runner's setting), 100 to 100")
	require.ErrorContains(t, insert("max_rows_per_second", "101"), "beyond the ceiling")
	require.NoError(t, insert("priority", "1000"))
	require.ErrorContains(t, insert("priority", "1001"), "allowed values: -1000 to 1000", "the column's own bounds hold")
	require.NoError(t, insert("health_checks", "false"))
	require.Equal(t, `{"priority": null, "duty_cycle": 0.5, "health_checks": false, "max_rows_per_second": 100}`,
		one[string](t, b, `SELECT (detail -> 'after')::text FROM belfry.events WHERE subject = 'limits'`))
	_, err := enqueuer.Pool.Exec(t.Context(), `UPDATE belfry.limits SET duty_cycle = 1`)
	require.ErrorContains(t, err, "permission denied")
}

// Who may change a column afterwards may go beyond its ceiling at once: the role that
// executes the INSERT counts, be it by SET ROLE or by a function of its own.
func TestLimits_DoNotBindWhoMayUpdate(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	operator := b.db.Role(t, `GRANT USAGE ON SCHEMA belfry TO :role`, `GRANT INSERT, UPDATE (priority) ON belfry.jobs TO :role`, `GRANT CREATE ON SCHEMA public TO :role`)
	enqueuer := b.db.Role(t, `GRANT USAGE ON SCHEMA belfry TO :role`, `GRANT INSERT ON belfry.jobs TO :role`, `GRANT :role TO "`+operator.User+`"`)
	urgent := `INSERT INTO belfry.jobs (type, category, title, priority) VALUES ('inbox', 'operator_notice', 'x', 9)`
	_, err := operator.Pool.Exec(t.Context(), urgent)
	require.NoError(t, err)
	_, err = operator.Pool.Exec(t.Context(), `INSERT INTO belfry.jobs (type, category, title, health_checks) VALUES ('inbox', 'operator_notice', 'x', false)`)
	require.ErrorContains(t, err, "belfry.jobs.health_checks: false is beyond the ceiling", "column by column")
	_, err = operator.Pool.Exec(t.Context(), `SET LOCAL ROLE "`+enqueuer.User+`"; `+urgent)
	require.ErrorContains(t, err, "belfry.jobs.priority: 9 is beyond the ceiling for "+enqueuer.User)

	_, err = enqueuer.Pool.Exec(t.Context(), urgent)
	require.ErrorContains(t, err, "beyond the ceiling")
	_, err = operator.Pool.Exec(t.Context(), `CREATE FUNCTION public.urgent() RETURNS void LANGUAGE sql SECURITY DEFINER AS $$ `+urgent+` $$`)
	require.NoError(t, err)
	_, err = enqueuer.Pool.Exec(t.Context(), `SELECT public.urgent()`)
	require.NoError(t, err)
}

// Once a job that asked for a row per second, or for tiny chunks, kept its lane for days.
func TestLimits_FloorsKeepALaneFromBeingHeld(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	enqueuer := b.db.Role(t, `GRANT USAGE ON SCHEMA belfry TO :role`, `GRANT INSERT ON belfry.jobs TO :role`)
	const into = `INSERT INTO belfry.jobs (type, category, title, %s) VALUES ('inbox', 'operator_notice', 'x', %s)`
	insert := func(column, value string) error {
		_, err := enqueuer.Pool.Exec(t.Context(), fmt.Sprintf(into, column, value))
		return err
	}
	for _, c := range []struct{ column, below, floor, allowed, key string }{
		{"max_rows_per_second", "99", "100", "null (the runner's setting), 0 (no limit), 100 to 10000000", "min_rows_per_second"},
		{"duty_cycle", "0.05", "0.1", "null (the runner's setting), 0.1 to 1", "min_duty_cycle"},
		{"chunk_target_ms", "19", "20", "null (the runner's setting), 20 to 1000", "min_chunk_target"},
		{"max_chunk_rows", "99", "100", "null (the runner's setting), 100 to 50000", "min_chunk_rows"},
		{"priority", "-11", "-10", "-10 to 0", "min_priority"},
	} {
		err := insert(c.column, c.below)
		var refused *pgconn.PgError
		require.ErrorAs(t, err, &refused, c.column)
		require.Equal(t, []string{"23514", c.column}, []string{refused.Code, refused.ColumnName})
		require.Equal(t, "belfry.jobs."+c.column+": "+c.below+" is below the floor for "+enqueuer.User+"; allowed values: "+c.allowed, refused.Message)
		require.Contains(t, refused.Hint, "An operator moves the floor: belfry limits set "+c.key+"=…")
		require.NoError(t, insert(c.column, c.floor))
		require.NoError(t, insert(c.column, "DEFAULT"))
		b.exec(t, fmt.Sprintf(into, c.column, c.below)) // a role that may UPDATE the column
	}
	require.NoError(t, insert("max_rows_per_second", "0"), "no limit is not below a floor")

	for _, c := range []struct{ set, problem string }{
		{"max_rows_per_second = 99", "belfry.limits.min_rows_per_second: 100 is above max_rows_per_second; allowed values: null (no floor), 1 to 99"},
		{"min_duty_cycle = 0.6, duty_cycle = 0.5", "belfry.limits.min_duty_cycle: 0.6 is above duty_cycle; allowed values: null (no floor), 0.01 to 0.5"},
		{"min_chunk_target_ms = 1001", "belfry.limits.min_chunk_target_ms: 1001 is above chunk_target_ms; allowed values: null (no floor), 1 to 1000"},
		{"min_chunk_rows = 50001", "belfry.limits.min_chunk_rows: 50001 is above max_chunk_rows; allowed values: null (no floor), 1 to 50000"},
	} {
		_, err := b.db.Pool.Exec(t.Context(), `UPDATE belfry.limits SET `+c.set)
		require.ErrorContains(t, err, c.problem)
	}
	b.exec(t, `UPDATE belfry.limits SET min_rows_per_second = NULL, min_duty_cycle = NULL, min_chunk_target_ms = NULL, min_chunk_rows = NULL`)
	require.NoError(t, insert("max_rows_per_second, duty_cycle, chunk_target_ms, max_chunk_rows", "1, 0.01, 1, 1"))
}

// Once a role that may only enqueue slowed every claim by jobs of the far future, each in a lane of its own.
func TestLimits_LanesThatWaitAreBounded(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	enqueuer := b.db.Role(t, `GRANT USAGE ON SCHEMA belfry TO :role`, `GRANT INSERT ON belfry.jobs TO :role`)
	const into = `INSERT INTO belfry.jobs (type, category, title, schedule_at, idempotency_key, lane) `
	insert := func(lane string) error {
		_, err := enqueuer.Pool.Exec(t.Context(), into+`VALUES ('inbox', 'operator_notice', 'x', '2099-01-01', 'of ' || $1::text, $1) ON CONFLICT DO NOTHING`, lane)
		return err
	}
	_, err := enqueuer.Pool.Exec(t.Context(), into+`SELECT 'inbox', 'operator_notice', 'x', '2099-01-01', 'key ' || n, 'lane' || n FROM generate_series(1, 101) n`)
	require.ErrorContains(t, err, "would be one more lane with a waiting job, and 100 are the limit for "+enqueuer.User+"; allowed values now: default, lanes with a waiting job", "in one statement")
	require.NoError(t, insert("first"))
	_, err = enqueuer.Pool.Exec(t.Context(), into+`SELECT 'inbox', 'operator_notice', 'x', '2099-01-01', 'key ' || n, 'lane' || n FROM generate_series(1, 99) n`)
	require.NoError(t, err)

	var refused *pgconn.PgError
	require.ErrorAs(t, insert("another"), &refused)
	require.Equal(t, []string{"23514", "lane"}, []string{refused.Code, refused.ColumnName})
	require.Contains(t, refused.Hint, "INSERT INTO belfry.lanes (name) VALUES ('another')")
	require.NoError(t, insert("default"), "all may use it")
	_, err = enqueuer.Pool.Exec(t.Context(), into+`VALUES ('inbox', 'operator_notice', 'x', '2099-01-01', NULL, 'lane99')`)
	require.NoError(t, err, "a job waits in it")
	b.exec(t, into+`VALUES ('inbox', 'operator_notice', 'x', '2099-01-01', NULL, 'operators')`)
	b.exec(t, refused.Hint[len("An operator adds it: "):])
	require.NoError(t, insert("another"))
	b.exec(t, `SELECT belfry.abort(id) FROM belfry.jobs WHERE lane = 'first'`)
	require.NoError(t, insert("first"), "a repeated key opens no lane")
}

// The error for an unknown segment lists segments only to roles that may read them.
func TestEnqueue_NamesSegmentsToTheirReaders(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	b.exec(t, `INSERT INTO belfry.segments (name) VALUES ('insolvent')`)
	const insert = `INSERT INTO belfry.jobs (type, category, title, audience) VALUES ('inbox', 'operator_notice', 'x', '{"kind": "segment", "segment": "nobody"}')`
	grants := []string{`GRANT USAGE ON SCHEMA belfry TO :role`, `GRANT INSERT ON belfry.jobs TO :role`}
	_, err := b.db.Role(t, grants...).Pool.Exec(t.Context(), insert)
	require.ErrorContains(t, err, `"nobody" does not exist; existing segments: those of belfry.segments, which `)
	require.NotContains(t, err.Error(), "insolvent")
	_, err = b.db.Role(t, append(grants, `GRANT SELECT ON belfry.segments TO :role`)...).Pool.Exec(t.Context(), insert)
	require.ErrorContains(t, err, `"nobody" does not exist; existing segments: insolvent`)
}

// Counts of a job at their maximum, which a role that runs jobs can write, stop no claim.
func TestRunner_ClaimsAJobWithTheHighestCounts(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	id := b.enqueue(t, job.Spec{})
	b.exec(t, `UPDATE belfry.jobs SET attempts = 2147483647 WHERE id = $1`, id)
	b.runDue(t, b.runner(t, "r"))
	require.Equal(t, job.Processed, b.state(t, id).Status)
}

// Any role that may INSERT may use an existing group_id. With 40,000 more jobs in a group, an abort of the group
// exceeded its deadline and was rolled back.
func TestLimits_BoundTheJobsOfAGroup(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	enqueuer := b.db.Role(t, `GRANT USAGE ON SCHEMA belfry TO :role`, `GRANT INSERT ON belfry.jobs TO :role`)
	const group = `'0b7a3b42-96a4-4a5b-9d5e-6a1b5f6f7c11'`
	insert := `INSERT INTO belfry.jobs (type, category, title, group_id, idempotency_key) SELECT 'inbox', 'operator_notice', 'x', ` + group + `, 'k' || g FROM generate_series(%d, %d) g ON CONFLICT DO NOTHING`
	_, err := enqueuer.Pool.Exec(t.Context(), fmt.Sprintf(insert, 1, 101))
	var refused *pgconn.PgError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, []string{"23514", "group_id"}, []string{refused.Code, refused.ColumnName})
	require.Contains(t, refused.Message, "has 100 jobs, the limit for "+enqueuer.User+"; allowed values: null, and groups with fewer jobs")
	_, err = enqueuer.Pool.Exec(t.Context(), fmt.Sprintf(insert, 1, 100))
	require.NoError(t, err)
	_, err = enqueuer.Pool.Exec(t.Context(), fmt.Sprintf(insert, 7, 7))
	require.NoError(t, err, "a repeated key adds no job")
	_, err = enqueuer.Pool.Exec(t.Context(), fmt.Sprintf(insert, 101, 101))
	require.ErrorAs(t, err, &refused)
	b.exec(t, fmt.Sprintf(insert, 101, 101))
	_, err = b.db.Pool.Exec(t.Context(), `SELECT set_config('belfry.limited', 'an author', true); `+fmt.Sprintf(insert, 102, 102))
	require.ErrorContains(t, err, "the limit for an author")
}
