package console

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/accounts"
	"github.com/belfryhq/belfry/admin/console/draw"
	"github.com/belfryhq/belfry/admin/console/views"
	"github.com/belfryhq/belfry/admin/console/words"
	"github.com/belfryhq/belfry/admin/jobs"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox/samples"
)

// jobRates draws the speed of a job, from its start to its last minute with a figure. It returns nil if there
// are fewer than two minutes.
func (h *handler) jobRates(s jobs.JobState, timeline []timelineEntry) (*draw.RateChart, error) {
	begin, end := s.StartedAt.Truncate(time.Minute), time.Now()
	if oldest := end.Add(-samplesFor); begin.Before(oldest) {
		begin = oldest
	}
	list, step, err := h.jobSamples(s, begin, end)
	if err == nil && s.AtRest() && step > time.Minute && len(list) > 0 { // again with the steps of a shorter time
		list, step, err = h.jobSamples(s, begin, list[len(list)-1].At.Add(step))
	}
	if err != nil {
		return nil, err
	}
	of := draw.RateChart{ID: "rates", Title: "Speed", Lines: []draw.Line{{Series: draw.Series{Name: "recipients written", Tone: "s2"}}}}
	delivers := s.Messages.Messages > 0
	if delivers {
		of.Lines = append(of.Lines, draw.Line{Series: draw.Series{Name: "messages sent", Tone: "done"}},
			draw.Line{Series: draw.Series{Name: "messages failed", Tone: "bad"}})
	}
	var points []draw.Point
	for _, p := range list {
		per := step.Minutes()
		values := []float64{float64(p.RowsWritten) / per}
		if delivers {
			values = append(values, float64(p.Sent)/per, float64(p.Failed)/per)
		}
		points = append(points, draw.Point{At: p.At, Values: values})
	}
	var marks []draw.Marker
	for _, e := range timeline {
		of, reason := words.JobEvent(e.event)
		if said := strings.TrimSuffix(of.Word+": "+text.OneLine(reason, 120), ": "); isMark(e.event.Kind) && len(marks) < maxMarks {
			marks = append(marks, draw.Marker{At: e.event.At, When: e.When, Text: said})
		}
	}
	return draw.NewRateChart(h.zone, of, "a minute", step, points, marks), nil
}

// maxMarks is the number of events of a chart.
const maxMarks = 20

// isMark reports whether an event is in the chart of a job: one that explains a change of its speed.
func isMark(kind string) bool {
	switch kind {
	case "enqueued", job.EventClaimed, job.EventApproved, job.EventExpired:
		return false
	}
	return true
}

// jobSamples returns the figures of a job, in steps of whole minutes, without empty steps after its end.
func (h *handler) jobSamples(s jobs.JobState, begin, end time.Time) (list []samples.Point, step time.Duration, err error) {
	minutes := int64(end.Sub(begin) / time.Minute)
	step = time.Duration(max(1, (minutes+chartSteps-1)/chartSteps)) * time.Minute
	if end.Sub(begin) < time.Minute {
		return nil, step, nil
	}
	found, err := listOf[samples.Point](h, views.SamplesOperation,
		url.Values{"kind": {string(samples.Job)}, "name": {text.Int(s.ID)}, "since": {begin.Format(time.RFC3339)},
			"until": {end.Format(time.RFC3339)}, "step": {step.String()}})
	var denied *operation.DeniedError
	if errors.As(err, &denied) { // the figures of a radius reveal who is inside
		return nil, step, nil
	}
	if s.AtRest() {
		for n := len(found.Items); n > 0; n-- {
			if p := found.Items[n-1]; p.RowsWritten+p.Sent+p.Failed+p.Deferred > 0 {
				break
			}
			found.Items = found.Items[:n-1]
		}
	}
	return found.Items, step, err
}

const (
	chartSteps = 240                 // the largest number of steps of a chart
	samplesFor = 14 * 24 * time.Hour // the time for which the figures are stored, unless configured
)

// jobDelivery is the result of a job's messages, over time and by medium and reason.
type jobDelivery struct {
	Results *draw.BarChart    // nil without rows
	Flow    *draw.ColumnChart // the delivery over time; nil if nothing was sent
	Failed  []tab             // the messages that failed
	Note    string
}

// jobDelivery returns the tab Delivery.
func (h *handler) jobDelivery(report jobReport) *jobDelivery {
	d := &jobDelivery{}
	counts := report.Rows()
	if counts == nil {
		return d
	}
	d.Results, d.Flow = views.JobResults(h.zone, *counts), views.JobDelivery(h.zone, *counts)
	if !counts.Complete {
		d.Note = fmt.Sprintf("Counted for two seconds: these are the channels up to %d.", counts.UpTo)
	}
	if counts.Dead > 0 {
		id := text.Int(report.State().ID)
		d.Failed = append(h.action(views.LettersOperation, "Show the failed messages", url.Values{"job": {id}}),
			h.action("dead-letters redrive", "Send them again…", url.Values{"job": {id}})...)
	}
	return d
}

// jobRecipients answers who got a job.
type jobRecipients struct {
	Person  string // the external id of the question
	Answer  *recipientRow
	Filters []tab
	Rows    []recipientRow
	Part    bool // there are more
	Fault   template.HTML
	Actions []tab // the count, and the list as CSV
	Skipped []tab
}

// recipientRow is the result of a recipient.
type recipientRow struct {
	Name, Link string
	Status     template.HTML
	Sentence   string
}

// maxRecipients is the number of recipients on the page. The CSV has all.
const maxRecipients = 50

// jobRecipients returns the tab Recipients.
func (h *handler) jobRecipients(s jobs.JobState) *jobRecipients {
	query := h.req.URL.Query()
	id := text.Int(s.ID)
	r := &jobRecipients{Person: normalized(query.Get("external_id"))}
	self := h.pageFor("job", id) + "?tab=recipients"
	reason := query.Get("reason")
	for _, f := range []struct{ key, name string }{{"", "All"}, {"sent,unread,read", "Got it"}, {"dead", "Failed"},
		{"pending,held,sending", "Waiting"},
		{"inactive,cancelled", "Opted out or cancelled"}, {"skipped,missing", "Skipped"}} {
		to := self
		if f.key != "" {
			to += "&reason=" + url.QueryEscape(f.key)
		}
		r.Filters = append(r.Filters, tab{Name: f.name, Link: to, Here: f.key == reason})
	}
	r.Actions = h.action("jobs audit", "Count all recipients by result", url.Values{"id": {id}})
	if o, allowed := h.allowed("jobs recipients"); allowed {
		r.Actions = append(r.Actions, tab{Name: "All recipients as CSV", Link: h.linkWith(o, url.Values{"id": {id}, formParam: {"csv"}})})
	}
	if s.Skipped > 0 {
		r.Skipped = h.action("jobs skips", "Show the "+text.Counted(s.Skipped, "skipped recipient")+" with the errors", url.Values{"id": {id}})
	}
	if r.Person != "" {
		rows, _, err := h.recipients(url.Values{"id": {id}, "external_id": {r.Person}})
		switch {
		case err != nil:
			r.Fault = h.failure(err)
		case len(rows) == 1:
			rows[0].Name = r.Person
			r.Answer = &rows[0]
		}
		return r
	}
	of := url.Values{"id": {id}}
	if reason != "" {
		of.Set("reason", reason)
	}
	var err error
	if r.Rows, r.Part, err = h.recipients(of); err != nil {
		r.Fault = h.failure(err)
	}
	return r
}

// recipients returns the first recipients that match a filter. part reports that there are more, or that the
// search took too long.
func (h *handler) recipients(of url.Values) (rows []recipientRow, part bool, err error) {
	o, there := h.named("jobs recipients")
	in, faults := read(o, of)
	if !there || len(faults) > 0 {
		return nil, false, operation.Invalid("reason", "%s", faults["reason"])
	}
	ctx, cancel := context.WithTimeout(h.req.Context(), partTimeout)
	defer cancel()
	_, err = h.stream(ctx, o, in, func(item any) error {
		list, _ := item.([]accounts.Entry)
		for _, e := range list {
			if len(rows) == maxRecipients {
				return errPageFull
			}
			rows = append(rows, recipientRow{Name: "Person " + text.Int(e.ChannelID), Link: h.pageFor("channel", text.Int(e.ChannelID)),
				Status: badge(words.Result(e.Reason, e.Why), ""), Sentence: e.Sentence()})
		}
		return nil
	})
	if errors.Is(err, errPageFull) || ctx.Err() != nil && h.req.Context().Err() == nil {
		return rows, true, nil
	}
	return rows, false, err
}

// jobSettings are the settings of a job by group.
type jobSettings struct {
	Groups  []settingGroup
	Actions []tab
}

type settingGroup struct {
	Name   string
	Fields []field
}

// jobSettings returns the tab Settings.
func (h *handler) jobSettings(report jobReport) *jobSettings {
	s := report.State()
	id := text.Int(s.ID)
	var groups []settingGroup
	add := func(name string, value any) {
		last := &groups[len(groups)-1]
		last.Fields = append(last.Fields, field{Name: name, Text: h.html(text.Line{text.CellOf(value)})})
	}
	groups = append(groups, settingGroup{Name: "Times"})
	add("Requested", s.CreatedAt)
	for _, of := range jobTimes(s) {
		add(of.name, of.at)
	}
	groups = append(groups, settingGroup{Name: "Order"})
	add("Lane", text.Ref("lane", s.Lane))
	add("Priority", s.Priority)
	add("Category", text.Ref("category", s.Category))
	if len(s.Route) > 0 {
		add("Media", strings.Join(s.Route, ", then "))
	}
	if s.ApprovedAt != nil {
		add("Approved", text.Sprintf("%s by %s", *s.ApprovedAt, s.ApprovedBy))
	}
	if s.IdempotencyKey != nil {
		add("Idempotency key", *s.IdempotencyKey)
	}
	groups = append(groups, settingGroup{Name: "Speed and limits"})
	add("Most recipients", words.OrDefault(s.MaxRecipients, "no limit", func(n int) string { return text.Grouped(int64(n)) }))
	add("Speed limit", words.OrDefault(s.MaxRowsPerSecond, defaultSetting, func(n int) string {
		if n == 0 {
			return "none"
		}
		return words.PerSecond(float64(n), "recipients")
	}))
	add("Share of time at work", words.OrDefault(s.DutyCycle, defaultSetting, func(share float64) string { return words.Ratio(share, 1) }))
	add("Slows with the database", words.OrDefault(s.HealthChecks, defaultSetting, func(on bool) string {
		return map[bool]string{true: "yes", false: "no"}[on]
	}))
	add("Recipients at once", words.OrDefault(s.MaxChunkRows, defaultSetting, func(n int) string {
		return "at most " + text.Grouped(int64(n))
	}))
	add("Recipients that may be skipped", words.OrDefault(s.MaxSkips, defaultSetting, func(n int) string { return text.Grouped(int64(n)) }))
	groups = append(groups, settingGroup{Name: "Work so far"})
	add("Recipients examined", s.ChannelsRead)
	add("Recipients written", s.RowsWritten)
	if s.Declined > 0 {
		add("Opted out", s.Declined)
	}
	if s.ThrottledMS > 0 {
		add("Slowed for", words.Span(time.Duration(s.ThrottledMS)*time.Millisecond))
	}
	if lost := s.Attempts - 1; lost > 0 {
		add("Runs that broke off", strconv.Itoa(lost))
	}
	if s.Runner != "" {
		add("Process", s.Runner)
	}
	with := url.Values{"id": {id}, "if_version": {text.Int(s.Version)}}
	actions := h.action("jobs set", "Change settings…", with)
	actions = append(actions, h.action("jobs runs", "Runs", url.Values{"id": {id}})...)
	return &jobSettings{groups, actions}
}

// defaultSetting is the text of a setting that the job does not have.
const defaultSetting = "as configured for all jobs"
