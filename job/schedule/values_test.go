package schedule_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/job/schedule"
)

// quiz is a schedule with values of recipients, whose query runs as the guarded reader.
func (g *guarded) quiz(query string) schedule.Definition {
	d := popular()
	d.Template.Type, d.Template.Types, d.Template.Title = "", []string{"inbox", "push"}, "Your quiz, {{value.points}} points"
	d.Template.Values, d.Query, d.QueryRole = true, query, g.reader
	return d
}

func TestValues_AnOccurrenceEnqueuesOneGroupWithTheRowsOfItsQuery(t *testing.T) {
	t.Parallel()
	g := setupGuarded(t)
	g.put(t, g.quiz(`SELECT n AS channel_id, jsonb_build_object('points', 10 * n, 'by', current_user) AS value FROM generate_series(3, 1, -1) n`), "05-01 08:00:00")
	made, err := g.store.Try(t.Context(), g.get(t, "popular"), operator)
	require.NoError(t, err)
	require.Len(t, made, 1)
	require.Len(t, made[0].Values, 3)
	require.Zero(t, one[int](t, g.bundle, `SELECT count(*) FROM belfry.job_values`), "a trial leaves nothing")

	fired := g.fireAs(t, "05-01 09:00:00")
	require.Empty(t, fired.Failed)
	require.Len(t, fired.Occurrences[0].Jobs, 2)
	require.Equal(t, []string{"inbox", "push"}, one[[]string](t, g.bundle, `SELECT array_agg(type ORDER BY id) FROM belfry.jobs`))
	require.Equal(t, []string{`1 {"by": "` + g.reader + `", "points": 10}`, `2 {"by": "` + g.reader + `", "points": 20}`, `3 {"by": "` + g.reader + `", "points": 30}`},
		one[[]string](t, g.bundle, `SELECT array_agg(channel_id || ' ' || value ORDER BY channel_id) FROM belfry.job_values WHERE job_id = $1`, fired.Occurrences[0].Jobs[1]))
	require.Equal(t, 6, one[int](t, g.bundle, `SELECT count(*) FROM belfry.job_values`))
	require.Equal(t, "schedule:popular:2026-05-01T09:00:00Z", one[string](t, g.bundle, `SELECT min(idempotency_key) FROM belfry.jobs`))

	g.exec(t, `UPDATE belfry.schedules SET query = 'SELECT 1 AS channel_id, NULL AS value WHERE false'`)
	fired = g.fireAs(t, "05-02 09:00:00")
	require.Empty(t, fired.Failed)
	require.Empty(t, fired.Occurrences[0].Jobs, "nobody has a value")
	jobs, err := g.store.RunNow(t.Context(), "popular", operator)
	require.NoError(t, err)
	require.Empty(t, jobs)
}

func TestValues_ABadRowEnqueuesNothing(t *testing.T) {
	t.Parallel()
	g := setupGuarded(t)
	g.put(t, g.quiz(`SELECT 1`), "05-01 08:00:00")
	const columns = "is not a recipient with a value; allowed columns: channel_id, a bigint, and value, a JSON object"
	for query, problem := range map[string]string{
		`SELECT 'x' AS title`: "row 1 of the query: (title) " + columns,
		`SELECT 1 AS channel_id, '{}'::jsonb AS value, 'x' AS title`:                   "row 1 of the query: (channel_id, value, title) " + columns,
		`SELECT 1 AS channel_id`:                                                       columns,
		`SELECT '{}'::jsonb AS value`:                                                  columns,
		`SELECT 'a' AS channel_id, '{}'::jsonb AS value`:                               columns,
		`SELECT 1.5 AS channel_id, '{}'::jsonb AS value`:                               columns,
		`SELECT 1 AS channel_id, NULL AS value`:                                        "belfry.job_values.value: is a JSON null; allowed values: JSON objects",
		`SELECT 7 AS channel_id, '{}'::jsonb AS value FROM generate_series(1, 2)`:      "query: has channel 7 twice; allowed: one row of a channel",
		`SELECT 1 AS channel_id, '[1]'::jsonb AS value`:                                "belfry.job_values.value: is a JSON array; allowed values: JSON objects of up to 4096 bytes",
		`SELECT 1 AS channel_id, jsonb_build_object('a', repeat('x', 5000)) AS value`:  "has 5009 bytes; allowed values: JSON objects of up to 4096 bytes",
		`SELECT 1 AS channel_id, jsonb_build_object('a', repeat('x', 70000)) AS value`: "(channel_id, value) " + columns,
	} {
		g.exec(t, `UPDATE belfry.schedules SET query = $1`, query)
		_, err := g.store.Try(t.Context(), g.get(t, "popular"), operator)
		require.ErrorContains(t, err, problem, query)
		require.True(t, schedule.OwnFault(err), "%s: %v", query, err)
	}
	g.exec(t, `UPDATE belfry.schedules SET query = 'SELECT 5 AS channel_id, ''{}''::jsonb AS value, ''Kim Minjun'' AS a_name'`)
	_, err := g.store.Try(t.Context(), g.get(t, "popular"), operator)
	require.ErrorContains(t, err, columns)
	require.NotContains(t, err.Error(), "Kim", "schedules.last_error and events would keep it after an erasure")
	require.Zero(t, one[int](t, g.bundle, `SELECT count(*) FROM belfry.jobs`))
}

func TestValues_DefinitionsWithoutAQueryOrATitleAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := popular()
	d.Template.Values = true
	require.ErrorContains(t, d.Validate(""), "template.values: is for a schedule with a query; allowed without one is false")
	d.Query, d.Template.Title = `SELECT 1 AS channel_id, '{}'::jsonb AS value`, ""
	require.ErrorContains(t, d.Validate(""), "template.title: has 0 characters")
	for template, problem := range map[string]string{
		`{"type": "inbox", "category": "popular_content", "title": "x", "values": true}`: "belfry.schedules.template.values: true is not allowed without a query; allowed values: true, false",
		`{"type": "inbox", "category": "popular_content", "title": "x", "values": 1}`:    "belfry.schedules.template.values: 1 is not allowed",
	} {
		_, err := b.db.Pool.Exec(t.Context(), `INSERT INTO belfry.schedules (name, cron, template) VALUES ('v', '0 9 * * *', $1)`, template)
		require.ErrorContains(t, err, problem)
	}
	_, err := b.db.Pool.Exec(t.Context(), `INSERT INTO belfry.schedules (name, cron, query, template) VALUES ('v', '0 9 * * *', 'SELECT 1', '{"type": "inbox", "category": "popular_content", "values": true}')`)
	require.ErrorContains(t, err, "belfry.schedules.template.title: is required without a query of jobs")
}

// A firing has all rows in memory: more rows, or larger ones, are refused and not truncated.
func TestLong_ValuesAreBounded(t *testing.T) {
	t.Parallel()
	g := setupGuarded(t)
	g.put(t, g.quiz(`SELECT 1`), "05-01 08:00:00")
	for query, problem := range map[string]string{
		`SELECT n AS channel_id, '{}'::jsonb AS value FROM generate_series(1, 1000001) n`:                              "query: has more than 1000000 rows; the maximum number of recipients with a value is 1000000",
		`SELECT n AS channel_id, jsonb_build_object('a', repeat('x', 4000)) AS value FROM generate_series(1, 20000) n`: "query: has rows of more than 64 MiB; enqueue the job with its values by SQL instead",
	} {
		g.exec(t, `UPDATE belfry.schedules SET query_timeout = '5m', query = $1`, query)
		_, err := g.store.Try(t.Context(), g.get(t, "popular"), operator)
		require.ErrorContains(t, err, problem)
		require.True(t, schedule.OwnFault(err))
	}
	g.exec(t, `UPDATE belfry.schedules SET query = 'SELECT n AS channel_id, ''{"a": 1}''::jsonb AS value FROM generate_series(1, 1000000) n'`)
	made, err := g.store.Try(t.Context(), g.get(t, "popular"), operator)
	require.NoError(t, err)
	require.Len(t, made[0].Values, 1_000_000)
}
