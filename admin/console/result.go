package console

import (
	"encoding/json"
	"errors"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/belfryhq/belfry/admin/console/views"
	"github.com/belfryhq/belfry/admin/console/words"
	"github.com/belfryhq/belfry/admin/operation"

	"github.com/belfryhq/belfry/internal/text"
)

// operationPage is the page of an operation: its form, its result and related links.
type operationPage struct {
	Title, Short string
	Action       string
	Method       string
	Inputs, More []input
	Filter       bool // the form filters the result
	View         *view
	Result       *view // of a completed act
	out          any   // its typed result
	Fault        template.HTML
	Next         string // the address of the next page
	Whole        bool   // Sheet has more records than the page
	Sheet        string // the address of the result as CSV; "" if it is no list
	Tabs         []tab  // other operations of the noun
	Actions      []tab  // related acts
	Hidden       []input
	Button       string
	Plans        bool // the act has a plan
	Agree        *confirmation
	Danger       bool
	Idle         bool // the plan has no effect
	Back         tab
}

// maxItems is the number of items of a stream on a page.
const maxItems = 200

// errPageFull ends a stream when its page is full.
var errPageFull = errors.New("the page is full")

// showResult renders the result of an operation that changes nothing.
func (h *handler) showResult(o operation.Operation) {
	h.extendDeadline(o)
	values, err := h.formValues(o)
	if err != nil {
		h.problem(http.StatusBadRequest, err)
		return
	}
	in, faults := read(o, values)
	page := operationPage{Title: titleOf(o, values), Short: words.Label(o.Short) + ".", Method: "get", Action: h.link(h.req.URL.Path),
		Tabs: h.tabs(o), Actions: h.listActions(o, values), Button: "Show"}
	status := http.StatusOK
	switch {
	case len(faults) > 0:
		status = http.StatusUnprocessableEntity
	case lacksRequired(o, values):
	case h.req.URL.Query().Get(formParam) == "csv" && o.Records() != nil:
		h.sheet(o, in, values)
		return
	default:
		page.Sheet, page.Whole = h.csvLink(o), o.Item() != nil
		if page.View, page.Next, err = h.run(o, in, values); err != nil {
			status = statusFor(err)
			faults, page.Fault = h.splitProblems(o, err)
		}
	}
	page.Inputs, page.More = h.inputs(o, values, faults)
	h.arrangeFields(&page)
	page.Filter = len(faults) == 0 && page.Fault == "" && !lacksRequired(o, values)
	h.show(status, "operation", layout{Title: page.Title, About: aboutOf(o, values), Page: page})
}

// run runs an operation that changes nothing. It returns the rendered result and the address of the next
// page.
func (h *handler) run(o operation.Operation, in any, values url.Values) (*view, string, error) {
	if o.Item() != nil {
		t, err := h.items(o, in)
		return t, "", err
	}
	out, err := h.do(h.req.Context(), o, in)
	if out == nil {
		return nil, "", err
	}
	return h.render(o, in, out), h.next(o, out, values), err
}

// items renders the first items of a stream.
func (h *handler) items(o operation.Operation, in any) (*view, error) {
	t := &view{c: h.Console, of: o}
	page, n := &text.Doc{}, 0
	defer func() { t.show(page) }()
	render := o.Teller(in)
	if render == nil {
		render = func(p *text.Doc, item any) {
			for _, one := range operation.Lines(item) {
				if line, err := json.Marshal(one); err == nil {
					p.Line(" %s", line)
				}
			}
		}
	}
	out, err := h.stream(h.req.Context(), o, in, func(item any) error {
		render(page, item)
		if n++; n == maxItems {
			return errPageFull
		}
		return nil
	})
	switch {
	case errors.Is(err, errPageFull):
		page.Note("these are the first %d; all of them are in the CSV, and %s writes them", maxItems, text.Command(o.Name))
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

// next returns the address of the page after a result, or "" after the last page.
func (h *handler) next(o operation.Operation, out any, values url.Values) string {
	list, is := out.(interface{ NextPage() string })
	if !is || list.NextPage() == "" {
		return ""
	}
	for _, name := range operation.Pagers() {
		if slices.ContainsFunc(o.Params(), func(p operation.Param) bool { return p.Name == name }) {
			after := maps.Clone(values)
			after.Set(name, list.NextPage())
			return h.linkWith(o, after)
		}
	}
	return ""
}

// tabs returns links to the other read operations of a noun, about the same object if there is one.
func (h *handler) tabs(o operation.Operation) []tab {
	var tabs []tab
	same := make(url.Values)
	for _, p := range arguments(o) {
		if at := h.req.PathValue(p.Name); at != "" {
			same[p.Name] = []string{at}
		}
	}
	for _, other := range h.operations {
		if other.Noun() != o.Noun() || other.Noun() == "" || other.Changes || other.Allowed(h.role) != nil || other.Shared ||
			isAboutOne(other) != isAboutOne(o) {
			continue
		}
		tabs = append(tabs, tab{Name: verbOf(other), Link: h.linkWith(other, same), Here: other.Name == o.Name})
	}
	if len(tabs) < 2 {
		return nil
	}
	return tabs
}

// isAboutOne reports whether an operation's path names one object.
func isAboutOne(o operation.Operation) bool { return strings.Contains(pathOf(o), "{") }

// listActions returns links to the acts of a list's noun that do not apply to one of its objects.
func (h *handler) listActions(o operation.Operation, values url.Values) (actions []tab) {
	if o.Verb() != "list" {
		return nil
	}
	for _, other := range h.operations {
		if other.Noun() != o.Noun() || !other.Changes || other.Allowed(h.role) != nil {
			continue
		}
		if args := arguments(other); len(args) > 0 && !slices.Contains([]string{"add", "create"}, other.Verb()) {
			if of, _ := args[0].Listed(); of == o.Name {
				continue
			}
		}
		link := h.link(barePath(other))
		if of := filterFor(other, values); len(of) > 0 {
			link += "?" + of.Encode()
		}
		actions = append(actions, tab{Name: verbOf(other) + "…", Link: link})
	}
	return actions
}

// filterFor returns the filters of a list that also filter an act with a plan.
func filterFor(act operation.Operation, values url.Values) url.Values {
	of := make(url.Values)
	if planParam(act) == "" {
		return of
	}
	for _, p := range act.Params() {
		if len(values[p.Name]) > 0 && !hiddenInForm(p) {
			of[p.Name] = values[p.Name]
		}
	}
	return of
}

// titleOf returns the title of an operation's page, such as "Jobs" or "Pause lane default".
func titleOf(o operation.Operation, values url.Values) string {
	var objects []string
	for _, p := range arguments(o) {
		objects = append(objects, values[p.Name]...)
	}
	noun, verb := words.Label(strings.ReplaceAll(o.Noun(), "-", " ")), words.Label(strings.ReplaceAll(o.Verb(), "-", " "))
	if corrects(o) {
		verb = "correct"
	}
	switch {
	case o.Name == "dead-letters redrive":
		return "Send failed messages again"
	case o.Name == "dead-letters discard":
		return "Discard failed messages"
	case o.Name == views.ErrorsOperation:
		return "Errors of failed messages"
	case verb == "list":
		return words.Sentence(noun)
	case verb == "halt":
		return "Halt everything"
	case verb == "unhalt":
		return "End the halt"
	case noun == "" && len(objects) == 1:
		noun = "job"
	case noun == "" && len(objects) > 1:
		noun = "jobs"
	case len(objects) > 0, o.Changes:
		noun = singular(noun)
	}
	title := strings.Join(objects, ", ")
	if len(objects) > maxNamed {
		title, noun = "", text.Grouped(int64(len(objects)))+" "+noun
	}
	if o.Changes || verb != "show" {
		return words.Sentence(strings.Join(strings.Fields(verb+" "+noun+" "+title), " "))
	}
	return words.Sentence(strings.TrimSpace(noun + " " + title))
}

// singular returns the singular of a noun.
func singular(noun string) string {
	switch {
	case strings.HasSuffix(noun, "ies"):
		return strings.TrimSuffix(noun, "ies") + "y"
	case noun == "limits" || noun == "transport":
		return noun
	}
	return strings.TrimSuffix(noun, "s")
}
