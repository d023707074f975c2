package console

import (
	"crypto/rand"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/belfryhq/belfry/admin/console/views"
	"github.com/belfryhq/belfry/admin/console/words"
	"github.com/belfryhq/belfry/admin/operation"

	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// confirmation is a question that the caller must confirm before an act.
type confirmation struct {
	Why, Text template.HTML
	Count     string // the number to type; "" if a click suffices
	About     *view
}

// form renders the form of an act with its plan, if the act has one.
func (h *handler) form(o operation.Operation) {
	h.extendDeadline(o)
	values, err := h.formValues(o)
	if err != nil {
		h.problem(http.StatusBadRequest, err)
		return
	}
	if err := o.Allowed(h.role); err != nil {
		h.problem(http.StatusForbidden, err)
		return
	}
	more, err := h.match(o, values)
	if err != nil {
		h.problem(statusFor(err), err)
		return
	}
	page := h.actPage(o, values)
	status, faults := http.StatusOK, map[string]string{}
	if planParam(o) == "dry_run" && !lacksRequired(o, values) && selectsAnything(o, values) {
		status, faults = h.plan(o, &page, values)
	}
	if more && page.View != nil {
		page.View.note("These are the newest %s matching jobs; repeat the act for the others.", text.Grouped(maxMatching))
	}
	shown, hidden := h.present(o, values)
	page.Hidden = append(page.Hidden, hidden...)
	page.Inputs, page.More = h.inputs(o, shown, faults)
	h.showCurrent(o, values, page.Inputs)
	h.arrangeFields(&page)
	h.show(status, "operation", layout{Title: page.Title, About: aboutOf(o, values), Page: page})
}

// arrangeFields removes fields whose values the path contains.
func (h *handler) arrangeFields(page *operationPage) {
	page.Inputs = slices.DeleteFunc(page.Inputs, func(i input) bool { return h.req.PathValue(i.Name) != "" && i.Fault == "" })
}

// planParam returns the parameter that requests an act's plan, or "" if the act has none.
func planParam(o operation.Operation) string {
	for _, p := range o.Params() {
		if p.Name == "dry_run" || p.Name == "preview" {
			return p.Name
		}
	}
	return ""
}

// selectsAnything reports whether a value selects objects. An act without any would apply to everything.
func selectsAnything(o operation.Operation, values url.Values) bool {
	return slices.ContainsFunc(o.Params(), func(p operation.Param) bool {
		return !hiddenInForm(p) && p.Name != "reason" && len(values[p.Name]) > 0
	})
}

// actPage returns the page of an act without inputs.
func (h *handler) actPage(o operation.Operation, values url.Values) operationPage {
	page := operationPage{
		Title: titleOf(o, values), Short: words.Label(o.Short) + ".", Method: "post", Action: h.link(h.req.URL.Path), Plans: planParam(o) != "",
		Danger: dangerous(o),
		Button: titleOf(o, values), Back: h.backLink(o, values),
	}
	page.Hidden = append(page.Hidden, input{Name: "_key", Value: keyOf(h.req)})
	if filter := h.req.Form.Get(matchingParam); filter != "" && o.Stops {
		page.Hidden = append(page.Hidden, input{Name: matchingParam, Value: filter})
	}
	if serve, req := h.designedAt(h.req.Form.Get(views.BackParam)); serve != nil {
		page.Back = tab{Name: "Back", Link: h.link(req.URL.RequestURI())}
		page.Hidden = append(page.Hidden, input{Name: views.BackParam, Value: page.Back.Link})
	}
	if version := values.Get("if_version"); version != "" && o.Conditional() {
		page.Hidden = append(page.Hidden, input{Name: "if_version", Value: version})
	}
	return page
}

// keyOf returns the idempotency key of a form: the submitted one, or a new one.
func keyOf(req *http.Request) string {
	if key := req.PostForm.Get("_key"); key != "" && len(key) <= 40 {
		return key
	}
	return rand.Text()
}

// dangerous reports whether an act stops or deletes something.
func dangerous(o operation.Operation) bool {
	return o.Discards() || slices.Contains([]string{"abort", "halt", "pause", "disable"}, o.Verb())
}

// backLink returns a link to the object of an act, or to its list.
func (h *handler) backLink(o operation.Operation, values url.Values) tab {
	args := arguments(o)
	if len(args) > 0 && len(values[args[0].Name]) == 1 {
		if of, _ := args[0].Listed(); of != "" {
			if list, there := h.named(of); there {
				if to := h.showPageOf(list, values.Get(args[0].Name)); to != "" {
					return tab{Name: singular(nounOf(list)) + " " + values.Get(args[0].Name), Link: to}
				}
				return tab{Name: nounOf(list), Link: h.linkWith(list, nil)}
			}
		}
	}
	if list, there := h.named(o.Noun() + " list"); there {
		return tab{Name: nounOf(list), Link: h.linkWith(list, nil)}
	}
	return tab{Name: "Overview", Link: h.link("/")}
}

// plan renders the plan of an act and binds the form to it by its token. It does not bind an act that stops
// something: an enqueuer could change the number of jobs all the time, and so prevent it.
func (h *handler) plan(o operation.Operation, page *operationPage, values url.Values) (status int, faults map[string]string) {
	asked := url.Values{planParam(o): {"on"}}
	for name, texts := range values {
		if name != "plan" && name != "if_version" {
			asked[name] = texts
		}
	}
	in, faults := read(o, asked)
	if len(faults) > 0 {
		return http.StatusUnprocessableEntity, faults
	}
	out, err := h.do(h.req.Context(), o, in)
	if err != nil {
		return h.refuse(o, &page.Fault, err)
	}
	page.View = h.render(o, in, out)
	if plan := operation.AffectedBy(o.Verb(), out).Plan; plan != nil {
		page.View.Blocks = slices.DeleteFunc(page.View.Blocks, func(b block) bool { return b.Note != "" }) // notes for the command line
		page.Idle = plan.Idle()
		if o.Stops {
			page.View.note("counted as of %s; the button stops what still runs or waits then, whatever the number is", plan.AsOf)
			return http.StatusOK, nil
		}
		what := "the number has changed"
		if plan.Version != nil {
			what = "the job has changed, or the number by more than 5 %,"
		}
		page.View.note("counted as of %s; nothing is done if %s by then", plan.AsOf, what)
		page.Hidden = append(page.Hidden, input{Name: "plan", Value: plan.Token})
	}
	return http.StatusOK, nil
}

// refuse returns the status and the problems of an error by parameter. The other problems become the fault of the page.
func (h *handler) refuse(o operation.Operation, fault *template.HTML, err error) (status int, faults map[string]string) {
	faults, *fault = h.splitProblems(o, err)
	return statusFor(err), faults
}

// act runs the act of a submitted form.
func (h *handler) act(o operation.Operation) {
	h.extendDeadline(o)
	values, err := h.formValues(o)
	if err != nil {
		h.problem(http.StatusBadRequest, err)
		return
	}
	page := h.actPage(o, values)
	page.Hidden = append(page.Hidden, was(h.previousValues())...)
	status, faults := h.submit(o, &page, h.corrections(o, values))
	if h.returned(o, &page, status, faults, values) {
		return
	}
	page.Inputs, page.More = h.inputs(o, values, faults)
	h.arrangeFields(&page)
	h.show(status, "operation", layout{Title: page.Title, About: aboutOf(o, values), Page: page})
}

// submit runs an act, or renders its plan, its question or its errors.
func (h *handler) submit(o operation.Operation, page *operationPage, values url.Values) (status int, faults map[string]string) {
	if h.req.PostForm.Get("_plan") != "" {
		return h.plan(o, page, values)
	}
	in, faults := read(o, values)
	if len(faults) > 0 {
		return http.StatusUnprocessableEntity, faults
	}
	if asks, err := h.agreed(o, page, in); err != nil {
		return h.refuse(o, &page.Fault, err)
	} else if asks {
		return http.StatusOK, nil
	}
	out, err := h.doOnce(o, in)
	if out != nil {
		page.Result, page.out = h.render(o, in, out), out
	}
	if o.Stops && out == nil && errors.As(err, new(*job.WrongStatusError)) {
		page.Result = &view{c: h.Console, of: o}
		page.Result.note("Over before the stop arrived; nothing was left to stop.")
		err = nil
	}
	if err == nil && o.Stops {
		h.noteMatching(o, page)
	}
	if err != nil {
		return h.refuse(o, &page.Fault, err)
	}
	page.Hidden = nil
	return http.StatusOK, nil
}

// agreed adds the question of an act to the page unless the caller has confirmed it.
func (h *handler) agreed(o operation.Operation, page *operationPage, in any) (asks bool, err error) {
	if o.Confirm == nil {
		return false, nil
	}
	question, err := h.question(o, in)
	if err != nil || question.Text == "" {
		return false, err
	}
	typed := typedCount(h.req.PostForm.Get("_count"))
	if h.req.PostForm.Get("_agreed") != "" && (question.Count == 0 || typed == strconv.FormatInt(question.Count, 10)) {
		return false, nil
	}
	page.Agree = &confirmation{Why: h.html(text.Parse(question.Why)), Text: h.html(text.Parse(question.Text))}
	if question.Count > 0 {
		page.Agree.Count = strconv.FormatInt(question.Count, 10)
	}
	if question.About != nil {
		page.Agree.About = h.render(o, in, question.About)
	}
	if token := h.req.PostForm.Get("plan"); token != "" { // the plan that was shown
		page.Hidden = append(page.Hidden, input{Name: "plan", Value: token})
	}
	return true, nil
}
