package text

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Escape sequences begin with escape; plain ends a color.
const (
	escape = "\x1b["
	plain  = escape + "0m"
)

// Terminal renders documents as text. The zero value discards them. It is for one goroutine.
type Terminal struct {
	// Output receives data, Notes remarks; nil discards them. The writers must remember their
	// errors.
	Output, Notes io.Writer
	// Columns is the width of the terminal; 0 means that the output is no terminal, and nothing
	// is cut. Rows is its height; 0 means 24.
	Columns, Rows int
	// Bare omits the headings of tables.
	Bare bool
	// Colors shows statuses in color.
	Colors bool
	// Times is how instants are shown.
	Times

	drawn int // lines of the last screen
}

// Show renders the document that describe fills.
func (t *Terminal) Show(describe func(*Doc)) {
	d := &Doc{Times: t.Times, Columns: t.Columns, Rows: t.Rows}
	describe(d)
	t.Write(d)
}

// Table renders a table alone.
func (t *Terminal) Table(table *Table) { t.Write(&Doc{Blocks: []Block{table}}) }

// Write renders a document.
func (t *Terminal) Write(d *Doc) {
	for i, block := range d.Blocks {
		switch b := block.(type) {
		case Heading:
			if i > 0 {
				t.data("\n")
			}
			t.data(Clean(string(b)) + ":\n")
		case Field:
			t.data(fmt.Sprintf("%-16s %s\n", Clean(b.Name), Cut(t.cell(b.Value), 1000)))
		case *Table:
			t.data(b.render(t))
		case Line:
			t.data(t.lines(b) + "\n")
		case Note:
			if t.Notes != nil {
				_, _ = io.WriteString(t.Notes, t.lines(Line(b))+"\n")
			}
		case Screen:
			t.Redraw(b)
		}
	}
}

func (t *Terminal) data(text string) {
	if t.Output != nil {
		_, _ = io.WriteString(t.Output, text)
	}
}

// cell returns a cell as one line, a status in its color.
func (t *Terminal) cell(c Cell) string { return t.rendered(c, oneLine) }

// lines is cell, but line breaks and tabs in texts stay.
func (t *Terminal) lines(c Cell) string { return t.rendered(c, Clean) }

func (t *Terminal) rendered(c Cell, clean func(string) string) string {
	switch c := c.(type) {
	case Line:
		var b strings.Builder
		for _, one := range c {
			b.WriteString(t.rendered(one, clean))
		}
		return b.String()
	case LiveCell:
		return t.rendered(c.Value, clean)
	case StatusCell:
		if color := colors[c.Tone]; t.Colors && color != "" {
			return escape + color + "m" + clean(c.Word) + plain + clean(c.More)
		}
	}
	return clean(c.in(t.Times))
}

// Redraw writes lines in place of the previous ones. They must be clean.
func (t *Terminal) Redraw(lines []string) {
	rows := t.Rows
	if rows <= 0 {
		rows = 24
	}
	var b strings.Builder
	if t.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", min(t.drawn, rows-1))
	}
	for _, line := range lines {
		b.WriteString("\r" + line + "\x1b[K\n")
	}
	b.WriteString("\x1b[J")
	t.drawn = len(lines)
	t.data(b.String())
}

// Drawn reports whether there are lines that Redraw would replace.
func (t *Terminal) Drawn() bool { return t.drawn > 0 }

// Cut cuts a line at a width, to which colors do not count. A color that is cut ends there.
func Cut(line string, width int) string {
	if width <= 0 || shown(line) <= width {
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

// shown returns the number of visible characters of a line.
func shown(line string) int {
	if !strings.Contains(line, escape) {
		return utf8.RuneCountInString(line)
	}
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
