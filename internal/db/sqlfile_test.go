package db

import (
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

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

// goodQueries are those of good.
type goodQueries struct {
	sessionSetup, jobTouch, jobList, jobClaim string
}

func TestMustQueries_ReadsEachPart(t *testing.T) {
	t.Parallel()
	want := goodQueries{
		jobClaim: "UPDATE belfry.jobs\nSET status = 'RUNNING' -- the edge PENDING to RUNNING\n-- inside a statement\n\n" +
			"WHERE lane = @lane\nRETURNING id",
		jobList:      "SELECT id FROM belfry.jobs",
		jobTouch:     "UPDATE belfry.jobs SET heartbeat_at = now()",
		sessionSetup: "SET LOCAL lock_timeout = '1s';\nSET LOCAL work_mem = '8MB';",
	}
	for name, text := range map[string]string{"Unix": good, "Windows": strings.ReplaceAll(good, "\n", "\r\n"), "no final newline": strings.TrimSuffix(good, "\n")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, want, MustQueries[goodQueries](files(text)))
		})
	}
}

// files is a file system of queries.sql alone.
func files(text string) fstest.MapFS { return fstest.MapFS{"queries.sql": {Data: []byte(text)}} }

func TestMustQueries_NamesEachFault(t *testing.T) {
	t.Parallel()
	const header = ": want a header as `-- name: JobClaim :one`, with one of :one, :many, :exec, :script; got "
	tests := map[string]struct {
		text string
		want []string
	}{
		"empty":               {"", []string{"1: no statement"}},
		"only a comment":      {"-- nothing here\n", []string{"1: no statement"}},
		"text before headers": {"SELECT 1\n-- name: A :one\n-- doc\nSELECT 1", []string{"1: text before the first header"}},
		"no comment":          {"-- name: A :one\nSELECT 1", []string{"1: A has no comment under its header; describe its purpose, its parameters and the meaning of no row"}},
		"blank comment":       {"-- name: A :one\n--\n-- \nSELECT 1", []string{"1: A has no comment under its header; describe its purpose, its parameters and the meaning of no row"}},
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
				"2: A has no comment under its header; describe its purpose, its parameters and the meaning of no row",
				"4: A has no statement", "4: A is defined twice",
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var want []string
			for _, w := range tt.want {
				want = append(want, "db: malformed file: queries.sql:"+w)
			}
			require.PanicsWithError(t, strings.Join(want, "\n"), func() { MustQueries[struct{ a, b string }](files(tt.text)) })
		})
	}
}

// Thus a name that a package's Go files use is that of a statement.
func TestMustQueries_WantsAFieldForEachStatementAndAStatementForEachField(t *testing.T) {
	t.Parallel()
	const a, b = "-- name: A :one\n-- doc\nSELECT 1\n", "-- name: B :one\n-- doc\nSELECT 2\n"
	for name, tt := range map[string]struct {
		must func(fs.FS)
		want string
	}{
		"a field without a statement": {must[struct{ a, b, c, d string }], "no statement is named D, as the field d is"},
		"a statement without a field": {must[struct{ a, b string }], "c.sql:1: C has no field"},
		"several of them":             {must[struct{}], "ab.sql:1: A has no field\nab.sql:4: B has no field\nc.sql:1: C has no field"},
		"a field in upper case":       {must[struct{ a, b, C string }], "c.sql:1: the field C string; want a string in lower case"},
		"a field of another type": {must[struct {
			a, b string
			c    []byte
		}], "c.sql:1: the field c []uint8; want a string in lower case"},
		"another name": {must[struct{ a, b, cc string }], "no statement is named Cc, as the field cc is\nc.sql:1: C has no field"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := "db: malformed file: " + strings.ReplaceAll(tt.want, "\n", "\ndb: malformed file: ")
			require.PanicsWithError(t, want, func() {
				tt.must(fstest.MapFS{"ab.sql": {Data: []byte(a + b)}, "c.sql": {Data: []byte(strings.ReplaceAll(a, "A", "C"))}})
			})
		})
	}
}

func must[T any](fsys fs.FS) { MustQueries[T](fsys) }

func TestMustQueries_ReadsTheFilesOfAFileSystem(t *testing.T) {
	t.Parallel()
	const lane = "-- name: LaneList :many\n-- Lists.\nSELECT 3;\n"
	type all struct{ jobClaim, jobList, jobTouch, sessionSetup, laneList string }
	got := MustQueries[all](fstest.MapFS{
		"queries.sql": {Data: []byte(good)}, "lane.sql": {Data: []byte(lane)},
		"README.md": {Data: []byte("no SQL")}, "old/lane.sql": {Data: []byte(lane)},
	})
	want := MustQueries[goodQueries](files(good))
	require.Equal(t, all{want.jobClaim, want.jobList, want.jobTouch, want.sessionSetup, "SELECT 3"}, got)
	require.PanicsWithError(t, "db: malformed file: b.sql:1: LaneList is defined twice\ndb: malformed file: c.sql:1: no statement", func() {
		must[struct{ laneList string }](fstest.MapFS{"a.sql": {Data: []byte(lane)}, "b.sql": {Data: []byte(lane)}, "c.sql": {}})
	})
	require.PanicsWithError(t, "db: open *.sql: file does not exist", func() { must[struct{}](fstest.MapFS{}) })
}

func TestQueriesByName_HasEachStatement(t *testing.T) {
	t.Parallel()
	q := MustQueries[goodQueries](files(good))
	require.Equal(t, map[string]string{"JobClaim": q.jobClaim, "JobList": q.jobList, "JobTouch": q.jobTouch, "SessionSetup": q.sessionSetup}, QueriesByName(q))
	require.Equal(t, "JobList", QueryName(q, q.jobList))
	require.Empty(t, QueryName(q, "SELECT 7"))
}

// The scanner reads files of the repository only, so it has nothing to defend
// against; but it must not lose or invent text.
func FuzzScanner(f *testing.F) {
	f.Add(good)
	f.Add("-- name: A :one\n-- doc\nSELECT 1;\n\n-- name: B :script\n-- doc\nSELECT 1;")
	f.Add("--name: A :one\n\r\n-- name: A :one\n--")
	f.Fuzz(func(t *testing.T, text string) {
		statements, err := load(files(text))
		if err != nil {
			require.ErrorIs(t, err, errSyntax)
			return
		}
		require.NotEmpty(t, statements)
		headers := 0
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "-- name: ") {
				headers++
			}
		}
		require.Len(t, statements, headers)
		for name, s := range statements {
			require.Equal(t, name, s.name)
			require.NotEmpty(t, s.sql)
			require.NotContains(t, "\n"+s.sql, "\n-- name:")
			for line := range strings.Lines(s.sql) {
				require.Contains(t, text, strings.TrimSuffix(line, "\n"))
			}
		}
	})
}
