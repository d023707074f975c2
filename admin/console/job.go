package console

import (
	"encoding/json"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/belfryhq/belfry/admin/jobs"
	"github.com/belfryhq/belfry/admin/operation"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// jobPage is one job.
type jobPage struct {
	State    jobs.JobState
	Cards    []card // what it says, in the default first, then by locale
	ID       string
	Status   *status
	Walk     progress
	Delivery *progress
	Audience area
	Charts   charts
	Live     bool // its rates are drawn
	Offset   int  // of the zone that times are in, in seconds east
	Told     *told
	Events   *told
	Fault    template.HTML
	Tabs     []tab
	Stop     tab // its Link is "": there is nothing to stop, or who asks may not
	Acts     []tab
}

// job shows one job: where it stands, what became of it, and its timeline.
func (v *visit) job(o operation.Operation) {
	values, err := v.given(o)
	in, faults := read(o, values)
	if err != nil || len(faults) > 0 {
		v.lost()
		return
	}
	out, err := v.do(v.req.Context(), o, in)
	if err != nil {
		v.problem(statusFor(err), err)
		return
	}
	report, is := out.(interface {
		State() jobs.JobState
		Rows() *delivery.Counts
	})
	if !is {
		panic("jobs show tells no state")
	}
	s := report.State()
	id := text.Int(s.ID)
	page := jobPage{
		State: s, Cards: cardsOf(s.Job), ID: id, Status: badge(s.Badge(), id+".status"), Walk: progress{walked(s), jobs.WalkDone(s.Job)},
		Told: v.tell(o, in, out), Tabs: v.tabs(o), Audience: areaOf(s.Audience),
	}
	if s.Messages.Messages > 0 {
		page.Delivery = &progress{delivered(s), jobs.MessagesText(s.Messages)}
	}
	page.Acts = v.jobActs(s, id)
	if !s.AtRest() {
		page.Stop, page.Live, page.Offset = v.stop(id), true, v.offset(time.Now())
	}
	if page.Charts, err = v.chartsOf(id, report.Rows()); err != nil {
		page.Fault = v.inline(err.Error())
	}
	if events, there := v.named("jobs events"); there {
		in, _ := read(events, url.Values{"id": {id}})
		if page.Events, _, err = v.run(events, in, nil); err != nil {
			page.Fault = v.inline(err.Error())
		}
	}
	v.show(http.StatusOK, "job", frame{Title: "Job " + id + ", " + s.Title, About: []string{job.SubjectJob + ":" + id}, Plots: page.Live, Page: page})
}

// cardsOf are a job's words as a telephone shows them: its own, and those of each locale, which has
// its own for what it does not say. There are none for who may not read them.
func cardsOf(j job.Job) []card {
	cards := []card{{Title: j.Title, Body: j.Body}}
	var variants map[string]struct{ Title, Body *string }
	if json.Unmarshal(j.Variants, &variants) != nil {
		return cards // they are masked
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

// jobActs are what may be done about a job as it stands, the next step first.
func (v *visit) jobActs(s jobs.JobState, id string) []tab {
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
	words := map[string]string{"jobs approve": "Approve job " + id, "jobs set": "Correct", "jobs test-send": "Send a test", "jobs retry-skipped": "Retry the skipped", "recall": "Take back", "resume": "Resume", "retry": "Retry"}
	var acts []tab
	for _, name := range names {
		o, there := v.named(name)
		if !there || o.Allowed(v.who.Role) != nil {
			continue
		}
		with := map[string][]string{arguments(o)[0].Name: {id}}
		if o.Conditional() {
			with["if_version"] = []string{strconv.FormatInt(s.Version, 10)}
		}
		acts = append(acts, tab{Name: words[name] + "…", Link: v.linkWith(o, with)})
	}
	return acts
}
