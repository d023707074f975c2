package console

import (
	"cmp"
	"errors"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/console/draft"
	"github.com/belfryhq/belfry/admin/console/draw"
	"github.com/belfryhq/belfry/admin/console/views"
	"github.com/belfryhq/belfry/admin/console/words"
	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/admin/jobs"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// jobReport is the result of views.JobOperation.
type jobReport interface {
	State() jobs.JobState
	Rows() *delivery.Counts
	Stop() *job.Event
	Corrections() []job.Revision
}

// jobPage is the page of one job: its head, and the tab of the address. The report for printing has all tabs.
type jobPage struct {
	ID, Title, About   string
	Status             template.HTML
	Bar                draw.Progress
	Rate, Left, Slowed string
	Waits              template.HTML
	Remedies           []tab
	Stop, Actions      []tab
	Tabs               []tab
	Moving             bool
	Self               string
	Fault              template.HTML
	Overview           *jobOverview
	Delivery           *jobDelivery
	Recipients         *jobRecipients
	Timeline           []timelineEntry
	Settings           *jobSettings
	Report             bool   // all tabs, for printing
	ReportLink, Sheet  string // the report for printing, and the CSV of all messages
}

// jobTabs are the tabs of a job, with their names in the address.
func jobTabs() []struct{ key, name string } {
	return []struct{ key, name string }{{"", "Overview"}, {"delivery", "Delivery"}, {"recipients", "Recipients"}, {"timeline", "Timeline"},
		{"settings", "Settings"}}
}

// reportTab is the name of the report in the address.
const reportTab = "report"

// job renders one job.
func (h *handler) job() {
	shown := h.req.URL.Query().Get("tab")
	all := shown == reportTab
	report, ok := h.readJob(!all && shown != "delivery")
	if !ok {
		return
	}
	s := report.State()
	page := h.jobHead(s, shown)
	page.Report = all
	timeline, err := h.timeline(page.ID)
	if shown == "" || all {
		page.Overview, err = h.jobOverview(report, timeline, err)
	}
	if err == nil && (shown == "delivery" || all) {
		page.Delivery = h.jobDelivery(report)
	}
	if err == nil && shown == "recipients" {
		page.Recipients = h.jobRecipients(s)
	}
	if shown == "timeline" || all { // the newest first
		page.Timeline = timeline
		slices.Reverse(page.Timeline)
	}
	if shown == "settings" || all {
		page.Settings = h.jobSettings(report)
	}
	if err != nil {
		page.Fault = h.failure(err)
	}
	h.show(http.StatusOK, "job", layout{Title: "Job " + page.ID + ", " + s.Title, About: []string{job.SubjectJob + ":" + page.ID}, Page: page})
}

// readJob returns the job of the address, or renders the problem. A brief report has no counts by result.
func (h *handler) readJob(brief bool) (jobReport, bool) {
	values := url.Values{"id": {h.req.PathValue("id")}}
	if brief {
		values.Set("brief", "on")
	}
	o, _ := h.named(views.JobOperation)
	in, faults := read(o, values)
	if len(faults) > 0 {
		h.notFound()
		return nil, false
	}
	out, err := h.do(h.req.Context(), o, in)
	report, is := out.(jobReport)
	switch {
	case err != nil:
		h.problem(statusFor(err), err)
	case !is:
		h.problem(http.StatusInternalServerError, errors.New("jobs show returned no job"))
	default:
		return report, true
	}
	return nil, false
}

// jobHead returns the page of a job without a tab.
func (h *handler) jobHead(s jobs.JobState, shown string) jobPage {
	id := text.Int(s.ID)
	self := h.pageFor("job", id)
	p := jobPage{
		ID: id, Title: s.Title, About: words.AboutJob(s.Lane, "Job "+id, s.Type, s.Category), Self: self,
		Status: badge(views.JobStatus(s, h.held(s)), id+".status"), Bar: views.JobProgress(s), Slowed: views.SlowedBy(s),
		Moving: !s.AtRest(), Actions: h.jobActions(s, id), ReportLink: self + "?tab=" + reportTab,
	}
	for _, t := range jobTabs() {
		to := self
		if t.key != "" {
			to += "?tab=" + t.key
		}
		p.Tabs = append(p.Tabs, tab{Name: t.name, Link: to, Here: t.key == shown})
	}
	if o, allowed := h.allowed("jobs report"); allowed && s.Messages.Messages > 0 {
		p.Sheet = h.linkWith(o, url.Values{"id": {id}, formParam: {"csv"}})
	}
	if s.AtRest() {
		return p
	}
	p.Stop = h.stop(id)
	if list, err := h.inProgress(); err == nil { // without it the page has no rates
		if i := slices.IndexFunc(list, func(w jobs.WatchedJob) bool { return w.ID == s.ID }); i >= 0 {
			p.Rate, p.Left, p.Waits = views.JobRate(list[i]), views.JobTimeLeft(list[i], h.zone, time.Now()), h.html(list[i].Waiting())
			p.Remedies = h.remedies(list[i].Remedy)
		}
	}
	return p
}

// jobActions returns the acts that a job's status allows, the most likely one first.
func (h *handler) jobActions(s jobs.JobState, id string) (actions []tab) {
	if s.AwaitsApproval() {
		actions = h.action("jobs approve", "Approve job "+id+"…", url.Values{"id": {id}, "if_version": {text.Int(s.Version)}})
	}
	for _, act := range jobActs() {
		if act.name != "stop" && act.fits(s) {
			actions = append(actions, h.actLink(act, id)...)
		}
	}
	if s.Status == job.Processed && s.Skipped > 0 {
		actions = append(actions, h.action("jobs retry-skipped", "Retry the skipped…",
			url.Values{"id": {id}, "if_version": {text.Int(s.Version)}})...)
	}
	return actions
}

// jobOverview is the story of a job, its rates, its content and its audience.
type jobOverview struct {
	Story    []storyLine
	Rates    *draw.RateChart
	NoRates  string // why there is no chart
	Audience draw.Audience
	Cards    []card
	Facts    []field
	Test     []tab
}

// storyLine is a sentence about a job with a link.
type storyLine struct {
	Text template.HTML
	More tab
	Bad  bool
}

// jobOverview returns the tab Overview.
func (h *handler) jobOverview(report jobReport, timeline []timelineEntry, err error) (*jobOverview, error) {
	if err != nil {
		return nil, err
	}
	s := report.State()
	o := &jobOverview{Story: h.story(report), Audience: draw.NewAudience(s.Audience), Cards: cardsOf(s.Job), Facts: h.jobFacts(s)}
	o.Test = h.action("jobs test-send", "Send a test…", url.Values{"id": {text.Int(s.ID)}})
	if s.StartedAt == nil {
		return o, nil
	}
	o.Rates, err = h.jobRates(s, timeline)
	if o.Rates == nil {
		o.NoRates = "A chart of its speed appears two minutes after the start."
		if s.AtRest() {
			o.NoRates = "It was too short for a chart of its speed, or it was long ago."
		}
	}
	return o, err
}

// story tells what has happened to a job, and what can be done.
func (h *handler) story(report jobReport) (list []storyLine) {
	s := report.State()
	id := text.Int(s.ID)
	to := func(key string) string { return h.pageFor("job", id) + "?tab=" + key }
	add := func(line string, more tab, bad bool) {
		if line != "" {
			list = append(list, storyLine{words.Escaped(line), more, bad})
		}
	}
	if by := report.Stop(); by != nil {
		line := words.Escaped("Stopped by "+by.Actor+" ") + words.When(h.zone, by.At)
		if by.Reason != "" {
			line += words.Escaped(": " + by.Reason)
		} else {
			line += "."
		}
		list = append(list, storyLine{Text: line})
		add(views.Stopped(s), tab{}, false)
	}
	switch {
	case s.Status == job.Failed:
		add("It gave up: "+text.OneLine(s.LastError, 500), tab{}, true)
	case s.Status == job.Expired:
		add("It did not start in time. To send it late, change its expiry, then retry it.", tab{Name: "Settings", Link: to("settings")}, true)
	case s.AtRest() && s.Status == job.Processed:
		add(views.Delivered(s), tab{}, false)
	case s.Status == job.Pending && s.ScheduleAt.After(time.Now()):
		list = append(list, storyLine{Text: "Begins " + words.When(h.zone, s.ScheduleAt) + "."})
	}
	if s.RecalledAt != nil {
		list = append(list, storyLine{Text: words.Escaped(text.Counted(s.Recalled, "recipient")+" had it taken back ") +
			words.When(h.zone, *s.RecalledAt) + "."})
	}
	switch n := s.Messages.Dead; {
	case n > 0 && s.AtRest():
		add(text.Counted(n, "message")+" failed.", tab{Name: "See why", Link: to("delivery")}, true)
	case n > 0: // the number changes
		add("Some messages failed.", tab{Name: "See why", Link: to("delivery")}, true)
	}
	if s.Skipped > 0 {
		add(text.Counted(s.Skipped, "recipient")+" skipped, because an error kept their rows from being written.",
			tab{Name: "See whom", Link: to("recipients")}, true)
	}
	if n := len(report.Corrections()); n > 0 {
		add("Corrected "+text.Counted(int64(n), "time")+" since it began.",
			tab{Name: "Earlier texts", Link: h.linkTo(text.Command("jobs revisions", id))}, false)
	}
	return list
}

// jobTime is a time of a job.
type jobTime struct {
	name string
	at   time.Time
}

// jobTimes returns the known times of a job after its request.
func jobTimes(s jobs.JobState) (list []jobTime) {
	add := func(name string, at *time.Time) {
		if at != nil {
			list = append(list, jobTime{name, *at})
		}
	}
	add("Due", &s.ScheduleAt)
	add("Delivered from", s.DeliverAt)
	add("Expires", s.ExpiresAt)
	add("Started", s.StartedAt)
	add(views.EndLabel(s), s.FinishedAt)
	return list
}

// jobFacts returns the times and the route of a job.
func (h *handler) jobFacts(s jobs.JobState) (facts []field) {
	add := func(name string, value template.HTML) { facts = append(facts, field{Name: name, Text: value}) }
	add("Requested", words.When(h.zone, s.CreatedAt)+words.Escaped(" by "+s.RequestedBy))
	for _, of := range jobTimes(s) {
		add(of.name, words.When(h.zone, of.at))
	}
	if s.StartedAt != nil && s.FinishedAt != nil {
		took := "Took"
		if s.Messages.Messages > 0 {
			took = "Writing took"
		}
		add(took, words.Escaped(words.Span(s.FinishedAt.Sub(*s.StartedAt))))
	}
	if len(s.Route) > 0 {
		add("By", words.Escaped(strings.Join(s.Route, ", then ")))
	}
	if s.GroupID != nil {
		if list, there := h.named(jobsList); there {
			add("Group", anchor("", h.linkWith(list, url.Values{"group": {s.GroupID.String()}}), "All jobs of its group"))
		}
	}
	return facts
}

// cardsOf returns a job's texts: the default, and each locale with the default for missing texts.
func cardsOf(j job.Job) []card {
	cards := []card{{Title: j.Title, Body: j.Body}}
	variants := draft.Variants(j)
	for _, locale := range slices.Sorted(maps.Keys(variants)) {
		v := variants[locale]
		cards = append(cards, card{About: locale, Title: *cmp.Or(v.Title, &j.Title), Body: *cmp.Or(v.Body, &j.Body)})
	}
	if len(cards) > 1 {
		cards[0].About = "Other locales"
	}
	return cards
}

// timelineEntry is an event of a job.
type timelineEntry struct {
	Status   template.HTML
	By, Text string
	When, At template.HTML
	event    job.Event
}

// maxEvents is the number of events of a timeline. The rest has a page of its own.
const maxEvents = "1000"

// timeline returns the events of a job, oldest first.
func (h *handler) timeline(id string) (list []timelineEntry, err error) {
	events, err := listOf[job.Event](h, "jobs events", url.Values{"id": {id}, "limit": {maxEvents}})
	for _, e := range events.Items {
		of, reason := words.JobEvent(e)
		list = append(list, timelineEntry{Status: badge(of, ""), By: e.Actor, Text: text.OneLine(cmp.Or(reason, changes(e)), 300),
			When: words.When(h.zone, e.At), At: words.Instant(h.zone, e.At), event: e})
	}
	return list, err
}

// changes returns the changes of an event in words.
func changes(e job.Event) string {
	if e.Kind != job.EventChanged {
		return ""
	}
	return strings.ReplaceAll(operation.Changes(e.Detail), "_", " ")
}
