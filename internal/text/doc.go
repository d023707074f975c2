// Package text turns results into output: for a terminal, for a web page, and for programs that
// read CSV.
//
// An operation describes its result in a [Doc]: lines, fields, tables, headings and notes. Their
// content is typed [Cell]s: an instant, a duration, a count, a status, a reference to a job or a
// lane, a command of belfry, or plain text. A renderer decides how each type looks:
//
//	cell             terminal                        web page
//	instant          2026-11-20 09:00:12+00:00       <time>, in the reader's zone
//	status           a colored word                  a badge
//	reference        17                              a link to job 17
//	command          `belfry lanes resume night`     a link to the page of that operation
//
// [Terminal] renders a Doc as text. The console renders it as HTML. Neither reads the text of a
// cell to find out what it means.
//
// CSV has another source: [Records] derives columns from the JSON fields of a result's type, so
// that columns have one name everywhere, and an empty list has the headings of a long one.
//
// # Invariants
//
//  1. A terminal executes nothing of a cell: control characters become blanks ([Clean]).
//  2. No cell of CSV begins like a formula ([Guarded]), and [Unguarded] returns the original.
package text

import (
	"slices"
	"strings"
	"time"
)

// Doc describes a result. The zero value is empty. Arguments of its methods are cells, or values
// with a natural cell (see [CellOf]).
type Doc struct {
	// Times is the zone for the few texts that contain an instant as text.
	Times
	// Columns and Rows are the size of the terminal that shows the document; 0 means that it is
	// shown elsewhere.
	Columns, Rows int
	Blocks        []Block
}

// Block is one part of a document: a [Heading], a [Field], a *[Table], a [Line], a [Note] or a
// [Screen].
type Block interface{ block() }

// Heading is the title of the blocks after it.
type Heading string

// Field is a name with a value.
type Field struct {
	Name  string
	Value Line
}

// Note is a remark for people. It is not data.
type Note Line

// Screen replaces the previous screen of a terminal.
type Screen []string

func (Heading) block() {}
func (Field) block()   {}
func (*Table) block()  {}
func (Line) block()    {}
func (Note) block()    {}
func (Screen) block()  {}

// Heading adds a heading. It begins with a small letter and has no colon.
func (d *Doc) Heading(title string) { d.Blocks = append(d.Blocks, Heading(title)) }

// Line adds one line of data.
func (d *Doc) Line(format string, args ...any) {
	d.Blocks = append(d.Blocks, Sprintf(format, args...))
}

// Note adds a remark.
func (d *Doc) Note(format string, args ...any) {
	d.Blocks = append(d.Blocks, Note(Sprintf(format, args...)))
}

// Field adds a name with a value. Consecutive fields form a block.
func (d *Doc) Field(name, format string, args ...any) {
	value := Sprintf(format, args...)
	if slices.Contains(statusColumns, strings.ToUpper(name)) {
		value = withStatus(value)
	}
	d.Blocks = append(d.Blocks, Field{name, value})
}

// Table adds a table.
func (d *Doc) Table(t *Table) { d.Blocks = append(d.Blocks, t) }

// Printf adds lines of data, each of which ends with a line break. A line that is alone and ends
// with a colon is a heading.
// Use Line and Heading.
func (d *Doc) Printf(format string, args ...any) {
	lines := Sprintf(format, args...).split()
	if last := len(lines) - 1; last >= 0 && lines[last].String() == "" {
		lines = lines[:last]
	}
	if last := len(lines) - 1; last >= 0 {
		if title, is := strings.CutSuffix(lines[last].String(), ":"); is && (last == 0 || last == 1 && lines[0].String() == "") {
			d.Heading(title)
			return
		}
	}
	for _, line := range lines {
		d.Blocks = append(d.Blocks, line)
	}
}

// Redraw adds lines that replace the previous ones on a terminal.
func (d *Doc) Redraw(lines []string) {
	cleaned := make(Screen, len(lines))
	for i, line := range lines {
		cleaned[i] = oneLine(line)
	}
	d.Blocks = append(d.Blocks, cleaned)
}

// Clock returns an instant.
// Pass the time.Time.
func (d *Doc) Clock(at time.Time) Cell { return Instant(at) }

// ClockOr returns an instant, or a text if there is none.
// Use Or.
func (d *Doc) ClockOr(at *time.Time, otherwise string) Cell { return Or(at, otherwise) }

// TimeOfDay returns an instant of today.
// Use the type TimeOfDay.
func (d *Doc) TimeOfDay(at time.Time) Cell { return TimeOfDay(at) }
