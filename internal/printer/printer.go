// Package printer is how belfry says things to a person in plain text: counts, spans of
// time, instants, tables, and the page that a command prints.
//
// A [Page] keeps data and remarks apart: what somebody may pipe into another program goes
// to the output, and what only a person wants to know goes to the notes. It also knows how
// wide the person's terminal is, if there is one.
package printer

import (
	"fmt"
	"io"
	"strings"
)

// Page is where a result is told in text. The zero value says nothing to nobody.
type Page struct {
	// Output takes data, Notes remarks about it; nil: it is dropped.
	Output, Notes io.Writer
	// Columns is how wide the terminal is that shows the output; 0: it is none, and
	// nothing is cut.
	Columns int
	// Bare leaves the headings of tables out.
	Bare bool
	// Colors shows statuses in colours.
	Colors bool
	// Times is how it shows instants; the page's Clock and ClockOr do so.
	Times
	// Rows is how many lines that terminal has; 0: 24.
	Rows int
	// Parts takes what is told in its parts, instead of Output and Notes; nil: it is written.
	Parts Parts

	drawn int // lines of the last Redraw
}

// Parts takes what is told piece by piece, for a page that is not plain text.
type Parts interface {
	// Text is data: a line, or several.
	Text(text string)
	// Note is a remark.
	Note(text string)
	// Field is a name and its text, in a block of such.
	Field(name, text string)
	// Table is a table; a heading that starts with ">" is that of a column of numbers.
	Table(headings []string, rows [][]string)
}

// Printf writes data, cleaned as by Clean.
func (p *Page) Printf(format string, args ...any) {
	text := clean(fmt.Sprintf(format, args...), p.Colors)
	switch {
	case p.Parts != nil:
		p.Parts.Text(text)
	case p.Output != nil:
		_, _ = io.WriteString(p.Output, text) // the command looks after its output's errors
	}
}

// Note writes a remark, a line, cleaned as by Clean.
func (p *Page) Note(format string, args ...any) {
	text := clean(fmt.Sprintf(format, args...), p.Colors)
	switch {
	case p.Parts != nil:
		p.Parts.Note(text)
	case p.Notes != nil:
		_, _ = io.WriteString(p.Notes, text+"\n")
	}
}

// Field writes a line of data that starts with a name, in a block of such lines. The text
// is cut at a thousand characters.
func (p *Page) Field(name, format string, args ...any) {
	if p.Parts != nil {
		p.Parts.Field(name, OneLine(fmt.Sprintf(format, args...), 1000))
		return
	}
	p.Printf("%-16s %s\n", name, p.statusOf(name, OneLine(fmt.Sprintf(format, args...), 1000)))
}

// Table writes a table. On a terminal that is too narrow it does without columns, as
// [Table.Dispensable] says.
func (p *Page) Table(t *Table) {
	if p.Parts != nil {
		p.Parts.Table(t.headings, t.rows)
		return
	}
	if p.Columns > 0 && t.room > 0 {
		t.fit(p.Columns, t.room, t.dispensable...)
	}
	t.bare = p.Bare
	if p.Output != nil {
		_ = t.write(p.Output, p.statusOf) // the command looks after its output's errors
	}
}

// Redraw writes lines of data in place of those that it wrote before, on a terminal.
func (p *Page) Redraw(lines []string) {
	rows := p.Rows
	if rows <= 0 {
		rows = 24
	}
	var b strings.Builder
	if p.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", min(p.drawn, rows-1))
	}
	for _, line := range lines {
		b.WriteString("\r" + clean(line, p.Colors) + "\x1b[K\n")
	}
	b.WriteString("\x1b[J")
	p.drawn = len(lines)
	if p.Output != nil {
		_, _ = io.WriteString(p.Output, b.String())
	}
}

// Drawn reports whether something stands there that Redraw would replace.
func (p *Page) Drawn() bool { return p.drawn > 0 }
