package printer

import (
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// Table is aligned text. A heading that starts with ">" is a column of numbers,
// flush right.
type Table struct {
	headings []string
	rows     [][]string
	bare     bool // without its headings

	room        int // of the last column, see Dispensable
	dispensable []string
}

// NewTable returns a table without rows.
func NewTable(headings ...string) *Table { return &Table{headings: headings} }

// Add appends a row, a cell for each heading. Each cell is made one line that a terminal only shows.
func (t *Table) Add(cells ...string) {
	row := make([]string, len(cells))
	for i, cell := range cells {
		row[i] = oneLine(cell)
	}
	t.rows = append(t.rows, row)
}

// Empty reports whether no row was added.
func (t *Table) Empty() bool { return len(t.rows) == 0 }

// Drop leaves a column out.
func (t *Table) Drop(heading string) {
	i := slices.IndexFunc(t.headings, func(h string) bool { return strings.TrimPrefix(h, ">") == heading })
	t.headings = slices.Delete(t.headings, i, i+1)
	for n, row := range t.rows {
		t.rows[n] = slices.Delete(row, i, i+1)
	}
}

// Dispensable says which columns a narrow terminal does without, the first of them first,
// so that the last column of all has room for so many characters.
func (t *Table) Dispensable(room int, headings ...string) { t.room, t.dispensable = room, headings }

// fit makes the table fit into a terminal of so many columns: it leaves out columns, in
// the given order, until the last column has room for at least so many characters, and
// cuts that one.
func (t *Table) fit(columns, room int, dispensable ...string) {
	rest := func() int {
		used := 0
		widths := t.widths()
		for _, w := range widths[:len(widths)-1] {
			used += w + 2
		}
		return columns - used
	}
	for _, heading := range dispensable {
		if rest() >= room {
			break
		}
		t.Drop(heading)
	}
	last := max(rest(), room)
	for _, row := range t.rows {
		row[len(row)-1] = OneLine(row[len(row)-1], last)
	}
}

// widths are those of the columns.
func (t *Table) widths() []int {
	widths := make([]int, len(t.headings))
	for i, h := range t.headings {
		if !t.bare {
			widths[i] = utf8.RuneCountInString(strings.TrimPrefix(h, ">"))
		}
		for _, row := range t.rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	return widths
}

// write renders the table, each cell as painted has it, which does not change its width. No line
// ends in blanks.
func (t *Table) write(w io.Writer, painted func(heading, cell string) string) error {
	widths := t.widths()
	right := make([]bool, len(t.headings))
	head := make([]string, len(t.headings))
	for i, h := range t.headings {
		head[i], right[i] = strings.CutPrefix(h, ">")
	}
	all := t.rows
	if !t.bare {
		all = append([][]string{head}, t.rows...)
	}
	var b strings.Builder
	for n, row := range all {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if n > 0 || t.bare {
				cell = painted(head[i], cell)
			}
			if right[i] {
				line.WriteString(pad + cell + "  ")
			} else {
				line.WriteString(cell + pad + "  ")
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
