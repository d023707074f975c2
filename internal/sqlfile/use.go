package sqlfile

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Reporter is the part of testing.TB that CheckUse needs. The package does not
// import testing, because programs import the package.
type Reporter interface {
	Helper()
	Errorf(format string, args ...any)
}

// CheckUse fails the test unless the Go files of the directory and its
// .sql files agree:
//
//   - every name given to SQL or Get of a package variable made by MustParse,
//     MustLoad or Parse is a literal, and a statement of that name exists. It
//     may be a parameter of the function instead, as in
//     func (r *Runner) run(ctx context.Context, statement string); then the
//     argument of each call of a function or method of that name has to be such
//     a literal or parameter, so the name has to be the function's alone in the
//     package;
//   - every statement is named by a Go file that is not a test;
//   - where there are several .sql files, such a variable is made by MustLoad;
//   - such a variable is used in no other way, which could not be checked;
//   - no string literal outside tests begins like a statement, that is with
//     SELECT, INSERT, UPDATE, DELETE, WITH or COPY and white space. A literal
//     that has to (text for people, a statement assembled from identifiers)
//     stands on or under a line with the comment `//sqlfile:allow reason`.
//
// Directories below it are not visited. Errors name file and line.
func CheckUse(t Reporter, directory string) {
	t.Helper()
	problems, err := checkUse(directory)
	if err != nil {
		t.Errorf("checking the use of SQL in %s: %v", directory, err)
		return
	}
	for _, p := range problems {
		t.Errorf("%s", p)
	}
}

// statementStart is what a string literal may not begin with.
var statementStart = regexp.MustCompile(`^\s*(SELECT|INSERT|UPDATE|DELETE|WITH|COPY)\s`)

// allowMark introduces the comment that permits one.
const allowMark = "//sqlfile:allow"

// checker gathers the problems of one directory.
type checker struct {
	set       *token.FileSet
	queries   Queries
	variables map[string]bool // package variables that hold parsed files
	accessors map[string]int  // functions that pass on a statement's name: the position of the parameter
	used      map[string]bool // statements named outside tests
	problems  []string
}

func checkUse(directory string) ([]string, error) {
	queries, err := load(os.DirFS(directory))
	if err != nil {
		return nil, err
	}
	c := checker{
		set:       token.NewFileSet(),
		queries:   queries,
		variables: make(map[string]bool),
		accessors: make(map[string]int),
		used:      make(map[string]bool),
	}
	files, err := c.parseFiles(directory)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		c.findVariables(f)
	}
	if len(c.variables) == 0 {
		c.problems = append(c.problems, "no package variable is made with sqlfile.MustParse, MustLoad or Parse")
	}
	for c.findAccessors(files) { // until a round finds no function that calls those of the last
	}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		isTest := strings.HasSuffix(path, "_test.go")
		c.checkNames(files[path], isTest)
		if !isTest {
			c.checkLiterals(files[path])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(queries)) {
		if !c.used[name] {
			c.problems = append(c.problems, fmt.Sprintf("%s: statement %s is used by no Go file outside tests", queries[name].File, name))
		}
	}
	return c.problems, nil
}

func (c *checker) parseFiles(directory string) (map[string]*ast.File, error) {
	paths, err := filepath.Glob(filepath.Join(directory, "*.go"))
	if err != nil {
		return nil, err
	}
	files := make(map[string]*ast.File, len(paths))
	for _, path := range paths {
		f, err := parser.ParseFile(c.set, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files[path] = f
	}
	return files, nil
}

// findVariables notes the package variables that are made by this package's
// constructors.
func (c *checker) findVariables(f *ast.File) {
	for _, d := range f.Decls {
		decl, ok := d.(*ast.GenDecl)
		if !ok || decl.Tok != token.VAR {
			continue
		}
		for _, s := range decl.Specs {
			spec, ok := s.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 {
				continue
			}
			made := constructor(spec.Values[0])
			if made == "" {
				continue
			}
			c.variables[spec.Names[0].Name] = true
			if made != "MustLoad" && c.several() {
				c.problem(spec, "%s is made from one of several .sql files: make it with sqlfile.MustLoad", spec.Names[0].Name)
			}
		}
	}
}

// several reports whether the statements stand in more than one file.
func (c *checker) several() bool {
	files := make(map[string]bool)
	for _, q := range c.queries {
		files[q.File] = true
	}
	return len(files) > 1
}

// constructor returns which of this package's constructors an expression calls, "" when
// none.
func constructor(e ast.Expr) string {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return ""
	}
	function, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	pkg, ok := function.X.(*ast.Ident)
	if !ok || pkg.Name != "sqlfile" || !slices.Contains([]string{"MustParse", "MustLoad", "Parse"}, function.Sel.Name) {
		return ""
	}
	return function.Sel.Name
}

// findAccessors notes the functions that pass a parameter of theirs on as a
// statement's name, and reports whether it found a new one.
func (c *checker) findAccessors(files map[string]*ast.File) bool {
	found := false
	for _, f := range files {
		for _, d := range f.Decls {
			function, ok := d.(*ast.FuncDecl)
			if !ok || function.Body == nil {
				continue
			}
			if _, known := c.accessors[function.Name.Name]; known {
				continue
			}
			ast.Inspect(function.Body, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				if argument, _ := c.nameArgument(call); argument != nil {
					if i := parameter(function, argument); i >= 0 {
						c.accessors[function.Name.Name] = i
						found = true
					}
				}
				return true
			})
		}
	}
	return found
}

// nameArgument returns the argument of a call that is to be a statement's name,
// and the variable when the call is of SQL or Get. It returns nil for any other
// call.
func (c *checker) nameArgument(call *ast.CallExpr) (argument ast.Expr, variable *ast.Ident) {
	var name string
	switch function := call.Fun.(type) {
	case *ast.Ident:
		name = function.Name
	case *ast.SelectorExpr:
		name = function.Sel.Name
		x, ok := function.X.(*ast.Ident)
		if ok && c.variables[x.Name] && (name == "SQL" || name == "Get") && len(call.Args) == 1 {
			return call.Args[0], x
		}
	}
	if i, ok := c.accessors[name]; ok && i < len(call.Args) {
		return call.Args[i], nil
	}
	return nil, nil
}

// parameter returns the position of the function's parameter that the
// expression is, or -1.
func parameter(function *ast.FuncDecl, e ast.Expr) int {
	given, ok := e.(*ast.Ident)
	if !ok {
		return -1
	}
	i := 0
	for _, field := range function.Type.Params.List {
		for _, name := range field.Names {
			if name.Name == given.Name {
				return i
			}
			i++
		}
	}
	return -1
}

// checkNames checks each use of the variables in a file.
func (c *checker) checkNames(f *ast.File, isTest bool) {
	proper := make(map[*ast.Ident]bool) // uses that have been checked, and names that are no uses
	var function *ast.FuncDecl          // around the node, if any
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			function = n
		case *ast.GenDecl:
			if function != nil && n.Pos() > function.End() {
				function = nil
			}
		case *ast.ValueSpec:
			for _, name := range n.Names {
				proper[name] = true
			}
		case *ast.SelectorExpr:
			proper[n.Sel] = true
		case *ast.KeyValueExpr:
			if key, ok := n.Key.(*ast.Ident); ok {
				proper[key] = true
			}
		case *ast.Field:
			for _, name := range n.Names {
				proper[name] = true
			}
		case *ast.CallExpr:
			argument, variable := c.nameArgument(n)
			if argument != nil && (function == nil || parameter(function, argument) < 0) {
				c.checkName(argument, isTest)
			}
			proper[variable] = true
		case *ast.Ident:
			if c.variables[n.Name] && !proper[n] {
				c.problem(n, "%s is used other than as %s.SQL(\"Name\") or %s.Get(\"Name\")", n.Name, n.Name, n.Name)
			}
		}
		return true
	})
}

// checkName checks one statement's name.
func (c *checker) checkName(argument ast.Expr, isTest bool) {
	literal, ok := argument.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		c.problem(argument, "the name of the statement is neither a string literal nor a parameter of the function")
		return
	}
	name, err := strconv.Unquote(literal.Value)
	if err != nil {
		c.problem(argument, "the name of the statement: %v", err)
		return
	}
	if _, ok := c.queries[name]; !ok {
		c.problem(argument, "no statement is named %q", name)
	}
	if !isTest {
		c.used[name] = true
	}
}

// checkLiterals finds statements in string literals.
func (c *checker) checkLiterals(f *ast.File) {
	allowed := c.allowedLines(f)
	ast.Inspect(f, func(n ast.Node) bool {
		literal, ok := n.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return true
		}
		text, err := strconv.Unquote(literal.Value)
		if err != nil || !statementStart.MatchString(text) {
			return true
		}
		if line := c.set.Position(literal.Pos()).Line; !allowed[line] && !allowed[line-1] {
			c.problem(literal, "SQL in Go: move it to queries.sql, or say why not with `%s reason` on the line or above it", allowMark)
		}
		return true
	})
}

// allowedLines returns the lines with a reasoned permission.
func (c *checker) allowedLines(f *ast.File) map[int]bool {
	lines := make(map[int]bool)
	for _, group := range f.Comments {
		for _, comment := range group.List {
			reason, ok := strings.CutPrefix(comment.Text, allowMark)
			if !ok {
				continue
			}
			if strings.TrimSpace(reason) == "" {
				c.problem(comment, "%s without a reason", allowMark)
				continue
			}
			lines[c.set.Position(comment.Pos()).Line] = true
		}
	}
	return lines
}

func (c *checker) problem(n ast.Node, format string, args ...any) {
	at := c.set.Position(n.Pos())
	c.problems = append(c.problems,
		fmt.Sprintf("%s:%d: %s", filepath.Base(at.Filename), at.Line, fmt.Sprintf(format, args...)))
}
