package console

import (
	"encoding/json"
	"errors"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"github.com/belfryhq/belfry/admin/console/draw"
	"github.com/belfryhq/belfry/admin/console/words"
	"github.com/belfryhq/belfry/admin/jobs"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// jobOperation shows one job.
const jobOperation = "jobs show"

// jobPage is the page of one job.
type jobPage struct {
	State    jobs.JobState
	Cards    []card // its texts, the default first, then by locale
	ID       string
	Status   template.HTML
	Bar      draw.Progress
	Audience draw.Audience
	Outcomes *bars             // nil without rows
	Flow     *draw.ColumnChart // the delivery over time; nil if nothing was sent
	View     *view
	Events   *view
	Fault    template.HTML
	Tabs     []tab
	Stop     []tab
	Actions  []tab
}

// job renders one job: its state, outcomes and timeline.
func (h *handler) job() {
	o, _ := h.named(jobOperation)
	values, err := h.formValues(o)
	in, faults := read(o, values)
	if err != nil || len(faults) > 0 {
		h.notFound()
		return
	}
	out, err := h.do(h.req.Context(), o, in)
	if err != nil {
		h.problem(statusFor(err), err)
		return
	}
	report, is := out.(interface {
		State() jobs.JobState
		Rows() *delivery.Counts
	})
	if !is {
		h.problem(http.StatusInternalServerError, errors.New("jobs show returned no job"))
		return
	}
	s := report.State()
	id := text.Int(s.ID)
	page := jobPage{
		State: s, Cards: cardsOf(s.Job), ID: id, Status: badge(words.JobStatus(s, h.held(s)), id+".status"), Bar: draw.JobProgress(s),
		View: h.render(o, in, out), Tabs: h.tabs(o), Audience: draw.NewAudience(s.Audience),
	}
	page.Actions = h.jobActions(s, id)
	if !s.AtRest() {
		page.Stop = h.stop(id)
	}
	if counts := report.Rows(); counts != nil {
		page.Outcomes, page.Flow = h.outcomes(*counts), h.deliveryOverTime(*counts)
	}
	if events, there := h.named("jobs events"); there {
		in, _ := read(events, url.Values{"id": {id}})
		if page.Events, _, err = h.run(events, in, nil); err != nil {
			page.Fault = h.failure(err)
		}
	}
	h.show(http.StatusOK, "job", layout{Title: "Job " + id + ", " + s.Title, About: []string{job.SubjectJob + ":" + id}, Page: page})
}

// cardsOf returns a job's texts as a phone shows them: the default, and each locale with the default for
// missing texts.
func cardsOf(j job.Job) []card {
	cards := []card{{Title: j.Title, Body: j.Body}}
	var variants map[string]struct{ Title, Body *string }
	if json.Unmarshal(j.Variants, &variants) != nil {
		return cards // masked
	}
	for _, locale := range slices.Sorted(maps.Keys(variants)) {
		one := card{About: locale, Title: j.Title, Body: j.Body}
		if title := variants[locale].Title; title != nil {
			one.Title = *title
		}
		if body := variants[locale].Body; body != nil {
			one.Body = *body
		}
		cards = append(cards, one)
	}
	if len(cards) > 1 {
		cards[0].About = "other locales"
	}
	return cards
}

// jobActions returns the acts that a job's status allows, the most likely one first.
func (h *handler) jobActions(s jobs.JobState, id string) []tab {
	names := []string{"jobs set", "jobs test-send"}
	switch s.Status {
	case job.Pending, job.Running:
	case job.Aborted:
		names = append([]string{"resume", "recall"}, names...)
	case job.Failed, job.Expired:
		names = append([]string{"retry"}, names...)
	case job.Processed:
		names = []string{"recall", "jobs test-send"}
		if s.Skipped > 0 {
			names = append([]string{"jobs retry-skipped"}, names...)
		}
	}
	if s.AwaitsApproval() {
		names = append([]string{"jobs approve"}, names...)
	}
	labels := map[string]string{"jobs approve": "Approve job " + id + "…", "jobs set": "Correct…",
		"jobs test-send": "Send a test…", "jobs retry-skipped": "Retry the skipped…"}
	var actions []tab
	for _, name := range names {
		if o, there := h.named(name); there {
			with := url.Values{arguments(o)[0].Name: {id}}
			if o.Conditional() {
				with.Set("if_version", text.Int(s.Version))
			}
			actions = append(actions, h.action(name, labels[name], with)...)
		}
	}
	return actions
}
