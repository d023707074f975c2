package draw

import (
	"html/template"
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/console/words"
	"github.com/belfryhq/belfry/internal/text"
)

// Table is the table alternative of a drawing, the template part "data".
type Table struct {
	Label   string // its accessible name, unique on the page
	Columns []Column
	Rows    [][]Cell
}

// Column is the heading of a column. Right aligns numbers.
type Column struct {
	Name  string
	Right bool
}

// Cell is a value of a column.
type Cell struct {
	Column

	Text template.HTML
}

// NewTable returns a table without rows. A name that begins with > is a column of numbers.
func NewTable(label string, names ...string) *Table {
	return &Table{Label: label, Columns: Columns(names...)}
}

// Columns returns the columns with names. A name that begins with > is a column of numbers.
func Columns(names ...string) (columns []Column) {
	for _, name := range names {
		name, right := strings.CutPrefix(name, ">")
		columns = append(columns, Column{strings.ToLower(name), right})
	}
	return columns
}

// Add appends a row with a value for each column (see text.CellOf). Instants are in the zone.
func (t *Table) Add(zone *time.Location, values ...any) {
	var row []Cell
	for i, value := range values {
		c := text.CellOf(value)
		shown := words.Escaped(c.String())
		if at, is := c.(text.Instant); is {
			shown = words.Instant(zone, time.Time(at))
		}
		row = append(row, Cell{t.Columns[i], shown})
	}
	t.Rows = append(t.Rows, row)
}
