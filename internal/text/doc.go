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
	d.Blocks = append(d.Blocks, Field{name, Sprintf(format, args...)})
}

// Table adds a table.
func (d *Doc) Table(t *Table) { d.Blocks = append(d.Blocks, t) }

// Redraw adds lines that replace the previous ones on a terminal.
func (d *Doc) Redraw(lines []string) {
	cleaned := make(Screen, len(lines))
	for i, line := range lines {
		cleaned[i] = oneLine(line)
	}
	d.Blocks = append(d.Blocks, cleaned)
}
