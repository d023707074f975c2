package console

import (
	"encoding/json"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/belfryhq/belfry/admin/operation"

	"github.com/belfryhq/belfry/internal/text"
)

// operationPage is the page of an operation: its form, what it told, and what goes with it.
type operationPage struct {
	Title, Short string
	Action       string // where the form is sent
	Method       string
	Inputs, More []input
	Filter       bool // the form narrows what is looked at
	Told         *told
	Result       *told // of an act that was done
	Fault        template.HTML
	Next         string // the page after this one
	Whole        bool   // Sheet has more than the page
	Sheet        string // what is shown, as CSV; "": it is no list
	Tabs         []tab  // what else there is to look at
	Acts         []tab  // what may be done beside
	Hidden       []input
	Cards        []card // samples of a previewed notification
	Button       string
	Plans        bool // the act can say beforehand what it would do
	Agree        *agreement
	Danger       bool
	Idle         bool // by its plan there is nothing to do
	Back         tab
}

// mostItems is how many items of a stream a page shows.
const mostItems = 200

// errEnough ends a stream whose page is full.
var errEnough = errors.New("the page is full")

// look shows what an operation that changes nothing tells.
func (v *visit) look(o operation.Operation) {
	v.allow(o)
	values, err := v.given(o)
	if err != nil {
		v.problem(http.StatusBadRequest, err)
		return
	}
	in, faults := read(o, values)
	page := operationPage{Title: titleOf(o, values), Short: o.Short + ".", Method: "get", Action: v.link(v.req.URL.Path), Tabs: v.tabs(o), Acts: v.beside(o, values), Button: "Show"}
	status := http.StatusOK
	switch {
	case len(faults) > 0:
		status = http.StatusUnprocessableEntity
	case missing(o, values):
	case v.req.URL.Query().Get(formOf) == "csv" && o.Records() != nil:
		v.sheet(o, in, values)
		return
	default:
		var rest string
		page.Sheet, page.Whole = v.sheetLink(o), o.Item() != nil
		if page.Told, page.Next, err = v.run(o, in, values); err != nil {
			status = statusFor(err)
			faults, rest = faultsOf(o, err)
			page.Fault = v.inline(rest)
		}
	}
	if o.Name == jobsList && page.Told != nil && len(faults) == 0 {
		page.Acts = append(page.Acts, v.actsOnMatching(values)...)
	}
	if o.Name == personOf && page.Told != nil {
		page.Acts = v.actsOnPerson(values)
	}
	page.Inputs, page.More = v.inputs(o, values, faults)
	v.settle(o, &page)
	page.Filter = len(faults) == 0 && page.Fault == "" && !missing(o, values)
	v.show(status, "operation", frame{Title: page.Title, About: about(o, values), Page: page})
}

// run runs an operation that changes nothing, and has it told.
func (v *visit) run(o operation.Operation, in any, values url.Values) (*told, string, error) {
	if o.Item() != nil {
		t, err := v.items(o, in)
		return t, "", err
	}
	out, err := v.do(v.req.Context(), o, in)
	if out == nil {
		return nil, "", err
	}
	return v.tell(o, in, out), v.next(o, out, values), err
}

// items shows the beginning of a stream.
func (v *visit) items(o operation.Operation, in any) (*told, error) {
	t := &told{c: v.Console, of: o, role: v.who.Role}
	page, n := &text.Doc{}, 0
	defer func() { t.show(page) }()
	tell := o.Teller(in)
	if tell == nil {
		tell = func(p *text.Doc, item any) {
			for _, one := range operation.Lines(item) {
				if line, err := json.Marshal(one); err == nil {
					p.Printf(" %s\n", line)
				}
			}
		}
	}
	out, err := v.stream(v.req.Context(), o, in, func(item any) error {
		tell(page, item)
		if n++; n == mostItems {
			return errEnough
		}
		return nil
	})
	switch {
	case errors.Is(err, errEnough):
		page.Note("these are the first %d; all of them are in the CSV, and %s writes them", mostItems, text.Command(o.Name))
		return t, nil
	case err != nil:
		return t, err
	case out != nil:
		o.Text(page, in, out)
	case n == 0 && o.Nothing != "":
		page.Note("%s", o.Nothing)
	}
	return t, nil
}

// next is the address of the page after a result.
func (v *visit) next(o operation.Operation, out any, values url.Values) string {
	list, is := out.(interface{ NextPage() string })
	if !is || list.NextPage() == "" {
		return ""
	}
	for _, name := range operation.Pagers() {
		if slices.ContainsFunc(o.Params(), func(p operation.Param) bool { return p.Name == name }) {
			after := make(map[string][]string)
			for other, texts := range values {
				after[other] = texts
			}
			after[name] = []string{list.NextPage()}
			return v.linkWith(o, after)
		}
	}
	return ""
}

// tabs are the other things to look at of the same noun, about the same thing if there is one.
func (v *visit) tabs(o operation.Operation) []tab {
	var tabs []tab
	same := make(map[string][]string)
	for _, p := range arguments(o) {
		if at := v.req.PathValue(p.Name); at != "" {
			same[p.Name] = []string{at}
		}
	}
	for _, other := range v.operations {
		if other.Noun() != o.Noun() || other.Noun() == "" || other.Changes || other.Allowed(v.who.Role) != nil || other.Shared || aboutOne(other) != aboutOne(o) {
			continue
		}
		tabs = append(tabs, tab{sentence(strings.ReplaceAll(other.Verb(), "-", " ")), v.linkWith(other, same), other.Name == o.Name})
	}
	if len(tabs) < 2 {
		return nil
	}
	return tabs
}

// aboutOne reports whether an operation is about one thing that its path names.
func aboutOne(o operation.Operation) bool { return strings.Contains(pathOf(o), "{") }

// beside are the acts of a list's noun that are about none of the things in it.
func (v *visit) beside(o operation.Operation, values url.Values) []tab {
	if o.Verb() != "list" {
		return nil
	}
	var acts []tab
	for _, other := range v.operations {
		args := arguments(other)
		if other.Noun() != o.Noun() || !other.Changes || other.Allowed(v.who.Role) != nil {
			continue
		}
		makes := slices.Contains([]string{"add", "create"}, other.Verb())
		if len(args) > 0 && !makes {
			if of, _ := args[0].Listed(); of == o.Name {
				continue
			}
		}
		link := v.link(barePath(other))
		if of := narrowed(other, values); len(of) > 0 {
			link += "?" + of.Encode()
		}
		acts = append(acts, tab{Name: sentence(strings.ReplaceAll(other.Verb(), "-", " ")) + "…", Link: link})
	}
	return acts
}

// narrowed is how a list is narrowed, for an act that can be narrowed so and says beforehand what it
// would do: it is about what is seen.
func narrowed(act operation.Operation, values url.Values) url.Values {
	of := make(url.Values)
	if planSwitch(act) == "" {
		return of
	}
	for _, p := range act.Params() {
		if len(values[p.Name]) > 0 && !aside(p) {
			of[p.Name] = values[p.Name]
		}
	}
	return of
}

// personOf shows one channel, which the pages call a person.
const personOf = "channels show"

// actsOnPerson are the acts on the channel that a page is about.
func (v *visit) actsOnPerson(values url.Values) []tab {
	who := make(map[string][]string)
	for _, name := range []string{"channel", "external_id"} {
		if len(values[name]) > 0 {
			who[name] = values[name]
		}
	}
	var acts []tab
	for _, o := range v.operations {
		takes := slices.ContainsFunc(o.Params(), func(p operation.Param) bool { return p.Name == "external_id" })
		if o.Noun() == "channels" && o.Changes && takes && o.Allowed(v.who.Role) == nil {
			acts = append(acts, tab{Name: sentence(strings.ReplaceAll(o.Verb(), "-", " ")) + "…", Link: v.linkWith(o, who)})
		}
	}
	return acts
}

// titleOf names an operation and what it is about: "Jobs", "Pause lane default"; what the frame leads
// to as the frame does.
func titleOf(o operation.Operation, values url.Values) string {
	var about []string
	for _, p := range arguments(o) {
		about = append(about, values[p.Name]...)
	}
	if o.Name == personOf {
		return strings.TrimSpace("Person " + strings.Join(append(about, values["external_id"]...), ", "))
	}
	nav, more := places()
	for _, p := range append(nav, more...) {
		if p.operation == o.Name && len(about) == 0 && !o.Changes {
			return p.name
		}
	}
	noun, verb := strings.ReplaceAll(o.Noun(), "-", " "), strings.ReplaceAll(o.Verb(), "-", " ")
	if corrects(o) {
		verb = "correct"
	}
	switch {
	case o.Name == deadErrorsOf:
		return "Errors of dead letters"
	case verb == "list":
		return sentence(noun)
	case verb == "halt":
		return "Halt everything"
	case verb == "unhalt":
		return "End the halt"
	case noun == "":
		if len(about) > 0 {
			noun = "job"
			if len(about) > 1 {
				noun = "jobs"
			}
		}
	case len(about) > 0, o.Changes:
		noun = singular(noun)
	}
	title := strings.Join(about, ", ")
	if len(about) > mostNamed {
		title, noun = "", text.Grouped(int64(len(about)))+" "+noun
	}
	if o.Changes || verb != "show" {
		return sentence(strings.TrimSpace(strings.Join(strings.Fields(verb+" "+noun+" "+title), " ")))
	}
	return sentence(strings.TrimSpace(noun + " " + title))
}

// singular is one of a noun.
func singular(noun string) string {
	switch {
	case strings.HasSuffix(noun, "ies"):
		return strings.TrimSuffix(noun, "ies") + "y"
	case noun == "limits" || noun == "transport":
		return noun
	}
	return strings.TrimSuffix(noun, "s")
}
