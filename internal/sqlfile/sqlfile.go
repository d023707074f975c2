// Package sqlfile reads the annotated SQL files that stand beside the Go code
// that runs them.
//
// A file is a sequence of statements, each under a header and a comment:
//
//	-- Statements of the job aggregate.          comment of the file, optional
//
//	-- name: JobFinish :one                      header: name and mode
//	-- Marks a run's job PROCESSED.              comment: becomes Query.Doc
//	-- No row: the fencing token is older.
//	UPDATE belfry.jobs                           statement, up to the next header
//	SET status = 'PROCESSED'
//	WHERE id = @id AND fence = @fence
//	RETURNING id;
//
// The mode says what the caller reads: `:one` row, `:many` rows, `:exec` only
// the count of rows, or `:script` several statements run without arguments.
// The text after the comment is the statement, verbatim, without blank and
// comment lines at its end, and, except in a script, without a closing
// semicolon.
//
// The package that owns the file embeds and parses it once, in a package
// variable that is never written again, and names statements by literals:
//
//	//go:embed queries.sql
//	var queriesSQL string
//
//	var queries = sqlfile.MustParse(queriesSQL)
//
//	rows, err := tx.Query(ctx, queries.SQL("JobFinish"), pgx.StrictNamedArgs{…})
//
// A package with more statements than one file should hold has several, by concept,
// which are one set of names:
//
//	//go:embed *.sql
//	var files embed.FS
//
//	var queries = sqlfile.MustLoad(files)
//
// CheckUse, called from one test of the package, proves that every name used
// exists, that every statement is used, and that no other SQL is hidden in the
// Go files.
//
// Failure behaviour: a malformed file is an error from Parse and a panic from
// MustParse, thus when the program starts. A missing name panics when it is
// asked for, which CheckUse brings forward to the test. The package does not
// parse SQL: a statement PostgreSQL refuses is found by the test that runs it.
package sqlfile

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// Mode says what the caller of a statement reads.
type Mode string

// The modes a header may name.
const (
	One    Mode = "one"    // at most one row
	Many   Mode = "many"   // any number of rows
	Exec   Mode = "exec"   // the command tag only
	Script Mode = "script" // several statements, run without arguments
)

// Query is one annotated statement.
type Query struct {
	// Name is unique in its package's files.
	Name string
	// File is the one that it stands in.
	File string
	// Mode says what the caller reads.
	Mode Mode
	// Doc is the comment under the header, without the comment marks.
	Doc string
	// SQL is the statement.
	SQL string
}

// Queries are the statements of one package. They are not to be changed after Parse, and
// are then safe for concurrent use.
type Queries map[string]Query

// ErrSyntax marks a file that does not follow the format of the package comment.
var ErrSyntax = errors.New("sqlfile: malformed file")

// Parse reads an annotated file of that name. Errors are ErrSyntax, joined, each
// with its line.
func Parse(name, text string) (Queries, error) {
	p := scanner{queries: make(Queries)}
	p.read(name, text)
	return p.result()
}

// MustParse is Parse for an embedded queries.sql; it panics on an error.
func MustParse(text string) Queries {
	return must(Parse("queries.sql", text))
}

// MustLoad is Parse for every .sql file at the root of an embedded file system; it
// panics on an error.
func MustLoad(fsys fs.FS) Queries { return must(load(fsys)) }

// load parses every .sql file at the root of a file system.
func load(fsys fs.FS) (Queries, error) {
	names, err := fs.Glob(fsys, "*.sql")
	if err == nil && len(names) == 0 {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, fmt.Errorf("sqlfile: open *.sql: %w", err)
	}
	p := scanner{queries: make(Queries)}
	for _, name := range names {
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return nil, fmt.Errorf("sqlfile: %w", err)
		}
		p.read(name, string(text))
	}
	return p.result()
}

func must(q Queries, err error) Queries {
	if err != nil {
		panic(err)
	}
	return q
}

// Get returns the statement of that name. It panics when there is none.
func (q Queries) Get(name string) Query {
	query, ok := q[name]
	if !ok {
		panic(fmt.Sprintf("sqlfile: no statement is named %q", name))
	}
	return query
}

// SQL returns the text of the statement of that name. It panics when there is
// none.
func (q Queries) SQL(name string) string {
	return q.Get(name).SQL
}

// scanner gathers one statement at a time.
//
//	outside ──header──► doc ──first other line──► statement ──header──► doc …
type scanner struct {
	file     string
	queries  Queries
	problems []error

	current Query
	header  int // line of the current header; 0 while outside
	doc     []string
	body    []string
}

// read adds the statements of one file.
func (p *scanner) read(name, text string) {
	p.file = name
	known, faults := len(p.queries), len(p.problems)
	for i, line := range strings.Split(text, "\n") {
		p.line(i+1, strings.TrimRight(line, " \t\r"))
	}
	p.finish()
	if len(p.queries) == known && len(p.problems) == faults {
		p.problem(1, "no statement")
	}
}

// result returns the statements of all files, or what is wrong with them.
func (p *scanner) result() (Queries, error) {
	if err := errors.Join(p.problems...); err != nil {
		return nil, err
	}
	return p.queries, nil
}

// line takes the next one.
func (p *scanner) line(n int, line string) {
	like := headerLike(line)
	if like {
		if name, mode, ok := parseHeader(line); ok {
			p.finish()
			p.current = Query{Name: name, File: p.file, Mode: mode}
			p.header = n
			return
		}
	}
	switch blank := strings.TrimSpace(line) == ""; {
	case like:
		p.problem(n, "want a header as `-- name: JobClaim :one`, with one of :one, :many, :exec, :script; got %q", line)
	case p.header == 0:
		if !blank && !strings.HasPrefix(line, "--") {
			p.problem(n, "text before the first header")
		}
	case len(p.body) == 0 && strings.HasPrefix(line, "--"):
		p.doc = append(p.doc, strings.TrimPrefix(strings.TrimPrefix(line, "--"), " "))
	case len(p.body) == 0 && blank:
	default:
		p.body = append(p.body, line)
	}
}

// headerLike also finds a header with a slip in it, which would otherwise vanish into the
// statement before it as a comment. Neither it nor parseHeader takes a regexp: every start
// of a program reads all lines.
func headerLike(line string) bool {
	comment, ok := strings.CutPrefix(strings.TrimSpace(line), "--")
	comment = strings.TrimSpace(strings.TrimLeft(comment, "-"))
	const word = "name"
	return ok && len(comment) > len(word) && strings.EqualFold(comment[:len(word)], word) &&
		strings.HasPrefix(strings.TrimSpace(comment[len(word):]), ":")
}

// parseHeader reads `-- name: JobClaim :one`.
func parseHeader(line string) (name string, mode Mode, ok bool) {
	line, ok = strings.CutPrefix(line, "-- name: ")
	name, text, found := strings.Cut(line, " :")
	mode = Mode(text)
	ok = ok && found && name != "" && name[0] >= 'A' && name[0] <= 'Z' && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && (r < '0' || r > '9')
	})
	return name, mode, ok && slices.Contains([]Mode{One, Many, Exec, Script}, mode)
}

// finish checks and keeps the current statement.
func (p *scanner) finish() {
	if p.header == 0 {
		return
	}
	q, at := p.current, p.header
	q.Doc = strings.TrimSpace(strings.Join(p.doc, "\n"))
	q.SQL = statement(q.Mode, p.body)
	p.header, p.doc, p.body = 0, nil, nil
	if q.Doc == "" {
		p.problem(at, "%s has no comment under its header; say its purpose, its parameters and what no row means", q.Name)
	}
	if q.SQL == "" {
		p.problem(at, "%s has no statement", q.Name)
	}
	if _, ok := p.queries[q.Name]; ok {
		p.problem(at, "%s is defined twice", q.Name)
		return
	}
	p.queries[q.Name] = q
}

// statement joins the lines of a statement. Comments at its end belong to what
// follows, such as a divider between sections.
func statement(m Mode, lines []string) string {
	end := len(lines)
	for end > 0 {
		last := strings.TrimSpace(lines[end-1])
		if last != "" && !strings.HasPrefix(last, "--") {
			break
		}
		end--
	}
	sql := strings.TrimSpace(strings.Join(lines[:end], "\n"))
	if m != Script {
		sql = strings.TrimSpace(strings.TrimSuffix(sql, ";"))
	}
	return sql
}

func (p *scanner) problem(line int, format string, args ...any) {
	p.problems = append(p.problems,
		fmt.Errorf("%w: %s:%d: %s", ErrSyntax, p.file, line, fmt.Sprintf(format, args...)))
}
