package main

import (
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A replaced word stands in docs/glossary.md with what stands in its place.
type replacedWord struct {
	instead string
	hint    string // in every text that has the word, in lower case: to look for it is quick
	word    *regexp.Regexp
}

// replacedWords are those that mean nothing else anywhere; the glossary has more.
func replacedWords() (list []replacedWord) {
	for _, w := range [][3]string{
		{"run", "tenure", `\btenures?\b`},
		{"preferences", "wish", `\bwish(es)?\b`},
		{"in flight", "in hand", `\bin hand\b`},
		{"in flight", " hands", `\b(relay's|relays'|its|their|whose) hands\b`},
		{"wake", "rous", `\brous(e[sd]?|ing)\b`},
		{"wake", "rung", `\brung\b`},
		{"deregister", "farewell", `\bfarewells?\b`},
		{"maintenance", "attendant", `\battendants?\b`},
		{"bypass, or skip", "pass", `\bpass(es|ed|ing) over\b`},
		{"permanently", "for ", `\bfor ever\b|\bfor good($|[^a-z ]| [^r])`},
		{"take effect", "count", `\bcounts? (at once|live|from the next)\b`},
		{"fix", "mend", `\bmend(s|ed|ing)?\b`},
		{"defer", " off", `\b(puts?|putting) off\b`},
		{"override", "outrank", `\boutrank(s|ed|ing)?\b`},
		{"record", "book", `\bbook(s|ed|ing)?\b`},
		{"dead-letters", "belfry dead ", "([`'\"(]|  )belfry dead "}, // a script tries the alias
	} {
		list = append(list, replacedWord{w[0], w[1], regexp.MustCompile(w[2])})
	}
	return list
}

// brokenLine is the end of a line, with the mark of a comment that goes on in the next one.
var brokenLine = regexp.MustCompile(`[ \t]*\n[ \t]*(?://|--|#)?[ \t]*`)

// Pages, configuration, scripts, comments and texts say what the glossary says.
func TestDocs_WordsAreThoseOfTheGlossary(t *testing.T) {
	t.Parallel()
	list := replacedWords()
	check := func(path, text string, names []string) {
		text = brokenLine.ReplaceAllString(strings.ToLower(text), " ") // a phrase may go over two lines
		for _, w := range list {
			if !strings.Contains(text, w.hint) {
				continue
			}
			for _, at := range w.word.FindAllStringIndex(text, -1) {
				if found := text[at[0]:at[1]]; !slices.Contains(names, found) {
					t.Errorf("%s: %q: docs/glossary.md says %s: …%s…", path, found, w.instead, text[max(0, at[0]-40):min(len(text), at[1]+40)])
				}
			}
		}
	}
	err := filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error {
		name := filepath.ToSlash(path)
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasSuffix(name, "/docs/adr"): // decisions stay as they were made
			return fs.SkipDir
		case d.IsDir() && path != tree && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin"):
			return fs.SkipDir
		case name == tree+"/docs/glossary.md", name == tree+"/cmd/belfry/words_test.go":
			return nil
		}
		switch filepath.Ext(path) {
		case ".go", ".md", ".sql", ".yaml", ".txtar":
		default:
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if filepath.Ext(path) == ".go" {
			prose, names := proseOf(text)
			check(name, prose, names)
		} else {
			check(name, string(text), nil)
		}
		return nil
	})
	require.NoError(t, err)
}

// proseOf returns the comments and texts of a Go file, and its identifiers: a comment may
// name them.
func proseOf(source []byte) (prose string, names []string) {
	var b strings.Builder
	var s scanner.Scanner
	files := token.NewFileSet()
	s.Init(files.AddFile("", -1, len(source)), source, nil, scanner.ScanComments)
	for {
		switch _, kind, text := s.Scan(); kind {
		case token.EOF:
			return b.String(), names
		case token.COMMENT, token.STRING:
			b.WriteString(text + "\n")
		case token.IDENT:
			names = append(names, strings.ToLower(text))
		}
	}
}
