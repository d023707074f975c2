package db_test

import (
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// SQL in Go is refused: outside of tests, and of outboxtest and admintest, which consist of them, no string
// literal begins like a statement. One that
// has to (text for people, a statement assembled from identifiers) stands on or under a line
// with the comment `//sql:allow reason`. What help shows as the same by SQL (a field SQL) is text,
// which a test of cmd/belfry executes. No linter at hand looks into literals.
func TestGo_HasNoSQL(t *testing.T) {
	t.Parallel()
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == "_examples": // what they show is SQL
			return fs.SkipDir
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != "..":
			return fs.SkipDir
		case filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || slices.Contains([]string{"outboxtest", "admintest"}, filepath.Base(filepath.Dir(path))):
			return nil
		}
		text, err := os.ReadFile(path)
		for _, line := range sqlIn(text) {
			t.Errorf("%s:%d: SQL in Go: move it to queries.sql, or say why not with `//sql:allow reason` on the line or above it", path, line)
		}
		return err
	})
	require.NoError(t, err)
}

var (
	sqlStart  = regexp.MustCompile(`^\s*(SELECT|INSERT|UPDATE|DELETE|WITH|COPY)\s`)
	allowMark = regexp.MustCompile(`^//sql:allow \s*\S`)
)

// sqlIn returns the lines of a Go file on which SQL begins that is not allowed.
func sqlIn(source []byte) (found []int) {
	set := token.NewFileSet()
	file := set.AddFile("", -1, len(source))
	var s scanner.Scanner
	s.Init(file, source, nil, scanner.ScanComments)
	literals, allowed := []int{}, make(map[int]bool)
	var before [2]string // the tokens before
	for {
		pos, kind, text := s.Scan()
		shown := before == [2]string{"SQL", token.COLON.String()}
		if kind != token.COMMENT {
			before[0] = before[1]
			if before[1] = text; kind == token.COLON {
				before[1] = token.COLON.String()
			}
		}
		switch line := set.Position(pos).Line; kind {
		case token.EOF:
			for _, line := range literals {
				if !allowed[line] && !allowed[line-1] {
					found = append(found, line)
				}
			}
			return found
		case token.COMMENT:
			allowed[line] = allowed[line] || allowMark.MatchString(text)
		case token.STRING:
			if value, err := strconv.Unquote(text); err == nil && !shown && sqlStart.MatchString(value) {
				literals = append(literals, line)
			}
		}
	}
}

func TestSQLIn_FindsStatementsThatAreNotAllowed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		text string
		want []int
	}{
		"every spelling": {
			"var (\n\ta = \"SELECT 1\"\n\tb = `\n\t\tINSERT\n\t\tINTO x`\n\tc = \" UPDATE x\"\n" +
				"\td = \"DELETE \" + a\n\te = \"WITH x AS\"\n\tg = \"COPY\\tx\"\n\th = \"SELECTED\"\n\ti = \"select a job\"\n\tj = \"COPY\"\n)\n",
			[]int{2, 3, 6, 7, 8, 9},
		},
		"allowed": {
			"//sql:allow text of the help\nconst a = \"SELECT 1\"\n\nconst b = \"UPDATE x\" //sql:allow text of the help\n\nconst c = \"DELETE x\"\n",
			[]int{6},
		},
		"shown as help":            {"var a = b{SQL: `SELECT 1`, Short: `SELECT 2`}\nvar c = SQL(`SELECT 3`)\n", []int{1, 2}},
		"allowed without a reason": {"//sql:allow\nconst a = \"SELECT 1\"\n", []int{2}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.want, sqlIn([]byte("package job; "+tt.text)))
		})
	}
}
