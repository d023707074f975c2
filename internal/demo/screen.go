package demo

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

const screenWidth = 78

// screen is what the audience reads: acts with a heading and what
// happens, wrapped to the width of a plain terminal.
type screen struct {
	w     io.Writer
	color bool
	acts  int
}

const (
	bold  = "1"
	green = "32"
	red   = "31"
	blue  = "36"
)

func (s *screen) paint(code, text string) string {
	if !s.color {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (s *screen) line(text string) { fmt.Fprintln(s.w, text) }

// title begins the demonstration.
func (s *screen) title(text string) {
	for _, line := range wrap(text, screenWidth) {
		s.line(s.paint(bold, line))
	}
}

// act begins an act.
func (s *screen) act(title string) {
	s.acts++
	s.line("")
	s.line(s.paint(bold, fmt.Sprintf("%d  %s", s.acts, title)))
}

// say tells one thing that happened.
func (s *screen) say(format string, args ...any) {
	lines := wrap(fmt.Sprintf(format, args...), screenWidth-5)
	for i, line := range lines {
		mark := "  "
		if i == 0 {
			mark = "- "
		}
		s.line("   " + mark + line)
	}
}

// sql shows a statement as it is run.
func (s *screen) sql(statement string) {
	for line := range strings.SplitSeq(statement, "\n") {
		s.line("     " + s.paint(blue, line))
	}
}

// wrap breaks text at blanks into lines of at most width characters.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= width:
			line += " " + word
		default:
			lines = append(lines, line)
			line = word
		}
	}
	return append(lines, line)
}
