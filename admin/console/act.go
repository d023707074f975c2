package console

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/belfryhq/belfry/admin/operation"

	"github.com/belfryhq/belfry/internal/text"
)

// agreement is what a person has to agree to first.
type agreement struct {
	Why, Text template.HTML
	Bound     string // the conditions of the act
	Count     string // to be typed; "": a yes will do
	About     *told
}

// form shows what an act needs to know and, if it can be said, what it would do.
func (v *visit) form(o operation.Operation) {
	v.allow(o)
	values, err := v.given(o)
	if err != nil {
		v.problem(http.StatusBadRequest, err)
		return
	}
	if err := o.Allowed(v.who.Role); err != nil {
		v.problem(http.StatusForbidden, err)
		return
	}
	more, err := v.match(o, values)
	switch {
	case errors.As(err, new(unmatchedError)):
		v.problem(http.StatusUnprocessableEntity, err)
		return
	case err != nil:
		v.problem(statusFor(err), err)
		return
	}
	page := v.actPage(o, values)
	status, faults := http.StatusOK, map[string]string{}
	if planSwitch(o) == "dry_run" && !missing(o, values) && aboutAny(o, values) {
		status, faults = v.plan(o, &page, values)
	}
	if more && page.Told != nil {
		page.Told.note("These are the newest %s that pass the filter: do the same again for the others.", text.Grouped(mostMatching))
	}
	shown, hidden := v.present(o, values)
	page.Hidden = append(page.Hidden, hidden...)
	page.Inputs, page.More = v.inputs(o, shown, faults)
	v.asItIs(o, values, page.Inputs)
	v.settle(o, &page)
	v.show(status, "operation", frame{Title: page.Title, About: about(o, values), Page: page})
}

// settle leaves out of a form what its address says, and arranges the fields of a notification.
func (v *visit) settle(o operation.Operation, page *operationPage) {
	if o.Name == enqueueOf {
		v.arrange(o, page)
	}
	page.Inputs = slices.DeleteFunc(page.Inputs, func(i input) bool { return v.req.PathValue(i.Name) != "" && i.Fault == "" })
}

// planSwitch is the parameter by which an act says beforehand what it would do; "": it cannot.
func planSwitch(o operation.Operation) string {
	for _, p := range o.Params() {
		if p.Name == "dry_run" || p.Name == "preview" {
			return p.Name
		}
	}
	return ""
}

// aboutAny reports whether values say what an act is about: without, it is about everything, which
// nobody asked for by opening its form.
func aboutAny(o operation.Operation, values url.Values) bool {
	return slices.ContainsFunc(o.Params(), func(p operation.Param) bool {
		return !aside(p) && p.Name != "reason" && len(values[p.Name]) > 0
	})
}

// actPage is the page of an act before anything is known.
func (v *visit) actPage(o operation.Operation, values url.Values) operationPage {
	page := operationPage{
		Title: titleOf(o, values), Short: o.Short + ".", Method: "post", Action: v.link(v.req.URL.Path), Plans: planSwitch(o) != "", Danger: dangerous(o),
		Button: titleOf(o, values), Back: v.backFrom(o, values),
	}
	if o.Name == enqueueOf {
		page.Title, page.Button, page.Plans = "New notification", "Preview", false
	}
	page.Hidden = append(page.Hidden, input{Name: "_key", Value: keyOf(v.req)})
	if version := values.Get("if_version"); version != "" && o.Conditional() {
		page.Hidden = append(page.Hidden, input{Name: "if_version", Value: version})
	}
	return page
}

// keyOf is the key of a form: the one it was sent with, or a new one.
func keyOf(req *http.Request) string {
	if key := req.PostForm.Get("_key"); key != "" && len(key) <= 40 {
		return key
	}
	return rand.Text()
}

// dangerous reports whether an act ends something.
func dangerous(o operation.Operation) bool {
	return o.Discards() || slices.Contains([]string{"abort", "halt", "pause", "disable"}, o.Verb())
}

// backFrom is the page of what an act is about.
func (v *visit) backFrom(o operation.Operation, values url.Values) tab {
	args := arguments(o)
	if len(args) > 0 && len(values[args[0].Name]) == 1 {
		if of, _ := args[0].Listed(); of != "" {
			if list, there := v.named(of); there {
				if to := v.opens(list, values.Get(args[0].Name)); to != "" {
					return tab{Name: sentence(singular(strings.ReplaceAll(list.Noun(), "-", " "))) + " " + values.Get(args[0].Name), Link: to}
				}
				return tab{Name: sentence(strings.ReplaceAll(list.Noun(), "-", " ")), Link: v.linkWith(list, nil)}
			}
		}
	}
	if list, there := v.named(o.Noun() + " list"); there {
		return tab{Name: sentence(strings.ReplaceAll(list.Noun(), "-", " ")), Link: v.linkWith(list, nil)}
	}
	return tab{Name: "Now", Link: v.link("/")}
}

// plan has an act say what it would do, and binds the form to that.
func (v *visit) plan(o operation.Operation, page *operationPage, values url.Values) (status int, faults map[string]string) {
	asked := url.Values{planSwitch(o): {"on"}}
	for name, texts := range values {
		if name != "plan" && name != "if_version" {
			asked[name] = texts
		}
	}
	in, faults := read(o, asked)
	if len(faults) > 0 {
		return http.StatusUnprocessableEntity, faults
	}
	out, err := v.do(v.req.Context(), o, in)
	if err != nil {
		faults, rest := faultsOf(o, err)
		page.Fault = v.inline(rest)
		return statusFor(err), faults
	}
	page.Told = v.tell(o, in, out)
	if plan := planIn(out); plan != nil {
		page.Told.Blocks = slices.DeleteFunc(page.Told.Blocks, func(b block) bool { return b.Note != "" }) // flags of the command line
		what := "another number"
		if plan.Version != nil {
			what = "changed, or another number by more than 5 %,"
		}
		page.Told.note("counted as of %s; if it is %s when it is done, nothing is done", plan.AsOf, what)
		page.Hidden = append(page.Hidden, input{Name: "plan", Value: plan.Token})
		page.Idle = plan.Idle()
	}
	return http.StatusOK, nil
}

// planIn is the plan that a result has; nil: it has none.
func planIn(out any) *operation.Plan {
	text, err := json.Marshal(out)
	var result struct {
		Plan *operation.Plan `json:"plan"`
	}
	if err != nil || json.Unmarshal(text, &result) != nil {
		return nil
	}
	return result.Plan
}

// act does what a form asks for.
func (v *visit) act(o operation.Operation) {
	v.allow(o)
	values, err := v.given(o)
	if err != nil {
		v.problem(http.StatusBadRequest, err)
		return
	}
	page := v.actPage(o, values)
	page.Hidden = append(page.Hidden, was(v.wasSent())...)
	status, faults := v.submit(o, &page, v.corrections(o, values))
	page.Inputs, page.More = v.inputs(o, values, faults)
	v.settle(o, &page)
	v.show(status, "operation", frame{Title: page.Title, About: about(o, values), Page: page})
}

// submit runs an act, or shows why it cannot run.
func (v *visit) submit(o operation.Operation, page *operationPage, values url.Values) (status int, faults map[string]string) {
	if o.Name == enqueueOf {
		return v.enqueue(o, page, values)
	}
	if v.req.PostForm.Get("_plan") != "" {
		return v.plan(o, page, values)
	}
	in, faults := read(o, values)
	if len(faults) > 0 {
		return http.StatusUnprocessableEntity, faults
	}
	refuse := func(err error) (int, map[string]string) {
		faults, rest := faultsOf(o, err)
		page.Fault = v.inline(rest)
		return statusFor(err), faults
	}
	if asks, err := v.agreed(o, page, in); err != nil {
		return refuse(err)
	} else if asks {
		return http.StatusOK, nil
	}
	out, err := v.doOnce(o, in)
	if out != nil {
		page.Result = v.tell(o, in, out)
	}
	if err != nil {
		return refuse(err)
	}
	page.Hidden = nil
	return http.StatusOK, nil
}

// agreed asks what a person has to agree to, unless it was agreed to.
func (v *visit) agreed(o operation.Operation, page *operationPage, in any) (asks bool, err error) {
	if o.Confirm == nil {
		return false, nil
	}
	question, err := v.question(o, in)
	if err != nil || question.Text == "" {
		return false, err
	}
	typed := typedCount(v.req.PostForm.Get("_count"))
	if v.req.PostForm.Get("_agreed") != "" && (question.Count == 0 || typed == strconv.FormatInt(question.Count, 10)) {
		return false, nil
	}
	page.Agree = &agreement{Why: v.inline(question.Why), Text: v.inline(question.Text)}
	if question.Count > 0 {
		page.Agree.Count = strconv.FormatInt(question.Count, 10)
	}
	if question.About != nil {
		page.Agree.About = v.tell(o, in, question.About)
	}
	if token := v.req.PostForm.Get("plan"); token != "" { // exactly the plan that was shown
		page.Hidden = append(page.Hidden, input{Name: "plan", Value: token})
	}
	return true, nil
}
