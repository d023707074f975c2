package text

import (
	"slices"
	"strings"
)

// Table is rows of cells. A heading that begins with ">" is that of a column of numbers, which is
// flush right.
type Table struct {
	Headings []string
	Rows     [][]Cell

	room        int // for the last column, see Dispensable
	dispensable []string
}

// NewTable returns a table without rows.
func NewTable(headings ...string) *Table { return &Table{Headings: headings} }

// Add appends a row with a value for each heading (see [CellOf]).
func (t *Table) Add(values ...any) {
	row := make([]Cell, len(values))
	for i, value := range values {
		row[i] = CellOf(value)
	}
	t.Rows = append(t.Rows, row)
}

// Empty reports whether no row was added.
func (t *Table) Empty() bool { return len(t.Rows) == 0 }

// Drop removes a column.
func (t *Table) Drop(heading string) {
	i := slices.IndexFunc(t.Headings, func(h string) bool { return strings.TrimPrefix(h, ">") == heading })
	t.Headings = slices.Delete(slices.Clone(t.Headings), i, i+1)
	for n, row := range t.Rows {
		t.Rows[n] = slices.Delete(slices.Clone(row), i, i+1)
	}
}

// Dispensable names the columns that a narrow terminal omits, in this order, until the last column
// has room for so many characters.
func (t *Table) Dispensable(room int, headings ...string) { t.room, t.dispensable = room, headings }

// render returns the table as lines. No line ends in blanks.
func (t *Table) render(to *Terminal) string {
	all := make([][]string, len(t.Rows)) // by row and column
	for n, row := range t.Rows {
		for _, c := range row {
			all[n] = append(all[n], to.cell(c))
		}
	}
	head, right := make([]string, len(t.Headings)), make([]bool, len(t.Headings))
	for i, h := range t.Headings {
		head[i], right[i] = strings.CutPrefix(h, ">")
	}
	if !to.Bare {
		all = append([][]string{head}, all...)
	}
	var columns, widths []int // that are shown
	for i := range head {
		width := 0
		for _, row := range all {
			width = max(width, shown(row[i]))
		}
		columns, widths = append(columns, i), append(widths, width)
	}
	if to.Columns > 0 && t.room > 0 {
		last := len(head) - 1
		rest := func() int {
			used := 0
			for _, i := range columns[:len(columns)-1] {
				used += widths[i] + 2
			}
			return to.Columns - used
		}
		for _, heading := range t.dispensable {
			if rest() >= t.room {
				break
			}
			columns = slices.DeleteFunc(columns, func(i int) bool { return head[i] == heading })
		}
		widths[last] = min(widths[last], max(rest(), t.room))
	}
	var b strings.Builder
	for _, row := range all {
		var line strings.Builder
		for _, i := range columns {
			cell := Cut(row[i], widths[i])
			pad := strings.Repeat(" ", widths[i]-shown(cell))
			if right[i] {
				line.WriteString(pad + cell + "  ")
			} else {
				line.WriteString(cell + pad + "  ")
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return b.String()
}
