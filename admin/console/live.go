package console

import (
	"maps"
	"net/url"
	"time"

	"github.com/belfryhq/belfry/admin/console/views"
	"github.com/belfryhq/belfry/admin/jobs"
	"github.com/belfryhq/belfry/admin/operation"

	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// watchOperation is the stream of jobs and events.
const watchOperation = "jobs watch"

// eventsOperation lists control events.
const eventsOperation = "events list"

// cellsOf returns the values of a job that change, by the names of their cells.
func (c *Console) cellsOf(w jobs.WatchedJob) map[string]string {
	s := w.State()
	of := views.JobStatus(s, w.Held)
	id := text.Int(w.ID) + "."
	stop := ""
	if !w.AtRest {
		stop = views.StopEffect(s)
	}
	return map[string]string{
		id + "status": of.Word, id + "tone": string(of.Tone), id + "bar": views.JobProgress(s).Update(), id + "rows": text.Grouped(w.RowsWritten),
		id + "rate": views.JobRate(w), id + "left": views.JobTimeLeft(w, c.zone, time.Now()), id + "slowed": views.SlowedBy(s),
		id + "waits": c.plain(w.Waiting()),
		id + "stop":  stop, id + "moving": map[bool]string{false: "yes"}[w.AtRest],
	}
}

// controlEvent is an event for the announcement of a page.
type controlEvent struct {
	ID   int64  `json:"id"`
	Of   string `json:"of"`   // subject
	Name string `json:"name"` // of the object
	Kind string `json:"kind"`
	By   string `json:"by"`
	Text string `json:"text"`
}

// liveEvent is an event of /live.
type liveEvent struct {
	At      time.Time         `json:"at"`
	Jobs    []int64           `json:"jobs,omitempty"` // that run or are being delivered
	Cells   map[string]string `json:"cells,omitempty"`
	Actions []controlEvent    `json:"acts,omitempty"`
}

// live serves the stream of jobs and events as cells and announcements until the browser disconnects.
func (h *handler) live() {
	watch, there := h.named(watchOperation)
	if !there {
		h.notFound()
		return
	}
	api.Note(h.req, "", true)
	in, _ := read(watch, url.Values{"follow": {"on"},
		"after": h.req.URL.Query()["after"]}) // the position of the events at the start of the page's request
	sent := make(map[int64]map[string]string)
	h.api.ServeStream(h.w, h.req, api.Call{Caller: h.caller, Operation: watch, Input: in}, func(item any) any {
		u, _ := item.(jobs.Update)
		return h.liveEvent(u, sent)
	})
}

// liveEvent returns an update as an event. sent has the cells of each job in progress, as the browser has them.
func (c *Console) liveEvent(u jobs.Update, sent map[int64]map[string]string) liveEvent {
	e := liveEvent{At: time.Now().UTC(), Cells: make(map[string]string)}
	for _, one := range u.Jobs {
		cells := c.cellsOf(one)
		if !maps.Equal(sent[one.ID], cells) {
			maps.Copy(e.Cells, cells)
		}
		delete(sent, one.ID)
		if one.Status == job.Running || one.Delivering {
			e.Jobs = append(e.Jobs, one.ID)
			sent[one.ID] = cells
		}
	}
	for _, act := range u.Events {
		e.Actions = append(e.Actions, controlEvent{act.ID, act.Subject, act.Name, act.Kind, act.Actor, jobs.EventLine(act).String()})
	}
	return e
}

// subjects maps nouns of operations to subjects of control events.
var subjects = map[string]string{
	"": job.SubjectJob, "jobs": job.SubjectJob, "lanes": "lane", "schedules": "schedule", "senders": "sender", "categories": "category",
	"dead-letters": "dead_letter", "channels": "channel", "limits": "limits", "transport": "transport", "tokens": "token",
	"users": "user", "sessions": "user",
}

// aboutOf returns the control events that concern a page: a subject, "subject.kind", "subject:name", or "*"
// for all.
func aboutOf(o operation.Operation, values url.Values) []string {
	subject := subjects[o.Noun()]
	switch o.Name {
	case jobsList: // the stream updates the cells of listed jobs
		return []string{job.SubjectJob + ".enqueued"}
	case upcomingOperation:
		return []string{job.SubjectJob, "schedule", "lane", "installation"}
	case eventsOperation:
		return []string{"*"}
	}
	var names []string
	for _, p := range arguments(o) {
		for _, name := range values[p.Name] {
			names = append(names, subject+":"+name)
		}
	}
	switch {
	case len(names) > 0:
		return names
	case o.Noun() == "" || o.Changes:
		return nil
	}
	return []string{subject}
}
