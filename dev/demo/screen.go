package demo

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

const screenWidth = 78

// screen writes the acts, with headings and bullets wrapped to the width of a plain terminal.
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

// act begins an act.
func (s *screen) act(title string) {
	s.acts++
	s.line("\n" + s.paint(bold, fmt.Sprintf("%d  %s", s.acts, title)))
}

// bullet writes one event.
func (s *screen) bullet(format string, args ...any) {
	s.line("   - " + strings.Join(wrap(fmt.Sprintf(format, args...), screenWidth-5), "\n     "))
}

// sql writes a statement.
func (s *screen) sql(statement string) {
	for line := range strings.SplitSeq(statement, "\n") {
		s.line("     " + s.paint(blue, line))
	}
}

// wrap breaks text at blanks into lines of at most width characters.
func wrap(text string, width int) []string {
	lines := []string{""}
	for word := range strings.FieldsSeq(text) {
		last := &lines[len(lines)-1]
		switch {
		case *last == "":
			*last = word
		case utf8.RuneCountInString(*last)+1+utf8.RuneCountInString(word) <= width:
			*last += " " + word
		default:
			lines = append(lines, word)
		}
	}
	return lines
}

// grouped renders a count with thousands separators.
func grouped(n int64) string { return message.NewPrinter(language.English).Sprint(n) }

// millis renders milliseconds with at least two significant digits.
func millis(ms float64) string {
	switch {
	case ms >= 1000:
		return fmt.Sprintf("%.1f s", ms/1000)
	case ms >= 10:
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.1f ms", ms)
}
