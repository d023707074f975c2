package text

import (
	"errors"
	"regexp"
	"strings"
	"sync"
)

// Param is a parameter of an operation by its name, such as external_id. A terminal shows its flag,
// --external-id; a form has a field for it.
type Param string

func (c Param) in(Times) string { return "--" + strings.ReplaceAll(string(c), "_", "-") }

// String implements fmt.Stringer.
func (c Param) String() string { return c.in(Times{}) }

// marked matches a literal in backticks, and a flag.
var marked = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile("`([^`]+)`|--([a-z]+(?:-[a-z]+)*)") })

// Parse returns the cells of markup, the notation of help texts and error texts: `belfry jobs list` in
// backticks is a command, other text in backticks is a literal, and --external-id is a parameter. The
// String method of the result returns the markup.
func Parse(markup string) Line {
	var line Line
	end := 0
	for _, at := range marked().FindAllStringSubmatchIndex(markup, -1) {
		if at[0] > end {
			line = append(line, Text(markup[end:at[0]]))
		}
		if end = at[1]; at[2] >= 0 {
			line = append(line, literal(markup[at[2]:at[3]]))
		} else {
			line = append(line, Param(strings.ReplaceAll(markup[at[4]:at[5]], "-", "_")))
		}
	}
	if end < len(markup) {
		line = append(line, Text(markup[end:]))
	}
	return line
}

// literal returns the command that a literal is, or Code. The words of the operation's name are the
// leading words of lower-case letters; then numbers and flags follow, and the rest is Tail.
func literal(s string) Cell {
	shell, is := strings.CutPrefix(s, "belfry ")
	if !is {
		return Code(s)
	}
	words := strings.Split(shell, " ")
	next := func(letters string) bool {
		return len(words) > 0 && words[0] != "" && strings.Trim(words[0], letters) == "" && words[0][0] != '-'
	}
	take := func() (word string) {
		word, words = words[0], words[1:]
		return word
	}
	var c CommandCell
	for next("abcdefghijklmnopqrstuvwxyz-") {
		c.Operation = strings.TrimPrefix(c.Operation+" "+take(), " ")
	}
	for next("0123456789") {
		c.Args = append(c.Args, take())
	}
	for len(words) > 0 && strings.HasPrefix(words[0], "--") {
		f := Flag{Name: take()[len("--"):], Alone: true}
		if len(words) > 0 && !strings.HasPrefix(words[0], "--") {
			f.Value, f.Alone = take(), false
		}
		c.Flags = append(c.Flags, f)
	}
	c.Tail = strings.Join(words, " ")
	if c.Operation == "" || c.Shell() != s {
		return Code(s)
	}
	return c
}

// OfError returns the cells of an error: those of its method Line, or of its text, which is markup.
func OfError(err error) Line {
	var described interface {
		error
		Line() Line
	}
	if errors.As(err, &described) {
		if before, after, is := strings.Cut(err.Error(), described.Error()); is {
			return Sprintf("%s%s%s", Parse(before), described.Line(), Parse(after))
		}
	}
	return Parse(err.Error())
}
