package db

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// errSyntax reports files that do not follow the format of MustQueries or do not match the fields.
var errSyntax = errors.New("db: malformed file")

// MustQueries reads the annotated SQL files that stand beside the Go code that runs them:
// every .sql file at the root of an embedded file system. A file is a sequence of
// statements, each under a header and a comment:
//
//	-- Statements of the job aggregate.          comment of the file, optional
//
//	-- name: JobFinish :one                      header: name and mode
//	-- Marks a run's job PROCESSED.              comment, for the reader
//	-- No row: the fencing token is older.
//	UPDATE belfry.jobs                           statement, up to the next header
//	SET status = 'PROCESSED'
//	WHERE id = @id AND fence = @fence
//	RETURNING id;
//
// The mode specifies the result that the caller reads: at most `:one` row, `:many` rows, `:exec` only the
// count of rows, or `:script` several statements run without arguments. The text after the comment is the
// statement, verbatim, without blank and comment lines at its end, and, except in a script, without a
// closing semicolon.
//
// The package that owns the files embeds them in its statements.go, with a field for
// each statement, whose name begins in lower case, and reads them once, into a variable
// that is never written again:
//
//	//go:embed *.sql
//	var sqlFiles embed.FS
//
//	var queries = db.MustQueries[querySet](sqlFiles)
//
//	type querySet struct {
//		jobClaim, jobFinish string
//	}
//
//	rows, err := tx.Query(ctx, queries.jobFinish, pgx.StrictNamedArgs{…})
//
// A wrong name therefore does not compile, and the linter unused reports a statement that no Go file of the
// package uses: it checks the unexported fields of named types. A test of this package finds SQL in other Go
// code.
//
// A malformed file, a field without a statement and a statement without a field panic when
// the program starts, and so in every test of the package, with an errSyntax that names
// each fault. SQL is not parsed: a statement PostgreSQL refuses is found by the test that
// runs it.
func MustQueries[T any](fsys fs.FS) T {
	var queries T
	statements, err := load(fsys)
	if err == nil {
		err = fill(reflect.ValueOf(&queries).Elem(), statements)
	}
	if err != nil {
		panic(err)
	}
	return queries
}

// QueriesByName returns the statements of MustQueries by name, for tests.
func QueriesByName[T any](queries T) map[string]string {
	v := reflect.ValueOf(queries)
	all := make(map[string]string, v.NumField())
	for i := range v.NumField() {
		all[nameOf(v.Type().Field(i))] = v.Field(i).String()
	}
	return all
}

// QueryName returns the name of a statement that MustQueries read, for an error about
// the statement that failed.
func QueryName[T any](queries T, sql string) string {
	for name, s := range QueriesByName(queries) {
		if s == sql {
			return name
		}
	}
	return ""
}

// load parses every .sql file at the root of a file system.
func load(fsys fs.FS) (map[string]statement, error) {
	names, err := fs.Glob(fsys, "*.sql")
	if err == nil && len(names) == 0 {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, fmt.Errorf("db: open *.sql: %w", err)
	}
	p := scanner{statements: make(map[string]statement)}
	for _, name := range names {
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return nil, fmt.Errorf("db: %w", err)
		}
		p.read(name, string(text))
	}
	return p.statements, errors.Join(p.problems...)
}

// nameOf returns the name of a field's statement.
func nameOf(field reflect.StructField) string {
	return strings.ToUpper(field.Name[:1]) + field.Name[1:]
}

// fill gives each field its statement, and takes that out of the map.
func fill(queries reflect.Value, statements map[string]statement) error {
	var problems []error
	for i := range queries.NumField() {
		field := queries.Type().Field(i)
		s, ok := statements[nameOf(field)]
		delete(statements, nameOf(field))
		switch {
		case !ok:
			problems = append(problems, fmt.Errorf("%w: no statement is named %s, as the field %s is", errSyntax, nameOf(field), field.Name))
		case field.IsExported() || field.Type.Kind() != reflect.String:
			problems = append(problems,
				fmt.Errorf("%w: %s:%d: the field %s %s; want a string in lower case", errSyntax, s.file, s.line, field.Name, field.Type))
		default: // SetString refuses a field in lower case
			reflect.NewAt(field.Type, queries.Field(i).Addr().UnsafePointer()).Elem().SetString(s.sql)
		}
	}
	for _, s := range slices.SortedFunc(maps.Values(statements), func(a, b statement) int {
		return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.line, b.line))
	}) {
		problems = append(problems, fmt.Errorf("%w: %s:%d: %s has no field", errSyntax, s.file, s.line, s.name))
	}
	return errors.Join(problems...)
}

// statement is one of a file.
type statement struct {
	name, file string
	line       int // of its header
	sql        string
}

// scanner gathers one statement at a time.
//
//	outside ──header──► doc ──first other line──► statement ──header──► doc …
type scanner struct {
	file       string
	statements map[string]statement
	problems   []error

	current statement // its line is 0 while outside
	script  bool
	doc     bool // there is a comment
	body    []string
}

// read adds the statements of one file.
func (p *scanner) read(name, text string) {
	p.file = name
	known, faults := len(p.statements), len(p.problems)
	for i, line := range strings.Split(text, "\n") {
		p.line(i+1, strings.TrimRight(line, " \t\r"))
	}
	p.finish()
	if len(p.statements) == known && len(p.problems) == faults {
		p.problem(1, "no statement")
	}
}

// line takes the next one.
func (p *scanner) line(n int, line string) {
	like := headerLike(line)
	if like {
		if name, mode, ok := parseHeader(line); ok {
			p.finish()
			p.current, p.script = statement{name: name, file: p.file, line: n}, mode == "script"
			return
		}
	}
	switch blank := strings.TrimSpace(line) == ""; {
	case like:
		p.problem(n, "want a header as `-- name: JobClaim :one`, with one of :one, :many, :exec, :script; got %q", line)
	case p.current.line == 0:
		if !blank && !strings.HasPrefix(line, "--") {
			p.problem(n, "text before the first header")
		}
	case len(p.body) == 0 && strings.HasPrefix(line, "--"):
		p.doc = p.doc || strings.TrimSpace(strings.TrimPrefix(line, "--")) != ""
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
func parseHeader(line string) (name, mode string, ok bool) {
	line, ok = strings.CutPrefix(line, "-- name: ")
	name, mode, found := strings.Cut(line, " :")
	ok = ok && found && name != "" && name[0] >= 'A' && name[0] <= 'Z' && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && (r < '0' || r > '9')
	})
	return name, mode, ok && slices.Contains([]string{"one", "many", "exec", "script"}, mode)
}

// finish checks and keeps the current statement.
func (p *scanner) finish() {
	s := p.current
	if s.line == 0 {
		return
	}
	s.sql = join(p.script, p.body)
	if !p.doc {
		p.problem(s.line, "%s has no comment under its header; describe its purpose, its parameters and the meaning of no row", s.name)
	}
	if s.sql == "" {
		p.problem(s.line, "%s has no statement", s.name)
	}
	if _, ok := p.statements[s.name]; ok {
		p.problem(s.line, "%s is defined twice", s.name)
	} else {
		p.statements[s.name] = s
	}
	p.current, p.doc, p.body = statement{}, false, nil
}

// join joins the lines of a statement. Comments at its end belong to what
// follows, such as a divider between sections.
func join(script bool, lines []string) string {
	end := len(lines)
	for end > 0 {
		last := strings.TrimSpace(lines[end-1])
		if last != "" && !strings.HasPrefix(last, "--") {
			break
		}
		end--
	}
	sql := strings.TrimSpace(strings.Join(lines[:end], "\n"))
	if !script {
		sql = strings.TrimSpace(strings.TrimSuffix(sql, ";"))
	}
	return sql
}

func (p *scanner) problem(line int, format string, args ...any) {
	p.problems = append(p.problems,
		fmt.Errorf("%w: %s:%d: %s", errSyntax, p.file, line, fmt.Sprintf(format, args...)))
}
