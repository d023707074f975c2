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
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// A replaced word stands in docs/glossary.md with what stands in its place.
type replacedWord struct {
	instead string
	hint    string // one of these, by |, is in every text that has the word: to look for them is quick
	word    *regexp.Regexp
}

// replacedWords are those that mean nothing else anywhere; the glossary has more.
var replacedWords = sync.OnceValue(func() (list []replacedWord) {
	for _, w := range [][3]string{
		{"run", "tenure", `\btenures?\b`},
		{"preferences", "wish", `\bwish(es)?\b`},
		{"in flight", "in hand", `\bin hand\b`},
		{"in flight", "relay's hands|relays' hands|its hands|their hands|whose hands", `\b(relay's|relays'|its|their|whose) hands\b`},
		{"wake", "rous", `\brous(e[sd]?|ing)\b`},
		{"wake", "rung", `\brung\b`},
		{"deregister", "farewell", `\bfarewells?\b`},
		{"maintenance", "attendant", `\battendants?\b`},
		{"bypass, or skip", "pass over|passes over|passed over|passing over", `\bpass(es|ed|ing) over\b`},
		{"permanently", "for ever|for good", `\bfor ever\b|\bfor good($|[^a-z ]| [^r])`},
		{"take effect", "count at once|counts at once|count live|counts live|count from|counts from", `\bcounts? (at once|live|from the next)\b`},
		{"fix", "mend", `\bmend(s|ed|ing)?\b`},
		{"defer", "put off|puts off|putting off", `\b(puts?|putting) off\b`},
		{"override", "outrank", `\boutrank(s|ed|ing)?\b`},
		{"record", "book", `\bbook(s|ed|ing)?\b`},
		{"dead-letters", "belfry dead ", "([`'\"(]|  )belfry dead "}, // a script tries the alias
	} {
		list = append(list, replacedWord{w[0], w[1], regexp.MustCompile(w[2])})
	}
	return list
})

// hinted reports whether a text may have the word.
func (w *replacedWord) hinted(text string) bool {
	for hint := range strings.SplitSeq(w.hint, "|") {
		if strings.Contains(text, hint) {
			return true
		}
	}
	return false
}

// joined joins lines, without the mark of a comment that goes on in the next one.
func joined(text string) string {
	const blank = " \t"
	var b strings.Builder
	b.Grow(len(text))
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.Trim(line, blank)
		for _, mark := range []string{"//", "--", "#"} {
			if rest, ok := strings.CutPrefix(line, mark); ok {
				line = strings.TrimLeft(rest, blank)
				break
			}
		}
		b.WriteString(line)
		b.WriteByte(' ')
	}
	return b.String()
}

// checkWords fails for each replaced word of a text. The names are identifiers that it may contain.
func checkWords(t *testing.T, path, text string, names []string) {
	t.Helper()
	text = joined(strings.ToLower(text)) // a phrase may go over two lines
	for _, w := range replacedWords() {
		if !w.hinted(text) {
			continue
		}
		for _, at := range w.word.FindAllStringIndex(text, -1) {
			if found := text[at[0]:at[1]]; !slices.Contains(names, found) {
				t.Errorf("%s: %q: docs/glossary.md says %s: …%s…", path, found, w.instead, text[max(0, at[0]-40):min(len(text), at[1]+40)])
			}
		}
	}
}

// conflict begins or ends what a merge has left.
var conflict = regexp.MustCompile(`(?m)^(<{7}|>{7}) `)

// Pages, configuration, scripts, comments and texts say what the glossary says, and no merge has
// left both of its sides.
func TestDocs_WordsAreThoseOfTheGlossary(t *testing.T) {
	t.Parallel()
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
		if at := conflict.FindIndex(text); at != nil {
			t.Errorf("%s has two sides of a merge: %.60s", name, text[at[0]:])
		}
		if filepath.Ext(path) == ".go" {
			prose, names := proseOf(text)
			checkWords(t, name, prose, names)
		} else {
			checkWords(t, name, string(text), nil)
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
