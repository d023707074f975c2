package sqlfile_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/belfryhq/belfry/internal/sqlfile"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

const good = `-- Statements of the job aggregate.
--
-- ---- claims ----

-- name: JobClaim :one
-- Claims a due job.
--   @lane  the lane
-- No row: none is due.
UPDATE belfry.jobs
SET status = 'RUNNING' -- the edge PENDING to RUNNING
-- inside a statement

WHERE lane = @lane
RETURNING id;

-- ---- reading ----

-- name: JobList :many
-- Lists jobs.

SELECT id FROM belfry.jobs

-- name: JobTouch :exec
-- Renews the heartbeat.
UPDATE belfry.jobs SET heartbeat_at = now();
-- name: SessionSetup :script
-- Prepares a session.
SET LOCAL lock_timeout = '1s';
SET LOCAL work_mem = '8MB';
`

func TestParse_ReadsEachPart(t *testing.T) {
	t.Parallel()
	want := sqlfile.Queries{
		"JobClaim": {
			Name: "JobClaim",
			File: "queries.sql",
			Mode: sqlfile.One,
			Doc:  "Claims a due job.\n  @lane  the lane\nNo row: none is due.",
			SQL: "UPDATE belfry.jobs\nSET status = 'RUNNING' -- the edge PENDING to RUNNING\n-- inside a statement\n\n" +
				"WHERE lane = @lane\nRETURNING id",
		},
		"JobList":  {Name: "JobList", File: "queries.sql", Mode: sqlfile.Many, Doc: "Lists jobs.", SQL: "SELECT id FROM belfry.jobs"},
		"JobTouch": {Name: "JobTouch", File: "queries.sql", Mode: sqlfile.Exec, Doc: "Renews the heartbeat.", SQL: "UPDATE belfry.jobs SET heartbeat_at = now()"},
		"SessionSetup": {
			Name: "SessionSetup", File: "queries.sql", Mode: sqlfile.Script, Doc: "Prepares a session.",
			SQL: "SET LOCAL lock_timeout = '1s';\nSET LOCAL work_mem = '8MB';",
		},
	}
	for name, text := range map[string]string{"Unix": good, "Windows": strings.ReplaceAll(good, "\n", "\r\n"), "no final newline": strings.TrimSuffix(good, "\n")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := sqlfile.Parse("queries.sql", text)
			require.NoError(t, err)
			require.Equal(t, want, got)
		})
	}
}

func TestParse_NamesEachFault(t *testing.T) {
	t.Parallel()
	const header = ": want a header as `-- name: JobClaim :one`, with one of :one, :many, :exec, :script; got "
	tests := map[string]struct {
		text string
		want []string
	}{
		"empty":               {"", []string{"1: no statement"}},
		"only a comment":      {"-- nothing here\n", []string{"1: no statement"}},
		"text before headers": {"SELECT 1\n-- name: A :one\n-- doc\nSELECT 1", []string{"1: text before the first header"}},
		"no comment":          {"-- name: A :one\nSELECT 1", []string{"1: A has no comment under its header; say its purpose, its parameters and what no row means"}},
		"blank comment":       {"-- name: A :one\n--\n-- \nSELECT 1", []string{"1: A has no comment under its header; say its purpose, its parameters and what no row means"}},
		"no statement":        {"-- name: A :one\n-- doc\n\n-- name: B :one\n-- doc\nSELECT 1", []string{"1: A has no statement"}},
		"only a semicolon":    {"-- name: A :one\n-- doc\n;\n", []string{"1: A has no statement"}},
		"repeated name":       {"-- name: A :one\n-- doc\nSELECT 1\n-- name: A :exec\n-- doc\nSELECT 2", []string{"4: A is defined twice"}},
		"no mode":             {"-- name: A\n-- doc\nSELECT 1", []string{"1" + header + "\"-- name: A\"", "3: text before the first header"}},
		"unknown mode":        {"-- name: A :row\n-- doc\nSELECT 1", []string{"1" + header + "\"-- name: A :row\"", "3: text before the first header"}},
		"lower-case name":     {"-- name: claim :one\n-- doc\nSELECT 1", []string{"1" + header + "\"-- name: claim :one\"", "3: text before the first header"}},
		"header with a slip in the middle": {
			"-- name: A :one\n-- doc\nSELECT 1\n--name: B :one\n-- doc\nSELECT 2",
			[]string{"4" + header + "\"--name: B :one\""},
		},
		"several": {
			"x\n-- name: A :one\nSELECT 1\n-- name: A :one\n-- doc\n",
			[]string{
				"1: text before the first header",
				"2: A has no comment under its header; say its purpose, its parameters and what no row means",
				"4: A has no statement", "4: A is defined twice",
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := sqlfile.Parse("job/queries.sql", tt.text)
			require.ErrorIs(t, err, sqlfile.ErrSyntax)
			require.Nil(t, got)
			var want []string
			for _, w := range tt.want {
				want = append(want, "sqlfile: malformed file: job/queries.sql:"+w)
			}
			require.EqualError(t, err, strings.Join(want, "\n"))
		})
	}
}

func TestQueries_AnswerByName(t *testing.T) {
	t.Parallel()
	q := sqlfile.MustParse(good)
	require.Equal(t, "SELECT id FROM belfry.jobs", q.SQL("JobList"))
	require.Equal(t, sqlfile.Many, q.Get("JobList").Mode)
	require.PanicsWithValue(t, `sqlfile: no statement is named "JobLost"`, func() { q.SQL("JobLost") })
	require.PanicsWithValue(t, `sqlfile: no statement is named ""`, func() { q.Get("") })
}

func TestMustLoad_ReadsTheFilesOfAFileSystem(t *testing.T) {
	t.Parallel()
	const lane = "-- name: LaneList :many\n-- Lists.\nSELECT 3;\n"
	all := sqlfile.MustLoad(fstest.MapFS{
		"queries.sql": {Data: []byte(good)}, "lane.sql": {Data: []byte(lane)},
		"README.md": {Data: []byte("no SQL")}, "old/lane.sql": {Data: []byte(lane)},
	})
	want := sqlfile.MustParse(good)
	want["LaneList"] = sqlfile.Query{Name: "LaneList", File: "lane.sql", Mode: sqlfile.Many, Doc: "Lists.", SQL: "SELECT 3"}
	require.Equal(t, want, all)
	require.PanicsWithError(t, "sqlfile: malformed file: b.sql:1: LaneList is defined twice\nsqlfile: malformed file: c.sql:1: no statement", func() {
		sqlfile.MustLoad(fstest.MapFS{"a.sql": {Data: []byte(lane)}, "b.sql": {Data: []byte(lane)}, "c.sql": {}})
	})
	require.PanicsWithError(t, "sqlfile: open *.sql: file does not exist", func() { sqlfile.MustLoad(fstest.MapFS{}) })
	require.PanicsWithError(t, "sqlfile: malformed file: queries.sql:1: no statement", func() { sqlfile.MustParse("") })
}

// Parse reads files of the repository only, so it has nothing to defend
// against; but it must not lose or invent text.
func FuzzParse(f *testing.F) {
	f.Add(good)
	f.Add("-- name: A :one\n-- doc\nSELECT 1;\n\n-- name: B :script\n-- doc\nSELECT 1;")
	f.Add("--name: A :one\n\r\n-- name: A :one\n--")
	f.Fuzz(func(t *testing.T, text string) {
		queries, err := sqlfile.Parse("f.sql", text)
		if err != nil {
			require.ErrorIs(t, err, sqlfile.ErrSyntax)
			return
		}
		require.NotEmpty(t, queries)
		headers := 0
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "-- name: ") {
				headers++
			}
		}
		require.Len(t, queries, headers)
		for name, q := range queries {
			require.Equal(t, name, q.Name)
			require.NotEmpty(t, q.Doc)
			require.NotEmpty(t, q.SQL)
			require.NotContains(t, "\n"+q.SQL, "\n-- name:")
			for line := range strings.Lines(q.SQL) {
				require.Contains(t, text, strings.TrimSuffix(line, "\n"))
			}
		}
	})
}
