package console

import "strings"

// deadErrorsOf counts dead letters by what they died of.
const deadErrorsOf = "dead-letters errors"

// leadOn has the rows of a table of errors lead to the letters that have them: to the example, and
// in place of the last column, which is the command of a redrive's plan, to the list and the act
// that are narrowed as it is.
func (t *told) leadOn(of *table, rows [][]string) {
	last := len(of.Columns) - 1
	of.Columns = of.Columns[:last]
	for i, texts := range rows {
		r := &of.Rows[i]
		r.Cells = r.Cells[:last]
		for j := range r.Cells {
			if job, channel, is := strings.Cut(texts[j], ":"); is && r.Cells[j].Name == "example" {
				r.Cells[j].Link = t.c.advised("dead-letters show --job " + job + " --channel " + channel)
			}
		}
		flags := strings.TrimSuffix(strings.TrimPrefix(strings.Trim(texts[last], "`"), "belfry dead-letters redrive"), " --dry-run")
		r.Acts = append(r.Acts, tab{Name: "List", Link: t.c.advised("dead-letters list" + flags)})
		if redrive, there := t.c.named("dead-letters redrive"); there && redrive.Allowed(t.role) == nil {
			r.Acts = append(r.Acts, tab{Name: "Redrive…", Link: t.c.advised("dead-letters redrive" + flags)})
		}
		of.Acts = true
	}
}
