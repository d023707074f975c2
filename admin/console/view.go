package console

import (
	"cmp"
	"html/template"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/console/draw"
	"github.com/belfryhq/belfry/admin/console/parts"
	"github.com/belfryhq/belfry/admin/console/words"
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
type field = parts.Field

// line is a line of text. An indented line is code.
type line struct {
	Text template.HTML
	Code bool
}

// table is a table of objects. A row's actions are links to acts on its object.
type table struct {
	Label   string // its accessible name, unique on the page
	Columns []draw.Column
	Rows    []row
	Actions bool
}

type row struct {
	Cells   []draw.Cell
	Actions []tab
}

// show renders the blocks of a document.
func (t *view) show(d *text.Doc) {
	for _, b := range d.Blocks {
		switch b := b.(type) {
		case text.Heading:
			t.Blocks = append(t.Blocks, block{Heading: words.Sentence(words.Label(string(b)))})
		case text.Note:
			t.Blocks = append(t.Blocks, block{Note: t.c.html(worded(text.Line(b), words.Notice))})
		case text.Field:
			t.field(b)
		case text.Line:
			t.line(b)
		case *text.Table:
			t.table(b)
		}
	}
}

// worded returns a line in the words of pages. Commands and references in it stay.
func worded(l text.Line, words func(string) string) text.Line {
	l = slices.Clone(l)
	for i, one := range l {
		if part, is := one.(text.Text); is {
			l[i] = text.Text(words(string(part)))
		}
	}
	return l
}

// line adds a line of text. Blank lines are dropped, since blocks have margins.
func (t *view) line(l text.Line) {
	plain := l.String()
	if strings.TrimSpace(plain) == "" {
		return
	}
	one := line{Text: t.c.html(worded(l, words.Notice)), Code: strings.HasPrefix(plain, " ")}
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

// field adds a name with its value.
func (t *view) field(of text.Field) {
	f := field{Name: words.Label(of.Name), Text: t.c.html(of.Value)}
	if n := len(t.Blocks); n > 0 && t.Blocks[n-1].Fields != nil {
		t.Blocks[n-1].Fields = append(t.Blocks[n-1].Fields, f)
		return
	}
	t.Blocks = append(t.Blocks, block{Fields: []field{f}})
}

// table adds a table. The first column of a list links to the page of its object.
func (t *view) table(from *text.Table) {
	of := &table{Label: t.label(), Columns: draw.Columns(labels(from.Headings)...)}
	lists := t.of.Verb() == "list" && t.of.Suggests != "" && !slices.ContainsFunc(t.Blocks, func(b block) bool { return b.Table != nil })
	for _, cells := range from.Rows {
		r := t.c.row(of, cells)
		if lists {
			key := rowKey(cells[0])
			if to := t.c.showPageOf(t.of, key); to != "" {
				r.Cells[0].Text = anchor("", to, text.Plain(cells[0], text.Times{}))
			}
			r.Actions = t.c.actionsOn(t.of, key)
			of.Actions = of.Actions || len(r.Actions) > 0
		}
		of.Rows = append(of.Rows, r)
	}
	t.Blocks = append(t.Blocks, block{Table: of})
}

// labels returns the headings of a table in the words of pages.
func labels(headings []string) (list []string) {
	for _, one := range headings {
		list = append(list, words.Label(one))
	}
	return list
}

// row renders a row. A command without a label is labelled with its operation's verb, and omitted if the
// caller may not run it.
func (c *Console) row(of *table, cells []text.Cell) (r row) {
	for i, value := range cells {
		if command, is := value.(text.CommandCell); is && command.Label == "" {
			value = text.Text("")
			if o, _ := c.named(command.Operation); c.linkTo(command) != "" {
				value = command.As(verbOf(o) + "…")
			}
		}
		r.Cells = append(r.Cells, draw.Cell{Column: of.Columns[i], Text: c.html(text.Line{value})})
	}
	return r
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
			if s, is := v.Value.(text.StatusCell); is {
				b.WriteString(string(badge(words.CellStatus(s), v.Name)))
				continue
			}
			b.WriteString(`<span data-cell="` + template.HTMLEscapeString(v.Name) + `">` + string(c.html(text.Line{v.Value})) + "</span>")
		case text.StatusCell:
			b.WriteString(string(badge(words.CellStatus(v), "")))
		case text.Instant:
			b.WriteString(string(words.Instant(c.zone, time.Time(v))))
		case text.TimeOfDay:
			b.WriteString(string(words.Instant(c.zone, time.Time(v))))
		case text.Param:
			b.WriteString(strings.ReplaceAll(string(v), "_", " "))
		case text.Code:
			b.WriteString("<code>" + template.HTMLEscapeString(string(v)) + "</code>")
		case text.RefCell:
			b.WriteString(string(anchor("", c.pageFor(v.Kind, v.ID), v.String())))
		case text.CommandCell:
			b.WriteString(string(c.command(v)))
		default:
			b.WriteString(template.HTMLEscapeString(v.String()))
		}
	}
	return template.HTML(b.String()) //nolint:gosec // every part is escaped above
}

// badge renders a status. live is the name under which the stream updates it, or "".
func badge(s words.Status, live string) template.HTML {
	cell := ""
	if live != "" {
		cell = `" data-cell="` + template.HTMLEscapeString(live)
	}
	return template.HTML(`<span class="status" data-tone="` + string(s.Tone) + cell + `">` + template.HTMLEscapeString(s.Word) + //nolint:gosec // escaped
		"</span>")
}

// anchor renders a link, or the text alone without an address.
func anchor(class, to, shown string) template.HTML {
	if to == "" {
		return words.Escaped(shown)
	}
	if class != "" {
		class = ` class="` + class + `"`
	}
	return template.HTML("<a" + class + ` href="` + template.HTMLEscapeString(to) + `">` + template.HTMLEscapeString(shown) + //nolint:gosec // escaped
		"</a>")
}

// failure renders an error.
func (c *Console) failure(err error) template.HTML { return c.html(text.OfError(err)) }

// command renders a command as a link to the page of its operation, or as code without one.
func (c *Console) command(v text.CommandCell) template.HTML {
	switch to := c.linkTo(v); {
	case v.Short:
		return anchor("", to, v.Label)
	case to != "":
		o, _ := c.named(v.Operation)
		return anchor("command", to, cmp.Or(v.Label, phraseOf(o, v.Args)))
	case v.Label != "":
		return words.Escaped(v.Label) + ": <code>" + words.Escaped(v.Shell()) + "</code>"
	}
	return "<code>" + words.Escaped(v.Shell()) + "</code>"
}

// phraseOf returns what an operation does, for a link: "list senders", "show job 17".
func phraseOf(o operation.Operation, args []string) string {
	noun := o.Noun()
	if len(args) > 0 {
		noun = singular(noun)
	}
	return strings.Join(strings.Fields(words.Label(strings.ReplaceAll(o.Verb()+" "+noun, "-", " "))+" "+strings.Join(args, " ")), " ")
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
