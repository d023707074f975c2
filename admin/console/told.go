package console

import (
	"html/template"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/belfryhq/belfry/admin/operation"

	"github.com/belfryhq/belfry/internal/printer"
)

// told is what a result says, piece by piece. It implements printer.Parts.
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

// tones are what a status means to an operator: it goes on, it is done, it waits for somebody, it
// is broken, it is yet to come.
func tones() map[string]string {
	return map[string]string{
		"breaker": "bad", "RUNNING": "go", "DELIVERING": "go", "PROCESSING": "go", "live": "go",
		"PROCESSED": "done", "SENT": "done", "ok": "done",
		"ABORTED": "wait", "WAITS": "wait", "CANCELLED": "wait", "paused": "wait", "warning": "wait",
		"FAILED": "bad", "EXPIRED": "bad", "DEAD": "bad", "failed": "bad", "dead": "bad", "silent": "bad",
	}
}

func toneOf(text string) string {
	word, _, _ := strings.Cut(text, " ")
	if tone, known := tones()[word]; known {
		return tone
	}
	return "idle"
}

// statusOf is a status as it is shown; live is the name of its cell, or "".
func statusOf(text, live string) *status { return &status{text, toneOf(text), live} }

// statusColumn reports whether a column or a field has statuses.
func statusColumn(name string) bool {
	switch strings.ToUpper(name) {
	case "STATUS", "STATE", "OUTCOME":
		return true
	}
	return false
}

// Text implements printer.Parts. A line alone that ends with a colon is the heading of what comes;
// lines without a text before it keep texts apart, which blocks do by themselves.
func (t *told) Text(text string) {
	text = strings.Trim(text, "\n")
	if text == "" {
		return
	}
	if heading, is := strings.CutSuffix(text, ":"); is && !strings.Contains(text, "\n") {
		t.Blocks = append(t.Blocks, block{Heading: sentence(heading)})
		return
	}
	for l := range strings.SplitSeq(text, "\n") {
		one := line{Code: strings.HasPrefix(l, " ")}
		if id, rest, more := strings.Cut(l, "\t"); more && t.of.Name == "jobs recipients" {
			one.Key, one.Link, l = id, t.c.aboutIn("channel", id), strings.Replace(rest, "\t", ": ", 1)
		}
		if word, rest, more := strings.Cut(l, " "); more && toneOf(word) != "idle" {
			one.Status, l = statusOf(word, ""), rest
		}
		one.Text = t.c.inline(strings.TrimSpace(l))
		if n := len(t.Blocks); n > 0 && t.Blocks[n-1].Lines != nil {
			t.Blocks[n-1].Lines = append(t.Blocks[n-1].Lines, one)
			continue
		}
		t.Blocks = append(t.Blocks, block{Lines: []line{one}})
	}
}

// Note implements printer.Parts.
func (t *told) Note(text string) { t.Blocks = append(t.Blocks, block{Note: t.c.inline(text)}) }

// Field implements printer.Parts.
func (t *told) Field(name, text string) {
	f := field{Name: name, Text: t.c.inline(text)}
	if statusColumn(name) {
		word, rest, more := strings.Cut(text, "; ")
		f.Status = statusOf(word, "")
		f.Text = ""
		if more {
			f.Text = t.c.inline(rest)
		}
	}
	if n := len(t.Blocks); n > 0 && t.Blocks[n-1].Fields != nil {
		t.Blocks[n-1].Fields = append(t.Blocks[n-1].Fields, f)
		return
	}
	t.Blocks = append(t.Blocks, block{Fields: []field{f}})
}

// liveColumns are the cells of a list of jobs that go on, by their headings.
func liveColumns() map[string]string {
	return map[string]string{"STATUS": "status", "WALK": "walked", "ROWS": "rows", "SENT": "sent"}
}

// Table implements printer.Parts. The first column of a list has what its things are called by.
func (t *told) Table(headings []string, rows [][]string) {
	of := &table{Label: t.label()}
	for _, h := range headings {
		name, right := strings.CutPrefix(h, ">")
		of.Columns = append(of.Columns, column{strings.ToLower(name), right})
	}
	lists := t.of.Verb() == "list" && t.of.Offers != "" && !slices.ContainsFunc(t.Blocks, func(b block) bool { return b.Table != nil })
	for _, texts := range rows {
		var r row
		key := texts[0]
		for i, text := range texts {
			c := cell{Name: of.Columns[i].Name, Text: t.c.inline(text), Right: of.Columns[i].Right}
			if lists && i == 0 {
				c.Link = t.c.opens(t.of, key)
			}
			if t.of.Name == jobsList {
				if live := liveColumns()[strings.ToUpper(of.Columns[i].Name)]; live != "" {
					c.Live = key + "." + live
				}
				if of.Columns[i].Name == "title" {
					c.Link = t.c.opens(t.of, key)
				}
			}
			if statusColumn(of.Columns[i].Name) {
				c.Status = statusOf(text, c.Live)
			}
			if of.Columns[i].Name == "outcome" {
				c.Status.Tone = outcomeTone(text)
			}
			if t.of.Name == upcomingOf && of.Columns[i].Name == "when" {
				c.Due = instantOf(text)
			}
			if c.Link == "" {
				c.Link = t.c.aboutIn(of.Columns[i].Name, text)
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
		t.leadOn(of, rows)
	}
	t.Blocks = append(t.Blocks, block{Table: of})
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

// outcomeTone is what a reason of an audit means to an operator.
func outcomeTone(text string) string {
	reason, _, _ := strings.Cut(text, ",")
	tone, known := map[string]string{
		"sending": "go", "read": "done", "unread": "done", "sent": "done", "held": "wait", "cancelled": "wait", "withdrawn": "wait", "inactive": "wait",
		"dead": "bad", "skipped": "bad", "missing": "bad",
	}[reason]
	if !known {
		return toneOf(text)
	}
	return tone
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

// unmarked is a text as inline shows it, for a cell that is brought up to date.
func (c *Console) unmarked(text string) string {
	return strings.ReplaceAll(marked.ReplaceAllStringFunc(text, func(part string) string {
		if part[0] == '`' {
			return part
		}
		return c.inZone(part)
	}), "`", "")
}

// tell has an operation tell a result.
func (v *visit) tell(o operation.Operation, in, out any) *told {
	t := &told{c: v.Console, of: o, role: v.who.Role}
	o.Text(&printer.Page{Parts: t}, in, out)
	return t
}
