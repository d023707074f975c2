package console

import (
	"cmp"
	"html/template"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/operation"

	"github.com/belfryhq/belfry/internal/text"
)

// view is a rendered result.
type view struct {
	c      *Console
	of     operation.Operation
	Blocks []block
}

// block is one part of a view. Exactly one field is set.
type block struct {
	Heading string
	Fields  []field
	Table   *table
	Lines   []line
	Note    template.HTML
}

// field is a name with its value.
type field struct {
	Name   string
	Text   template.HTML
	Status *status // nil if the value is no status
}

// line is a line of text. An indented line is code.
type line struct {
	Text      template.HTML
	Code      bool
	Status    *status
	Key, Link string // the object of the line, and its page; "" without one
}

// table is a table of objects. A row's actions are links to acts on its object.
type table struct {
	Label   string // its accessible name, unique on the page
	Columns []column
	Rows    []row
	Actions bool
}

// column is the heading of a column. Right aligns numbers.
type column struct {
	Name  string
	Right bool
}

type row struct {
	Cells   []cell
	Actions []tab
}

// cell is a value with its link and the name under which the stream updates it.
type cell struct {
	column

	Text       template.HTML
	Link, Live string
	Status     *status
}

// status is a badge.
type status struct {
	Text, Tone, Live string
}

// badge returns a status cell as it is shown; live is the name of its cell, or "".
func badge(s text.StatusCell, live string) *status { return &status{s.String(), string(s.Tone), live} }

// show renders the blocks of a document.
func (t *view) show(d *text.Doc) {
	for _, b := range d.Blocks {
		switch b := b.(type) {
		case text.Heading:
			t.Blocks = append(t.Blocks, block{Heading: sentence(string(b))})
		case text.Note:
			t.Blocks = append(t.Blocks, block{Note: t.c.html(text.Line(b))})
		case text.Field:
			t.field(b)
		case text.Line:
			t.line(b)
		case *text.Table:
			t.table(b)
		}
	}
}

// line adds a line of text. Blank lines are dropped, since blocks have margins.
func (t *view) line(l text.Line) {
	plain := l.String()
	if strings.TrimSpace(plain) == "" {
		return
	}
	one := line{Code: strings.HasPrefix(plain, " ")}
	if len(l) > 0 {
		if ref, is := l[0].(text.RefCell); is {
			one.Key, one.Link, l = ref.String(), t.c.pageFor(ref.Kind, ref.ID), l[1:]
		}
	}
	if len(l) > 0 && strings.TrimSpace(l[0].String()) == "" {
		l = l[1:]
	}
	if len(l) > 0 {
		if s, is := l[0].(text.StatusCell); is {
			one.Status, l = &status{s.Word, string(s.Tone), ""}, append(text.Line{text.Text(s.More)}, l[1:]...)
		}
	}
	one.Text = template.HTML(strings.TrimSpace(string(t.c.html(l)))) //nolint:gosec // rendered by html
	if n := len(t.Blocks); n > 0 && t.Blocks[n-1].Lines != nil {
		t.Blocks[n-1].Lines = append(t.Blocks[n-1].Lines, one)
		return
	}
	t.Blocks = append(t.Blocks, block{Lines: []line{one}})
}

// note adds a remark.
func (t *view) note(format string, args ...any) {
	t.Blocks = append(t.Blocks, block{Note: t.c.html(text.Sprintf(format, args...))})
}

// field adds a name with its value. A leading status becomes a badge.
func (t *view) field(of text.Field) {
	f, value := field{Name: of.Name}, of.Value
	if len(value) > 0 {
		if s, is := value[0].(text.StatusCell); is {
			f.Status = &status{s.Word + s.More, string(s.Tone), ""}
			value = value[1:]
			if len(value) > 0 {
				if after, is := value[0].(text.Text); is {
					value[0] = text.Text(strings.TrimPrefix(string(after), "; "))
				}
			}
		}
	}
	f.Text = t.c.html(value)
	if n := len(t.Blocks); n > 0 && t.Blocks[n-1].Fields != nil {
		t.Blocks[n-1].Fields = append(t.Blocks[n-1].Fields, f)
		return
	}
	t.Blocks = append(t.Blocks, block{Fields: []field{f}})
}

// table adds a table. The first column of a list links to the page of its object.
func (t *view) table(from *text.Table) {
	of := newTable(t.label(), from.Headings...)
	lists := t.of.Verb() == "list" && t.of.Suggests != "" && !slices.ContainsFunc(t.Blocks, func(b block) bool { return b.Table != nil })
	for _, cells := range from.Rows {
		var r row
		for i, value := range cells {
			c := t.c.cell(value)
			c.column = of.Columns[i]
			r.Cells = append(r.Cells, c)
		}
		if lists {
			key := rowKey(cells[0])
			r.Cells[0].Link = cmp.Or(t.c.showPageOf(t.of, key), r.Cells[0].Link)
			if t.of.Name != jobsList {
				r.Actions = t.c.actionsOn(t.of, key)
				of.Actions = of.Actions || len(r.Actions) > 0
			}
		}
		of.Rows = append(of.Rows, r)
	}
	t.Blocks = append(t.Blocks, block{Table: of})
}

// cell renders a cell of a table. A command is a link, labelled with the operation's verb if it has no
// label of its own.
func (c *Console) cell(value text.Cell) (shown cell) {
	if live, is := value.(text.LiveCell); is {
		shown.Live, value = live.Name, live.Value
	}
	switch v := value.(type) {
	case text.StatusCell:
		shown.Status = badge(v, shown.Live)
	case text.RefCell:
		shown.Link, shown.Text = c.pageFor(v.Kind, v.ID), escaped(v.String())
	case text.CommandCell:
		if shown.Link = c.linkTo(v); shown.Link != "" {
			o, _ := c.named(v.Operation)
			shown.Text = escaped(cmp.Or(v.Label, verbOf(o)+"…"))
		} else {
			shown.Text = escaped(v.Label)
		}
	default:
		shown.Text = c.html(text.Line{value})
	}
	return shown
}

// rowKey returns the key of a row: the id of a reference, or the text of its first cell.
func rowKey(c text.Cell) string {
	if ref, is := c.(text.RefCell); is {
		return ref.ID
	}
	return text.Plain(c, text.Times{})
}

// label returns the accessible name of the next table: the heading above it, with a number from the second
// table on.
func (t *view) label() string {
	label, tables := "table", 1
	for _, b := range t.Blocks {
		switch {
		case b.Heading != "":
			label = b.Heading
		case b.Table != nil:
			tables++
		}
	}
	if tables > 1 {
		label += " " + strconv.Itoa(tables)
	}
	return label
}

// html renders cells. Instants are in the reader's zone; references and commands are links.
func (c *Console) html(l text.Line) template.HTML {
	var b strings.Builder
	for _, one := range l {
		switch v := one.(type) {
		case text.Line:
			b.WriteString(string(c.html(v)))
		case text.LiveCell:
			b.WriteString(string(c.html(text.Line{v.Value})))
		case text.Instant:
			b.WriteString(string(c.instant(time.Time(v))))
		case text.TimeOfDay:
			b.WriteString(string(c.instant(time.Time(v))))
		case text.Param:
			b.WriteString(strings.ReplaceAll(string(v), "_", " "))
		case text.Code:
			b.WriteString("<code>" + template.HTMLEscapeString(string(v)) + "</code>")
		case text.RefCell:
			shown := template.HTMLEscapeString(v.String())
			if to := c.pageFor(v.Kind, v.ID); to != "" {
				shown = `<a href="` + template.HTMLEscapeString(to) + `">` + shown + "</a>"
			}
			b.WriteString(shown)
		case text.CommandCell:
			b.WriteString(c.commandLink(v))
		default:
			b.WriteString(template.HTMLEscapeString(v.String()))
		}
	}
	return template.HTML(b.String()) //nolint:gosec // every part is escaped above
}

// instant renders an instant in the reader's zone.
func (c *Console) instant(at time.Time) template.HTML {
	shown := text.Times{Zone: c.zone}.Clock(at)
	return template.HTML(`<time datetime="` + strings.Replace(shown, " ", "T", 1) + `">` + shown + "</time>") //nolint:gosec // digits
}

// failure renders an error.
func (c *Console) failure(err error) template.HTML { return c.html(text.OfError(err)) }

// escaped returns text as HTML.
func escaped(text string) template.HTML {
	return template.HTML(template.HTMLEscapeString(text)) //nolint:gosec // it is escaped
}

// commandLink renders a command as a link to the page of its operation.
func (c *Console) commandLink(command text.CommandCell) string {
	shown := command.Label
	if shown == "" {
		shown = command.Shell()
	}
	shown = template.HTMLEscapeString(shown)
	if to := c.linkTo(command); to != "" {
		return `<a class="command" href="` + template.HTMLEscapeString(to) + `">` + shown + "</a>"
	}
	if command.Label != "" {
		return shown + ": <code>" + template.HTMLEscapeString(command.Shell()) + "</code>"
	}
	return "<code>" + shown + "</code>"
}

// plain returns a line for a cell that is updated, in the reader's zone.
func (c *Console) plain(l text.Line) string {
	return strings.ReplaceAll(text.Plain(l, text.Times{Zone: c.zone}), "`", "")
}

// render renders a result.
func (h *handler) render(o operation.Operation, in, out any) *view {
	return h.viewOf(o, func(d *text.Doc) { o.Text(d, in, out) })
}

// viewOf renders a document about an operation.
func (h *handler) viewOf(o operation.Operation, describe func(*text.Doc)) *view {
	t, d := &view{c: h.Console, of: o}, &text.Doc{}
	describe(d)
	t.show(d)
	return t
}
