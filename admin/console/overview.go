package console

import (
	"cmp"
	"context"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/console/agenda"
	"github.com/belfryhq/belfry/admin/console/draw"
	"github.com/belfryhq/belfry/admin/console/views"
	"github.com/belfryhq/belfry/admin/console/words"
	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/admin/jobs"
	"github.com/belfryhq/belfry/admin/upcoming"

	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/job/schedule"
)

// overviewPage shows jobs in progress, upcoming work, delivery, errors, health and the last jobs.
type overviewPage struct {
	Jobs     []running
	Awaiting []jobRow
	Days     []upcomingDay
	Senders  []views.SenderCard
	Day      *draw.ColumnChart // sent and failed messages of the last 24 hours; nil without any
	Errors   []views.ErrorGroup
	AllFails string // the page of all errors; "" if the caller may not read it
	Health   health
	Stopped  []jobRow // of the last day: their other recipients get nothing until they are resumed
	Last     []jobRow
	First    []tab // the first steps in an empty installation
	Fault    template.HTML
}

// running is a job in progress.
type running struct {
	ID, Title, About, Link string
	Status                 template.HTML
	Bar                    draw.Progress
	Rate, Left, Slowed     string
	Waits                  template.HTML
	Remedies, Stop         []tab
}

// upcomingDay is the upcoming work of a day.
type upcomingDay struct {
	Name    string
	Entries []upcomingEntry
}

// upcomingEntry is a pending job, or the next occurrence of a schedule.
type upcomingEntry struct {
	Clock, Title, About, Link string
	When                      template.HTML
}

const (
	upcomingOperation = "upcoming" // lists pending jobs and occurrences of schedules
	schedulesList     = "schedules list"
	lastJobs          = 8    // the number of finished jobs
	errorsFor         = "1h" // the time of the most frequent errors
	// partTimeout limits the query of a part of the page that it can do without.
	partTimeout = time.Second
)

// overview renders what happens now, next, and happened last.
func (h *handler) overview() {
	var page overviewPage
	status := http.StatusOK
	if err := h.readOverview(&page); err != nil {
		page.Fault, status = h.failure(err), statusFor(err)
	}
	h.show(status, "overview", layout{Title: "Overview", About: []string{job.SubjectJob + ".enqueued"}, Page: page})
}

// readOverview reads the parts of the page until one fails.
func (h *handler) readOverview(page *overviewPage) error {
	in, err := h.inProgress()
	if err != nil {
		return err
	}
	var waiting int64
	for _, w := range in {
		page.Jobs, waiting = append(page.Jobs, h.running(w)), waiting+w.Messages.Waiting
	}
	if page.Awaiting, err = h.jobRows(url.Values{"awaiting_approval": {"on"}, "limit": {"20"}}); err != nil {
		return err
	}
	if page.Days, err = h.upcomingDays(); err != nil {
		return err
	}
	if page.Stopped, err = h.jobRows(url.Values{"status": {string(job.Aborted)}, "since": {"24h"}, "limit": {"5"}}); err != nil {
		return err
	}
	ended := []string{string(job.Processed), string(job.Aborted), string(job.Failed), string(job.Expired)}
	last, err := h.listJobs(url.Values{"status": ended, "limit": {text.Int(lastJobs)}})
	if err != nil {
		return err
	}
	for _, s := range last.Items {
		r := h.jobRow(s)
		if !slices.ContainsFunc(page.Jobs, func(j running) bool { return j.ID == r.ID }) &&
			!slices.ContainsFunc(page.Stopped, func(j jobRow) bool { return j.ID == r.ID }) {
			page.Last = append(page.Last, r)
		}
	}
	a, err := h.query(views.SendersOperation, nil)
	if err != nil {
		return err
	}
	senders, _ := a.out.(delivery.Senders)
	ctx, request := h.req.Context(), h.viewed()
	if page.Senders, err = views.SenderCards(ctx, request, senders.Senders); err != nil {
		return err
	}
	if page.Day, err = views.DayOfDelivery(ctx, request, senders.Senders); err != nil {
		return err
	}
	brief, cancel := context.WithTimeout(ctx, partTimeout)
	defer cancel()
	if page.Errors, err = views.FrequentErrors(brief, request, errorsFor); err == nil {
		page.AllFails = request.Link(views.ErrorsOperation, nil)
	}
	page.Health = h.health(senders.Senders, waiting, last.Items)
	if len(page.Jobs)+len(page.Awaiting)+len(page.Days)+len(page.Last) == 0 {
		page.First = slices.Concat(h.action("channels count", "Count the recipients", nil),
			h.action(views.SendersOperation, "Check the senders", nil),
			h.action(enqueueOperation, "Write a notification", nil), h.action("schedules add", "Add a schedule", nil))
	}
	return nil
}

// inProgress returns the jobs that run or are being delivered: the first update of the stream.
func (h *handler) inProgress() (list []jobs.WatchedJob, err error) {
	watch, there := h.named(watchOperation)
	if !there {
		return nil, nil
	}
	_, err = h.stream(h.req.Context(), watch, watch.NewInput(), func(item any) error {
		u, _ := item.(jobs.Update)
		list = u.Jobs
		return errPageFull
	})
	if errors.Is(err, errPageFull) {
		err = nil
	}
	return list, err
}

// running returns a job in progress.
func (h *handler) running(w jobs.WatchedJob) running {
	s := w.State()
	id := text.Int(w.ID)
	r := running{
		ID: id, Title: w.Title, About: words.AboutJob(w.Lane, "Job "+id, w.Type), Link: h.pageFor("job", id),
		Status: badge(views.JobStatus(s, w.Held || h.held(s)), id+".status"), Bar: views.JobProgress(s),
		Rate: views.JobRate(w), Left: views.JobTimeLeft(w, h.zone, time.Now()), Slowed: views.SlowedBy(s), Waits: h.html(w.Waiting()),
		Stop: h.stop(id),
	}
	if r.Waits != "" {
		r.Remedies = h.remedies(w.Remedy)
	}
	return r
}

// stop returns the link that stops a job, if the caller may.
func (h *handler) stop(id string) []tab {
	stop := jobActs()[0]
	stop.label += " " + id
	return h.actLink(stop, id)
}

// held reports whether a halt or a paused lane holds a job.
func (h *handler) held(s jobs.JobState) bool {
	return s.HaltedAt != nil || h.state.Halted() || slices.Contains(h.state.PausedLanes, s.Lane)
}

// remedies returns the commands of a remedy as links, without commands that have no page.
func (c *Console) remedies(l text.Line) (actions []tab) {
	for _, one := range l {
		switch v := one.(type) {
		case text.Line:
			actions = append(actions, c.remedies(v)...)
		case text.CommandCell:
			if to := c.linkTo(v); to != "" {
				o, _ := c.named(v.Operation)
				actions = append(actions, tab{Name: cmp.Or(words.Sentence(v.Label), verbOf(o)), Link: to})
			}
		}
	}
	return actions
}

// upcomingDays returns the next entries by day, without held ones. A schedule has one entry.
func (h *handler) upcomingDays() (days []upcomingDay, err error) {
	entries, err := listOf[upcoming.Entry](h, upcomingOperation, url.Values{"skip_held": {"on"}, "occurrences": {"1"}, "limit": {"12"}})
	if err != nil || len(entries.Items) == 0 {
		return nil, err
	}
	schedules, err := listOf[schedule.Schedule](h, schedulesList, nil)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	for _, e := range entries.Items {
		at := words.In(h.zone, e.At)
		one := upcomingEntry{Clock: at.Format("15:04"), Title: e.Title, When: words.When(h.zone, e.At),
			About: words.AboutJob(e.Lane, strings.Join(e.Types, ", "), e.Category)}
		if e.JobID != nil {
			one.Link = h.pageFor("job", text.Int(*e.JobID))
		} else {
			one.Link = h.pageFor("schedule", e.Schedule)
			i := slices.IndexFunc(schedules.Items, func(s schedule.Schedule) bool { return s.Name == e.Schedule })
			one.Title, one.About = cmp.Or(e.Title, e.Schedule), "repeatedly"
			if i >= 0 {
				one.About = words.Repetition(schedules.Items[i].Definition)
			}
		}
		name, _ := agenda.DayOf(at, now)
		if len(days) == 0 || days[len(days)-1].Name != name {
			days = append(days, upcomingDay{Name: name})
		}
		last := &days[len(days)-1]
		last.Entries = append(last.Entries, one)
	}
	return days, nil
}
