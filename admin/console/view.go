package console

import (
	"html/template"
	"regexp"
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
	role   operation.Role
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
	Name   string // the name of its column
	Text   template.HTML
	Right  bool
	Link   string
	Live   string
	Due    string // the instant of upcoming work; "" otherwise
	Status *status
}

// status is a badge.
type status struct {
	Text, Tone, Live string
}

// toneOf returns the tone of the status at the beginning of a text.
func toneOf(of string) string {
	word, _, _ := strings.Cut(of, " ")
	return string(text.Status(word).Tone)
}

// statusOf returns the badge of a status text. live is the name of its cell, or "".
func statusOf(text, live string) *status { return &status{text, toneOf(text), live} }

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
	of := &table{Label: t.label()}
	for _, h := range from.Headings {
		name, right := strings.CutPrefix(h, ">")
		of.Columns = append(of.Columns, column{strings.ToLower(name), right})
	}
	lists := t.of.Verb() == "list" && t.of.Suggests != "" && !slices.ContainsFunc(t.Blocks, func(b block) bool { return b.Table != nil })
	for _, cells := range from.Rows {
		var r row
		key := rowKey(cells[0])
		for i, value := range cells {
			live := ""
			if one, is := value.(text.LiveCell); is {
				live, value = one.Name, one.Value
			}
			c := cell{Name: of.Columns[i].Name, Live: live, Text: t.c.html(text.Line{value}), Right: of.Columns[i].Right}
			if lists && i == 0 {
				c.Link = t.c.showPageOf(t.of, key)
			}
			switch v := value.(type) {
			case text.StatusCell:
				c.Status = badge(v, c.Live)
			case text.RefCell: // the cell is the link
				c.Text = template.HTML(template.HTMLEscapeString(text.Plain(v, text.Times{}))) //nolint:gosec // escaped
				if c.Link == "" {
					c.Link = t.c.pageFor(v.Kind, v.ID)
				}
			case text.CommandCell:
				if v.Short {
					c.Link, c.Text = t.c.linkTo(v), template.HTML(template.HTMLEscapeString(v.Label)) //nolint:gosec // escaped
				}
			case text.Instant:
				if t.of.Name == upcomingOperation && of.Columns[i].Name == "when" {
					c.Due = time.Time(v).UTC().Format(time.RFC3339)
				}
			}
			if c.Link == "" {
				c.Link = t.c.pageFor(of.Columns[i].Name, text.Plain(value, text.Times{}))
			}
			r.Cells = append(r.Cells, c)
		}
		if lists && t.of.Name != jobsList {
			r.Actions = t.c.actionsOn(t.of, key, t.role)
			of.Actions = of.Actions || len(r.Actions) > 0
		}
		of.Rows = append(of.Rows, r)
	}
	if t.of.Name == deadErrorsOperation {
		t.leadOn(of, from.Rows)
	}
	t.Blocks = append(t.Blocks, block{Table: of})
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

// aboutIn returns the page of the job, person or schedule that a cell of a column names. It is empty if
// the cell names none.
func (c *Console) pageFor(column, text string) string {
	id, err := strconv.ParseInt(text, 10, 64)
	name := map[string]string{"job": "jobs show", "channel": "channels show", "schedule": "schedules show"}[column]
	o, there := c.named(name)
	switch {
	case !there, text == "", column != "schedule" && err != nil, column == "job" && id < 1: // activities have ids below 1
		return ""
	}
	return c.linkWith(o, map[string][]string{arguments(o)[0].Name: {text}})
}

// showPageOf returns the page of an object in a list, or "" if it has none.
func (c *Console) showPageOf(list operation.Operation, key string) string {
	o, there := c.named(list.Noun() + " show")
	if !there || key == "" {
		return ""
	}
	args := arguments(o)
	if len(args) != 1 {
		return ""
	}
	return c.linkWith(o, map[string][]string{args[0].Name: {key}})
}

// actionsOn returns links to the acts on an object of a list that a role may run.
func (c *Console) actionsOn(list operation.Operation, key string, role operation.Role) []tab {
	var actions []tab
	for _, o := range c.operations {
		args := arguments(o)
		if !o.Changes || o.Allowed(role) != nil || len(args) == 0 {
			continue
		}
		if of, field := args[0].Listed(); of != list.Name || field != "" {
			continue
		}
		verb := o.Verb()
		if verb == "add" { // the object exists
			verb = "change"
		}
		actions = append(actions, tab{Name: sentence(strings.ReplaceAll(verb, "-", " ")), Link: c.linkWith(o, map[string][]string{args[0].Name: {key}})})
	}
	return actions
}

// arguments returns the positional parameters of an operation.
func arguments(o operation.Operation) []operation.Param {
	var args []operation.Param
	for _, p := range o.Params() {
		if p.Place == operation.Argument && !p.Local {
			args = append(args, p)
		}
	}
	return args
}

// sentence returns text with a capital first letter.
func sentence(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// marked finds commands and instants in a text.
var marked = regexp.MustCompile("`belfry ([^`]+)`|[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}[+-][0-9]{2}:[0-9]{2}|`([^`]+)`")

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
			b.WriteString(c.timeElement(time.Time(v)))
		case text.TimeOfDay:
			b.WriteString(c.timeElement(time.Time(v)))
		case text.Code:
			b.WriteString("<code>" + template.HTMLEscapeString(string(v)) + "</code>")
		case text.RefCell:
			shown := template.HTMLEscapeString(text.Plain(v, text.Times{}))
			if to := c.pageFor(v.Kind, v.ID); to != "" {
				shown = `<a href="` + template.HTMLEscapeString(to) + `">` + shown + "</a>"
			}
			b.WriteString(shown)
		case text.CommandCell:
			b.WriteString(c.commandLink(v))
		default:
			b.WriteString(string(c.inline(text.Plain(v, text.Times{}))))
		}
	}
	return template.HTML(b.String()) //nolint:gosec // every part is escaped above
}

// timeElement renders an instant in the reader's zone.
func (c *Console) timeElement(at time.Time) string {
	instant := text.Times{Zone: c.zone}.Clock(at)
	return `<time datetime="` + strings.Replace(instant, " ", "T", 1) + `">` + instant + "</time>"
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

// linkTo returns the page of a command's operation, filled with its parameters. It is empty if there is
// no such page, or the caller's role does not allow the operation.
func (c *Console) linkTo(command text.CommandCell) string {
	o, there := c.named(command.Operation)
	if !there || c.role != 0 && o.Allowed(c.role) != nil {
		return ""
	}
	values := make(map[string][]string)
	if args := arguments(o); len(args) > 0 && len(command.Args) > 0 {
		for i, arg := range command.Args {
			name := args[min(i, len(args)-1)].Name
			values[name] = append(values[name], arg)
		}
	}
	for _, f := range command.Flags {
		name, value := strings.ReplaceAll(f.Name, "-", "_"), f.Value
		if f.Alone {
			value = "on"
		}
		values[name] = append(values[name], value)
	}
	return c.linkWith(o, values)
}

// inline is a text with its commands as links and its instants marked.
func (c *Console) inline(text string) template.HTML {
	var b strings.Builder
	for {
		at := marked.FindStringSubmatchIndex(text)
		if at == nil {
			break
		}
		b.WriteString(template.HTMLEscapeString(text[:at[0]]))
		switch {
		case at[2] >= 0:
			b.WriteString(c.command(text[at[2]:at[3]]))
		case at[4] >= 0:
			b.WriteString("<code>" + template.HTMLEscapeString(text[at[4]:at[5]]) + "</code>")
		default:
			instant := c.inZone(text[at[0]:at[1]])
			b.WriteString(`<time datetime="` + strings.Replace(instant, " ", "T", 1) + `">` + instant + "</time>")
		}
		text = text[at[1]:]
	}
	b.WriteString(template.HTMLEscapeString(text))
	return template.HTML(b.String()) //nolint:gosec // every part is escaped above
}

// command is a command line as the link to the page that does the same, if there is one.
func (c *Console) command(text string) string {
	shown := template.HTMLEscapeString("belfry " + text)
	if to := c.advised(text); to != "" {
		return `<a class="command" href="` + template.HTMLEscapeString(to) + `">` + shown + "</a>"
	}
	return "<code>" + shown + "</code>"
}

// plain returns a line for a cell that is updated, in the reader's zone.
func (c *Console) plain(l text.Line) string {
	return strings.ReplaceAll(text.Plain(l, text.Times{Zone: c.zone}), "`", "")
}

// render renders a result.
func (h *handler) render(o operation.Operation, in, out any) *view {
	t := &view{c: h.Console, of: o, role: h.who.Role}
	d := &text.Doc{}
	o.Text(d, in, out)
	t.show(d)
	return t
}
