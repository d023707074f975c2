package console

import (
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/admin/console/draft"
	"github.com/belfryhq/belfry/admin/console/views"
	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/admin/jobs"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// jobAct is an act on a job with a dialog: the page /jobs/{id}/NAME, which the script opens on the job's page.
type jobAct struct {
	name, operation string
	label           string // of the link to it
	title           string // with the id of the job also its button
	sends           bool   // people get messages: above operation.TypedAbove their number is typed
	fits            func(jobs.JobState) bool
	effect          func(jobs.JobState) string
	nothing         string // why it does not fit
}

// jobActs are the acts with a dialog, in the order of the page of a job.
func jobActs() []jobAct {
	status := func(these ...job.Status) func(jobs.JobState) bool {
		return func(s jobs.JobState) bool { return slices.Contains(these, s.Status) }
	}
	return []jobAct{
		{"stop", "abort", "Stop job", "Stop job", false, func(s jobs.JobState) bool { return !s.AtRest() }, views.StopEffect,
			"It is not running."},
		{"resume", "resume", "Resume…", "Resume job", true, status(job.Aborted), views.ResumeEffect, "Only a stopped job can be resumed."},
		{"retry", "retry", "Retry…", "Retry job", true, status(job.Failed, job.Expired), views.ResumeEffect,
			"Only a job that failed or expired can be retried."},
		{"correct", "jobs set", "Correct…", "Correct job", false, status(job.Pending, job.Aborted, job.Failed), views.CorrectEffect,
			"Its text cannot change while it runs or is delivered. Stop it first; then correct and resume it."},
		{"recall", "recall", "Recall…", "Recall job", false, func(s jobs.JobState) bool {
			return s.RowsWritten > 0 && (s.Type != outbox.TypePush || s.Messages.Waiting > 0) &&
				slices.Contains([]job.Status{job.Aborted, job.Processed, job.Failed}, s.Status)
		}, views.RecallEffect, "There is nothing to take back, or the job still runs. Stop it first."},
	}
}

// actLink returns the link to the dialog of an act, if the caller may run it.
func (h *handler) actLink(act jobAct, id string) []tab {
	if _, allowed := h.allowed(act.operation); !allowed {
		return nil
	}
	return []tab{{Name: act.label, Link: h.link("/jobs/" + id + "/" + act.name)}}
}

// jobActPage is the dialog of an act, and its page without a script.
type jobActPage struct {
	ID, Title, Name string
	Job             string // the page of the job
	Effect          string
	Live            bool // the stream updates the effect
	Notes           []string
	Inputs, Hidden  []input
	Language        []input // of one more locale in a correction
	Reason          string
	Count           string // the number to type; "" if a click suffices
	Button, Action  string
	Danger          bool
	Fault           template.HTML
	Done            string // the result; "" before the act
	Next            []tab  // the acts after it
}

// jobAct renders the dialog of an act.
func (h *handler) jobAct() {
	if act, report, ok := h.jobActOf(); ok {
		page, status := h.jobActPage(act, report.State(), nil)
		h.showAct(status, page)
	}
}

// jobActOf returns the act and the job of the address, or renders the problem.
func (h *handler) jobActOf() (act jobAct, report jobReport, ok bool) {
	list := jobActs()
	i := slices.IndexFunc(list, func(a jobAct) bool { return a.name == h.req.PathValue("act") })
	if i < 0 {
		h.notFound()
		return act, nil, false
	}
	o, there := h.named(list[i].operation)
	if !there {
		h.notFound()
		return act, nil, false
	}
	api.Note(h.req, o.Name, false)
	h.extendDeadline(o)
	if err := o.Allowed(h.role); err != nil {
		h.problem(http.StatusForbidden, err)
		return act, nil, false
	}
	report, ok = h.readJob(true)
	return list[i], report, ok
}

func (h *handler) showAct(status int, page jobActPage) {
	h.show(status, "jobact", layout{Title: page.Name, About: []string{job.SubjectJob + ":" + page.ID}, Page: page})
}

// jobActPage returns the dialog of an act before it runs. err is the problem of the attempt before.
func (h *handler) jobActPage(act jobAct, s jobs.JobState, err error) (page jobActPage, status int) {
	id := text.Int(s.ID)
	form := h.req.PostForm
	page = jobActPage{
		ID: id, Title: s.Title, Name: act.title + " " + id, Job: h.pageFor("job", id), Effect: act.effect(s), Live: act.name == "stop",
		Reason: form.Get("reason"), Button: act.title + " " + id, Action: h.link("/jobs/" + id + "/" + act.name),
		Danger: act.name == "stop" || act.name == "recall",
		Hidden: []input{{Name: "_key", Value: keyOf(h.req)}},
	}
	status = http.StatusOK
	if err != nil {
		page.Fault, status = h.failure(err), statusFor(err)
	}
	if !act.fits(s) {
		page.Effect, page.Button, page.Live = act.nothing, "", false
		return page, status
	}
	switch act.name {
	case "stop": // not bound to a plan: a job in motion changes while its operator reads
		if s.Messages.Waiting > 0 {
			page.Notes = append(page.Notes, "Messages that a provider is receiving at this moment may still arrive. The job can be resumed.")
		}
		return page, status
	case "correct":
		page.Hidden = append(page.Hidden, input{Name: "if_version", Value: text.Int(s.Version)})
		page.Inputs, page.Language = draft.Corrections(s.Job, form)
		return page, status
	}
	plan, planErr := h.actPlan(act, id)
	if planErr != nil {
		page.Fault, page.Button = h.failure(planErr), ""
		return page, max(status, statusFor(planErr))
	}
	page.Hidden = append(page.Hidden, input{Name: "plan", Value: plan.Token})
	if plan.Idle() && len(plan.Outcomes) > 0 {
		page.Effect, page.Button = "Nothing would change: "+plan.Outcomes[0].Detail+".", ""
		return page, status
	}
	if act.sends {
		page.Notes = h.waitNotes(s)
		if n, known := views.Unserved(s); known && n > operation.TypedAbove {
			page.Count = text.Grouped(n)
		}
	}
	return page, status
}

// actPlan returns the plan of an act, whose token binds the act to the job as it is now.
func (h *handler) actPlan(act jobAct, id string) (*operation.Plan, error) {
	a, err := h.query(act.operation, url.Values{"id": {id}, "dry_run": {"on"}})
	if err != nil {
		return nil, err
	}
	return operation.AffectedBy(a.Verb(), a.out).Plan, nil
}

// waitNotes returns the reasons for which a job waits after it is resumed.
func (h *handler) waitNotes(s jobs.JobState) (notes []string) {
	switch {
	case h.state.Halted():
		notes = append(notes, "Everything is halted; it begins when the halt ends.")
	case slices.Contains(h.state.PausedLanes, s.Lane):
		notes = append(notes, "Lane "+s.Lane+" is paused; it begins when the lane is resumed.")
	}
	if s.NeedsApproval && s.ApprovedAt == nil {
		notes = append(notes, "It waits for the approval of a second person.")
	}
	return notes
}

// doJobAct runs the act of a dialog, and renders what happened.
func (h *handler) doJobAct() {
	act, report, ok := h.jobActOf()
	if !ok {
		return
	}
	if err := h.req.ParseForm(); err != nil {
		h.problem(http.StatusBadRequest, err)
		return
	}
	s := report.State()
	again := func(err error) {
		page, status := h.jobActPage(act, s, err)
		h.showAct(status, page)
	}
	values, err := h.actValues(act, s)
	if err != nil {
		again(err)
		return
	}
	o, _ := h.named(act.operation)
	in, faults := read(o, values)
	for param, fault := range faults {
		again(operation.Invalid(param, "%s", fault))
		return
	}
	out, err := h.doOnce(o, in)
	if act.name == "stop" && statusFor(err) == http.StatusConflict && h.endedBefore(act) {
		return
	}
	if err != nil {
		again(err)
		return
	}
	if report, ok = h.readJob(true); ok {
		h.showAct(http.StatusOK, h.jobActDone(act, report.State(), out))
	}
}

// endedBefore renders the result of a stop that arrived after the end of the job. It reports false if the job has
// not ended.
func (h *handler) endedBefore(act jobAct) bool {
	report, ok := h.readJob(true)
	if !ok {
		return true // readJob has rendered the problem
	}
	s := report.State()
	if act.fits(s) {
		return false
	}
	page := h.jobActDone(act, s, nil)
	page.Done = views.Ended(s)
	h.showAct(http.StatusOK, page)
	return true
}

// actValues returns the parameters of a submitted dialog.
func (h *handler) actValues(act jobAct, s jobs.JobState) (url.Values, error) {
	form := h.req.PostForm
	values := url.Values{"id": {text.Int(s.ID)}}
	for _, name := range []string{"reason", "plan", "if_version"} {
		if value := normalized(form.Get(name)); value != "" {
			values.Set(name, value)
		}
	}
	if n, known := views.Unserved(s); act.sends && known && n > operation.TypedAbove &&
		typedCount(form.Get("_count")) != strconv.FormatInt(n, 10) {
		return nil, operation.Invalid("", "type the number of people who will get it, %s", text.Grouped(n))
	}
	if act.name == "correct" {
		return values, draft.Correct(s.Job, form, values)
	}
	return values, nil
}

// jobActDone returns the dialog after an act: the result in numbers, and the next acts.
func (h *handler) jobActDone(act jobAct, s jobs.JobState, out any) jobActPage {
	id := text.Int(s.ID)
	page := jobActPage{ID: id, Title: s.Title, Name: act.title + " " + id, Job: h.pageFor("job", id)}
	switch act.name {
	case "stop":
		page.Done = "Stopped. " + views.Stopped(s)
	case "recall":
		page.Done = "Recalled."
		if of, is := resultOf(out).(interface{ Recalls() []delivery.Recalled }); is {
			for _, r := range of.Recalls() {
				page.Done = views.Recalled(r)
			}
		}
	case "correct":
		page.Done = "Corrected. " + views.CorrectEffect(s)
		if s.Status == job.Aborted {
			page.Done += " The job is still stopped; resume it to send the rest."
		}
	default:
		page.Done = "Continues. " + views.ResumeEffect(s)
		page.Notes = h.waitNotes(s)
	}
	page.Next = h.jobActions(s, id)
	if !s.AtRest() {
		page.Next = append(h.stop(id), page.Next...)
	}
	return page
}
