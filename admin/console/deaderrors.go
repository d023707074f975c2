package console

import (
	"slices"

	"github.com/belfryhq/belfry/internal/text"
)

// deadErrorsOf counts dead letters by what they died of.
const deadErrorsOperation = "dead-letters errors"

// leadOn has the rows of a table of errors lead to the letters that have them: to the example, and
// in place of the last column, which is the command of a redrive's plan, to the list and the act
// that are narrowed as it is.
func (t *view) leadOn(of *table, rows [][]text.Cell) {
	last := len(of.Columns) - 1
	of.Columns = of.Columns[:last]
	for i, cells := range rows {
		r := &of.Rows[i]
		r.Cells = r.Cells[:last]
		redrive, is := cells[last].(text.CommandCell)
		if !is {
			continue
		}
		filter := redrive
		filter.Flags = slices.DeleteFunc(slices.Clone(redrive.Flags), func(f text.Flag) bool { return f.Name == "dry-run" })
		filter.Operation = "dead-letters list"
		r.Actions = append(r.Actions, tab{Name: "List", Link: t.c.linkTo(filter)})
		if o, there := t.c.named(redrive.Operation); there && o.Allowed(t.role) == nil {
			filter.Operation = redrive.Operation
			r.Actions = append(r.Actions, tab{Name: "Redrive…", Link: t.c.linkTo(filter)})
		}
		of.Actions = true
	}
}
