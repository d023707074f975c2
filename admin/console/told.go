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

// told is what a result says, piece by piece.
type told struct {
	c      *Console
	of     operation.Operation
	role   operation.Role
	Blocks []block
}

// block is one piece: one of its fields is there.
type block struct {
	Heading string
	Fields  []field
	Table   *table
	Lines   []line
	Note    template.HTML
}

// field is a name and its text.
type field struct {
	Name   string
	Text   template.HTML
	Status *status // nil: it is none
}

// line is a line of text. One that begins with a blank stands as it is, and one that begins with
// a status shows it as such.
type line struct {
	Text      template.HTML
	Code      bool
	Status    *status
	Key, Link string // what it is about, and the page of that; "": none
}

// table is one of things: each row has a key, if it can be opened or acted on.
type table struct {
	Label   string // what it is called by who cannot see where it stands; no two on a page are called the same
	Columns []column
	Rows    []row
	Acts    bool
}

type column struct {
	Name  string
	Right bool
}

type row struct {
	Cells []cell
	Acts  []tab
}

// cell is a text, with where it leads to and by which name it is brought up to date.
type cell struct {
	Name   string // of its column
	Text   template.HTML
	Right  bool
	Link   string
	Live   string
	Due    string // the instant that it says, of what is to come; "": it says none
	Status *status
}

// status is a word with a shape, and what stands after it.
type status struct {
	Text, Tone, Live string
}

// toneOf returns the tone of the status at the beginning of a text.
func toneOf(of string) string {
	word, _, _ := strings.Cut(of, " ")
	return string(text.Status(word).Tone)
}

// statusOf is a status as it is shown; live is the name of its cell, or "".
func statusOf(text, live string) *status { return &status{text, toneOf(text), live} }

// badge returns a status cell as it is shown; live is the name of its cell, or "".
func badge(s text.StatusCell, live string) *status { return &status{s.String(), string(s.Tone), live} }

// show renders the blocks of a document.
func (t *told) show(d *text.Doc) {
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

// line adds a line of text. Lines without a text keep texts apart, which blocks do by themselves.
func (t *told) line(l text.Line) {
	plain := l.String()
	if strings.TrimSpace(plain) == "" {
		return
	}
	one := line{Code: strings.HasPrefix(plain, " ")}
	if len(l) > 0 {
		if ref, is := l[0].(text.RefCell); is {
			one.Key, one.Link, l = ref.String(), t.c.aboutIn(ref.Kind, ref.ID), l[1:]
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
func (t *told) note(format string, args ...any) {
	t.Blocks = append(t.Blocks, block{Note: t.c.html(text.Sprintf(format, args...))})
}

// field adds a name with its value, whose status is a badge.
func (t *told) field(of text.Field) {
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

// table adds a table. The first column of a list has the names of its rows.
func (t *told) table(from *text.Table) {
	of := &table{Label: t.label()}
	for _, h := range from.Headings {
		name, right := strings.CutPrefix(h, ">")
		of.Columns = append(of.Columns, column{strings.ToLower(name), right})
	}
	lists := t.of.Verb() == "list" && t.of.Offers != "" && !slices.ContainsFunc(t.Blocks, func(b block) bool { return b.Table != nil })
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
				c.Link = t.c.opens(t.of, key)
			}
			switch v := value.(type) {
			case text.StatusCell:
				c.Status = badge(v, c.Live)
			case text.RefCell: // the cell is the link
				c.Text = template.HTML(template.HTMLEscapeString(text.Plain(v, text.Times{}))) //nolint:gosec // escaped
				if c.Link == "" {
					c.Link = t.c.aboutIn(v.Kind, v.ID)
				}
			case text.CommandCell:
				if v.Short {
					c.Link, c.Text = t.c.linkTo(v), template.HTML(template.HTMLEscapeString(v.Label)) //nolint:gosec // escaped
				}
			case text.Instant:
				if t.of.Name == upcomingOf && of.Columns[i].Name == "when" {
					c.Due = time.Time(v).UTC().Format(time.RFC3339)
				}
			}
			if c.Link == "" {
				c.Link = t.c.aboutIn(of.Columns[i].Name, text.Plain(value, text.Times{}))
			}
			r.Cells = append(r.Cells, c)
		}
		if lists && t.of.Name != jobsList {
			r.Acts = t.c.actsOn(t.of, key, t.role)
			of.Acts = of.Acts || len(r.Acts) > 0
		}
		of.Rows = append(of.Rows, r)
	}
	if t.of.Name == deadErrorsOf {
		t.leadOn(of, from.Rows)
	}
	t.Blocks = append(t.Blocks, block{Table: of})
}

// rowKey returns the name of a row: the id of a reference, or the text of its first cell.
func rowKey(c text.Cell) string {
	if ref, is := c.(text.RefCell); is {
		return ref.ID
	}
	return text.Plain(c, text.Times{})
}

// label is what the next table is called: by the heading above it, or that it is the second.
func (t *told) label() string {
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
func (c *Console) aboutIn(column, text string) string {
	id, err := strconv.ParseInt(text, 10, 64)
	name := map[string]string{"job": "jobs show", "channel": "channels show", "schedule": "schedules show"}[column]
	o, there := c.named(name)
	switch {
	case !there, text == "", column != "schedule" && err != nil, column == "job" && id < 1: // activities have ids below 1
		return ""
	}
	return c.linkWith(o, map[string][]string{arguments(o)[0].Name: {text}})
}

// opens is the page of a thing in a list; "": it has none.
func (c *Console) opens(list operation.Operation, key string) string {
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

// actsOn are the acts on a thing in a list that a role may do.
func (c *Console) actsOn(list operation.Operation, key string, role operation.Role) []tab {
	var acts []tab
	for _, o := range c.operations {
		args := arguments(o)
		if !o.Changes || o.Allowed(role) != nil || len(args) == 0 {
			continue
		}
		if of, field := args[0].Listed(); of != list.Name || field != "" {
			continue
		}
		verb := o.Verb()
		if verb == "add" { // what there is already is changed
			verb = "change"
		}
		acts = append(acts, tab{Name: sentence(strings.ReplaceAll(verb, "-", " ")), Link: c.linkWith(o, map[string][]string{args[0].Name: {key}})})
	}
	return acts
}

// arguments are the parameters that say what an operation is about.
func arguments(o operation.Operation) []operation.Param {
	var args []operation.Param
	for _, p := range o.Params() {
		if p.Place == operation.Argument && !p.Local {
			args = append(args, p)
		}
	}
	return args
}

// sentence begins with a capital.
func sentence(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// marked finds commands and instants in a text.
var marked = regexp.MustCompile("`belfry ([^`]+)`|[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}[+-][0-9]{2}:[0-9]{2}|`([^`]+)`")

// html renders cells: an instant in the zone of the reader, a reference and a command as links.
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
			if to := c.aboutIn(v.Kind, v.ID); to != "" {
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

// tell has an operation tell a result.
func (v *visit) tell(o operation.Operation, in, out any) *told {
	t := &told{c: v.Console, of: o, role: v.who.Role}
	d := &text.Doc{}
	o.Text(d, in, out)
	t.show(d)
	return t
}
