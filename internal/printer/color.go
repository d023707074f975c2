package printer

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// What escape sequences begin and end with, and what ends a colour.
const (
	escape = "\x1b["
	plain  = escape + "0m"
)

// colors are those of statuses by their first word, in SGR: what stands still for an error, what
// waits for a person, what goes on, and what is done.
var colors = map[string]string{
	"FAILED": "31", "DEAD": "31", "EXPIRED": "31", "failed": "31", "dead": "31", "silent": "31",
	"ABORTED": "33", "CANCELLED": "33", "paused": "33", "warning": "33",
	"RUNNING": "36", "DELIVERING": "36", "PROCESSING": "36",
	"PROCESSED": "32", "SENT": "32", "ok": "32", "live": "32",
}

// statusColumns are the headings of columns, and names of fields, that have a status.
var statusColumns = []string{"STATUS", "STATE", "OUTCOME"}

// Status is a text that begins with a status, in the status's colour where the page has colours.
// The word stays.
func (p *Page) Status(text string) string {
	word, _, _ := strings.Cut(text, " ")
	color, known := colors[word]
	if !p.Colors || !known {
		return text
	}
	return escape + color + "m" + word + plain + text[len(word):]
}

// statusOf is Status of what stands in a column or field, if that has statuses.
func (p *Page) statusOf(column, text string) string {
	if slices.Contains(statusColumns, strings.ToUpper(column)) {
		return p.Status(text)
	}
	return text
}

// Cut cuts a line at a width, to which colours do not count; a colour that is cut ends there.
func Cut(line string, width int) string {
	if width <= 0 || !strings.Contains(line, escape) && utf8.RuneCountInString(line) <= width {
		return line
	}
	if shown(line) <= width {
		return line
	}
	var b strings.Builder
	colored := false
	for n := 0; n < width-1; {
		if end := strings.IndexByte(line, 'm') + 1; strings.HasPrefix(line, escape) && end > 0 {
			colored = line[:end] != plain
			b.WriteString(line[:end])
			line = line[end:]
			continue
		}
		_, size := utf8.DecodeRuneInString(line)
		b.WriteString(line[:size])
		line = line[size:]
		n++
	}
	if colored {
		b.WriteString(plain)
	}
	return b.String() + "…"
}

// shown is how many characters of a line a person sees.
func shown(line string) int {
	n := 0
	for len(line) > 0 {
		if end := strings.IndexByte(line, 'm'); strings.HasPrefix(line, escape) && end > 0 {
			line = line[end+1:]
			continue
		}
		_, size := utf8.DecodeRuneInString(line)
		line = line[size:]
		n++
	}
	return n
}
