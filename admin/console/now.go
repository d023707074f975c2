package console

import (
	"errors"
	"html/template"
	"net/http"
	"net/url"

	"github.com/belfryhq/belfry/admin/jobs"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/admin/upcoming"

	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// nowPage shows jobs in progress, upcoming work, delivery and health.
type nowPage struct {
	Jobs     []running
	Awaiting *view // jobs that wait for approval; nil without any
	Next     *view
	Delivery *table // nil without senders
	Health   *view
	Fault    template.HTML
}

// running is one job with its progress.
type running struct {
	ID                 int64
	Title, About, Link string
	Status             template.HTML
	Walk, Delivery     *progress
	Slowed             string
	Waits              template.HTML
	Stop               []tab
}

// progress is a progress bar.
type progress struct {
	Part float64 // in percent
	Text string
}

// bar returns a part of a whole in percent with one digit.
func bar(part, whole int64) float64 {
	if whole <= 0 {
		return 0
	}
	return float64(min(part*1000/whole, 1000)) / 10
}

// walkPercent and deliveredPercent return the progress of a job in percent.
func walkPercent(s jobs.JobState) float64 {
	if s.Status == job.Processed || s.WalkedAt != nil {
		return 100
	}
	total, _ := s.Total()
	return bar(s.ChannelsRead, total)
}

func deliveredPercent(s jobs.JobState) float64 { return bar(s.Settled(), s.Messages.Messages) }

// now renders the jobs in progress.
func (h *handler) now() {
	watch, there := h.named(watchOperation)
	if !there {
		h.notFound()
		return
	}
	var page nowPage
	_, err := h.stream(h.req.Context(), watch, watch.NewInput(), func(item any) error {
		u, _ := item.(jobs.Update)
		for _, one := range u.Jobs {
			page.Jobs = append(page.Jobs, h.running(one))
		}
		return errPageFull
	})
	if err == nil || errors.Is(err, errPageFull) {
		err = h.readSections(&page)
	}
	status := http.StatusOK
	if err != nil {
		page.Fault, status = h.failure(err), statusFor(err)
	}
	h.show(status, "now", layout{Title: "Now", About: []string{job.SubjectJob + ".enqueued"}, Page: page})
}

// readSections reads the sections below the jobs until one fails.
func (h *handler) readSections(page *nowPage) (err error) {
	if page.Next, err = h.upcoming(); err != nil {
		return err
	}
	if page.Awaiting, err = h.awaiting(); err != nil {
		return err
	}
	if page.Delivery, err = h.delivery(); err != nil {
		return err
	}
	page.Health, err = h.health()
	return err
}

// upcomingOperation lists pending jobs and occurrences of schedules.
const upcomingOperation = "upcoming"

// upcoming returns the beginning of the list of upcoming work without held entries. Nil means that the
// operation does not exist.
func (h *handler) upcoming() (*view, error) {
	a, err := h.query(upcomingOperation, url.Values{"skip_held": {"on"}, "limit": {"12"}})
	entries, is := a.out.(operation.List[upcoming.Entry])
	if err != nil || !is {
		return nil, err
	}
	entries.Next = "" // the page of the operation has the next page
	t := h.render(a.Operation, a.in, entries)
	t.note("%s", text.Command("upcoming").To("list all entries"))
	return t, nil
}

// awaiting renders the newest jobs that wait for approval. It returns nil if there are none.
func (h *handler) awaiting() (*view, error) {
	a, err := h.query(jobsList, url.Values{"awaiting_approval": {"on"}, "limit": {"20"}})
	if list, is := a.out.(operation.List[jobs.JobState]); err != nil || !is || len(list.Items) == 0 {
		return nil, err
	}
	return h.render(a.Operation, a.in, a.out), nil
}

// running returns a job with its progress.
func (h *handler) running(w jobs.WatchedJob) running {
	s := w.State()
	id := text.Int(w.ID)
	r := running{
		ID: w.ID, Title: w.Title, About: w.Type + " · lane " + w.Lane, Link: h.link("/jobs/" + id), Status: badge(s.Badge(), id+".status"),
		Walk: &progress{walkPercent(s), h.plain(w.WalkLine())}, Waits: h.html(w.Waits()),
	}
	if s.Throttle != "" {
		r.Slowed = jobs.ThrottledBy(s.Job)
	}
	if w.Messages.Messages > 0 {
		r.Delivery = &progress{deliveredPercent(s), w.DeliveryText()}
	}
	r.Stop = h.stop(id)
	return r
}

// stop returns the link that aborts a job, if the caller may.
func (h *handler) stop(id string) []tab {
	return h.action("abort", "Stop job "+id, url.Values{"id": {id}})
}
