package sqlfile_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/internal/sqlfile"
)

// recorder is a test that CheckUse may fail.
type recorder struct{ problems []string }

func (*recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

// The package of the fixtures: two statements, both used.
const (
	fixtureSQL = "-- name: JobClaim :one\n-- Claims.\nSELECT 1;\n\n-- name: JobList :many\n-- Lists.\nSELECT 2;\n"

	fixtureEmbed = `package job

import (
	_ "embed"

	"github.com/belfryhq/belfry/internal/sqlfile"
)

//go:embed queries.sql
var queriesSQL string

var queries = sqlfile.MustParse(queriesSQL)
`
	fixtureUse = `package job

func claim() string { return queries.SQL("JobClaim") }

func list() string {
	q := queries.Get("JobList")
	return q.SQL
}
`
)

// Faults that several cases expect.
const (
	improper = `queries is used other than as queries.SQL("Name") or queries.Get("Name")`
	hidden   = "SQL in Go: move it to queries.sql, or say why not with `//sqlfile:allow reason` on the line or above it"
)

// uses are packages for CheckUse and what it says of them.
var uses = map[string]struct {
	files map[string]string // over the good fixture; empty removes the file
	want  []string
}{
	"nothing wrong": {},
	"a missing statement": {
		files: map[string]string{"more.go": "package job\n\nvar x = queries.SQL(\"JobLost\")\n"},
		want:  []string{`more.go:3: no statement is named "JobLost"`},
	},
	"a missing statement in a test": {
		files: map[string]string{"more_test.go": "package job\n\nvar x = queries.Get(\"JobLost\")\n"},
		want:  []string{`more_test.go:3: no statement is named "JobLost"`},
	},
	"an unused statement": {
		files: map[string]string{"queries.sql": fixtureSQL + "-- name: JobOld :one\n-- Old.\nSELECT 3;\n"},
		want:  []string{"queries.sql: statement JobOld is used by no Go file outside tests"},
	},
	"a statement used by tests only": {
		files: map[string]string{
			"queries.sql":  fixtureSQL + "-- name: JobOld :one\n-- Old.\nSELECT 3;\n",
			"more_test.go": "package job\n\nvar x = queries.SQL(\"JobOld\")\n",
		},
		want: []string{"queries.sql: statement JobOld is used by no Go file outside tests"},
	},
	"a computed name": {
		files: map[string]string{"more.go": "package job\n\nfunc f(n string) string { return queries.SQL(\"Job\" + n) }\n"},
		want:  []string{"more.go:3: the name of the statement is neither a string literal nor a parameter of the function"},
	},
	"a local name": {
		files: map[string]string{"more.go": "package job\n\nfunc f() string {\n\tn := \"JobClaim\"\n\treturn queries.SQL(n)\n}\n"},
		want:  []string{"more.go:5: the name of the statement is neither a string literal nor a parameter of the function"},
	},
	"a package variable like a parameter": {
		files: map[string]string{"more.go": "package job\n\nfunc f(name string) string { return queries.SQL(name) }\n\nvar name = \"JobClaim\"\n\nvar x = queries.SQL(name)\n"},
		want:  []string{"more.go:7: the name of the statement is neither a string literal nor a parameter of the function"},
	},
	"names passed on": {
		files: map[string]string{"use.go": `package job

type runner struct{}

func (r runner) claim() string { return r.run(1, 2, "JobClaim") + list("JobLost") }

func (r runner) run(n, limit int, statement string) string { return list(statement) }

func list(name string) string { return queries.SQL(name) }

var x = list("JobList")

func computed(s string) string { return list(s + "x") }
`},
		want: []string{
			`use.go:5: no statement is named "JobLost"`,
			"use.go:13: the name of the statement is neither a string literal nor a parameter of the function",
		},
	},
	"an index": {
		files: map[string]string{"more.go": "package job\n\nvar x = queries[\"JobClaim\"]\n"},
		want:  []string{"more.go:3: " + improper},
	},
	"a hand-over": {
		files: map[string]string{"more.go": "package job\n\nvar x = f(queries)\n"},
		want:  []string{"more.go:3: " + improper},
	},
	"a method value": {
		files: map[string]string{"more.go": "package job\n\nvar x = queries.SQL\n"},
		want:  []string{"more.go:3: " + improper},
	},
	"the same word elsewhere": {
		files: map[string]string{"more.go": `package job

type page struct{ queries int }

func (p page) count(other page) int { return p.queries + other.queries }

var p = page{queries: 1}
`},
	},
	"SQL in every spelling": {
		files: map[string]string{"more.go": "package job\n\nvar (\n\ta = \"SELECT 1\"\n\tb = `\n\t\tINSERT\n\t\tINTO x`\n\tc = \" UPDATE x\"\n" +
			"\td = \"DELETE \" + a\n\te = \"WITH x AS\"\n\tg = \"COPY\\tx\"\n\th = \"SELECTED\"\n\ti = \"select a job\"\n\tj = \"COPY\"\n)\n"},
		want: []string{
			"more.go:4: " + hidden, "more.go:5: " + hidden, "more.go:8: " + hidden, "more.go:9: " + hidden,
			"more.go:10: " + hidden, "more.go:11: " + hidden,
		},
	},
	"SQL in a test": {
		files: map[string]string{"more_test.go": "package job\n\nconst a = \"SELECT 1\"\n"},
	},
	"allowed SQL": {
		files: map[string]string{"more.go": "package job\n\n//sqlfile:allow text of the help\nconst a = \"SELECT 1\"\n\n" +
			"const b = \"UPDATE x\" //sqlfile:allow text of the help\n\nconst c = \"DELETE x\"\n"},
		want: []string{"more.go:8: " + hidden},
	},
	"allowed without a reason": {
		files: map[string]string{"more.go": "package job\n\n//sqlfile:allow\nconst a = \"SELECT 1\"\n"},
		want:  []string{"more.go:3: //sqlfile:allow without a reason", "more.go:4: " + hidden},
	},
	"no variable": {
		files: map[string]string{
			"queries.sql": "-- name: JobClaim :one\n-- Claims.\nSELECT 1;\n",
			"embed.go":    "", "use.go": "package job\n\nfunc f() { queries := sqlfile.MustParse(\"\"); _ = queries.SQL(\"JobClaim\") }\n",
		},
		want: []string{
			"no package variable is made with sqlfile.MustParse, MustLoad or Parse",
			"queries.sql: statement JobClaim is used by no Go file outside tests",
		},
	},
	"another name and constructor": {
		files: map[string]string{
			"embed.go": "package job\n\nvar statements = sqlfile.MustLoad(files)\n",
			"use.go":   "package job\n\nvar a, b = statements.SQL(\"JobClaim\"), statements.SQL(`JobList`)\n",
		},
	},
	"several files": {
		files: map[string]string{
			"lane.sql": "-- name: LaneList :many\n-- Lists.\nSELECT 3;\n\n-- name: LaneOld :many\n-- Old.\nSELECT 4;\n",
			"embed.go": "package job\n\nvar queries = sqlfile.MustLoad(files)\n",
			"more.go":  "package job\n\nvar x = queries.SQL(\"LaneList\")\n",
		},
		want: []string{"lane.sql: statement LaneOld is used by no Go file outside tests"},
	},
	"several files of which one is parsed": {
		files: map[string]string{
			"lane.sql": "-- name: LaneList :many\n-- Lists.\nSELECT 3;\n",
			"more.go":  "package job\n\nvar x = queries.SQL(\"LaneList\")\n",
		},
		want: []string{"embed.go:12: queries is made from one of several .sql files: make it with sqlfile.MustLoad"},
	},
	"a malformed file": {
		files: map[string]string{"queries.sql": "-- name: JobClaim :one\nSELECT 1"},
		want: []string{"checking the use of SQL in DIR: sqlfile: malformed file: queries.sql:1: JobClaim has no comment under its header; " +
			"say its purpose, its parameters and what no row means"},
	},
	"no file": {
		files: map[string]string{"queries.sql": ""},
		want:  []string{"checking the use of SQL in DIR: sqlfile: open *.sql: file does not exist"},
	},
}

func TestCheckUse_NamesEachFault(t *testing.T) {
	t.Parallel()
	for name, tt := range uses {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			files := map[string]string{"queries.sql": fixtureSQL, "embed.go": fixtureEmbed, "use.go": fixtureUse}
			for file, text := range tt.files {
				files[file] = text
			}
			for file, text := range files {
				if text != "" {
					require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
				}
			}
			var r recorder
			sqlfile.CheckUse(&r, dir)
			for i, p := range r.problems {
				r.problems[i] = strings.ReplaceAll(p, dir, "DIR")
			}
			require.Equal(t, tt.want, r.problems)
		})
	}
}

// The wording is the parser's own and changes with Go's releases.
func TestCheckUse_ReportsGoThatDoesNotParse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "queries.sql"), []byte(fixtureSQL), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "more.go"), []byte("package\n"), 0o600))
	var r recorder
	sqlfile.CheckUse(&r, dir)
	require.Len(t, r.problems, 1)
	require.Contains(t, r.problems[0], "more.go:1:")
}

func TestCheckUse_TakesATestingTB(t *testing.T) {
	t.Parallel()
	var _ sqlfile.Reporter = t
}
