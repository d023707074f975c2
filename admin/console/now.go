package console

import (
	"errors"
	"html/template"

	"github.com/belfryhq/belfry/admin/jobs"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/admin/upcoming"

	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// nowPage is what is under way, and what comes next.
type nowPage struct {
	Jobs     []running
	Awaiting *told // jobs that wait for a second person; nil: none does
	Next     *told
	Delivery *table // nil: nobody delivers
	Health   *told
	Fault    template.HTML
}

// running is one job with its progress.
type running struct {
	ID                 int64
	Title, About, Link string
	Status             *status
	Walk, Delivery     *progress
	Slowed             string
	Waits              template.HTML
	Stop               tab // its Link is "": who asks may not
}

// progress is how far something is.
type progress struct {
	Part float64 // in percent
	Text string
}

// bar is a part of a whole, in percent with one digit.
func bar(part, whole int64) float64 {
	if whole <= 0 {
		return 0
	}
	return float64(min(part*1000/whole, 1000)) / 10
}

// walked and delivered are how far a job is, in percent.
func walked(s jobs.JobState) float64 {
	if s.Status == job.Processed || s.WalkedAt != nil {
		return 100
	}
	total, _ := s.Total()
	return bar(s.ChannelsRead, total)
}

func delivered(s jobs.JobState) float64 { return bar(s.Settled(), s.Messages.Messages) }

// now shows what is under way.
func (v *visit) now() {
	watch, there := v.named("jobs watch")
	if !there {
		v.lost()
		return
	}
	var page nowPage
	_, err := v.stream(v.req.Context(), watch, watch.NewInput(), func(item any) error {
		jobs, _ := item.([]jobs.WatchedJob)
		for _, one := range jobs {
			page.Jobs = append(page.Jobs, v.running(one))
		}
		return errEnough
	})
	status := 200
	if err != nil && !errors.Is(err, errEnough) {
		page.Fault, status = v.inline(err.Error()), statusFor(err)
	}
	if status == 200 {
		if err := v.below(&page); err != nil {
			page.Fault, status = v.inline(err.Error()), statusFor(err)
		}
	}
	v.show(status, "now", frame{Title: "Now", About: []string{job.SubjectJob + ".enqueued"}, Page: page})
}

// below reads what stands below the jobs that are under way, as far as it goes.
func (v *visit) below(page *nowPage) (err error) {
	if page.Next, err = v.upcoming(); err != nil {
		return err
	}
	if page.Awaiting, err = v.awaiting(); err != nil {
		return err
	}
	if page.Delivery, err = v.delivery(); err != nil {
		return err
	}
	page.Health, err = v.health()
	return err
}

// upcomingOf lists pending jobs and occurrences of schedules.
const upcomingOf = "upcoming"

// upcoming returns the beginning of the list of upcoming work without held entries. Nil means that the
// operation does not exist.
func (v *visit) upcoming() (*told, error) {
	list, there := v.named(upcomingOf)
	if !there {
		return nil, nil
	}
	in, _ := read(list, map[string][]string{"skip_held": {"on"}, "limit": {"12"}})
	out, err := v.do(v.req.Context(), list, in)
	entries, is := out.(operation.List[upcoming.Entry])
	if err != nil || !is {
		return nil, err
	}
	entries.Next = "" // the page of the operation has the next page
	t := v.tell(list, in, entries)
	t.note("%s lists all entries", text.Command("upcoming"))
	return t, nil
}

// awaiting are the newest jobs that wait for approval; nil: none does.
func (v *visit) awaiting() (*told, error) {
	list, there := v.named(jobsList)
	if !there {
		return nil, nil
	}
	in, _ := read(list, map[string][]string{"awaiting_approval": {"on"}, "limit": {"20"}})
	out, err := v.do(v.req.Context(), list, in)
	if jobs, is := out.(operation.List[jobs.JobState]); err != nil || !is || len(jobs.Items) == 0 {
		return nil, err
	}
	return v.tell(list, in, out), nil
}

// running is a job of a look.
func (v *visit) running(w jobs.WatchedJob) running {
	s := w.State()
	id := text.Int(w.ID)
	r := running{
		ID: w.ID, Title: w.Title, About: w.Type + " · lane " + w.Lane, Link: v.link("/jobs/" + id), Status: badge(s.Badge(), id+".status"),
		Walk: &progress{walked(s), v.plain(w.WalkLine())}, Waits: v.html(w.Waits()),
	}
	if s.Throttle != "" {
		r.Slowed = jobs.ThrottledBy(s.Job)
	}
	if w.Messages.Messages > 0 {
		r.Delivery = &progress{delivered(s), w.DeliveryText()}
	}
	r.Stop = v.stop(id)
	return r
}

// stop is the way to stop a job, for who may.
func (v *visit) stop(id string) tab {
	abort, there := v.named("abort")
	if !there || abort.Allowed(v.who.Role) != nil {
		return tab{}
	}
	return tab{Name: "Stop job " + id, Link: v.linkWith(abort, map[string][]string{arguments(abort)[0].Name: {id}})}
}
