package console

import (
	"cmp"
	"errors"
	"html/template"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/internal/printer"
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
func walked(s admin.JobState) float64 {
	if s.Status == job.Processed || s.WalkedAt != nil {
		return 100
	}
	total, _ := s.Total()
	return bar(s.ChannelsRead, total)
}

func delivered(s admin.JobState) float64 { return bar(s.Settled(), s.Messages.Messages) }

// now shows what is under way.
func (v *visit) now() {
	watch, there := v.named("jobs watch")
	if !there {
		v.lost()
		return
	}
	var page nowPage
	_, err := v.ask.Stream(v.req.Context(), watch, watch.NewInput(), func(item any) error {
		jobs, _ := item.([]admin.WatchedJob)
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
	if page.Next, err = v.comes(); err != nil {
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

// mostToCome is how much of the timetable Now has.
const mostToCome = 12

// comes is the beginning of the timetable without what has begun; what is held is counted. nil: nobody
// may know.
func (v *visit) comes() (*told, error) {
	o, there := v.named(timetableOf)
	if !there {
		return nil, nil
	}
	out, err := v.ask.Run(v.req.Context(), o, o.NewInput())
	of, is := out.(*admin.Timetable)
	if err != nil || !is {
		return nil, err
	}
	t := &told{c: v.Console, of: o, role: v.who.Role}
	var (
		rows       [][]string
		more, held int64
		times      printer.Times
	)
	for _, e := range of.Entries {
		switch {
		case e.Running:
		case e.Held != "":
			held++
		case len(rows) == mostToCome:
			more++
		default:
			rows = append(rows, []string{times.Clock(e.At), cmp.Or(e.Lane, "?"), printer.OneLine(e.What(), 60), e.Expected(), e.Note(times)})
		}
	}
	if len(rows) > 0 {
		t.Table([]string{"WHEN", "LANE", "WHAT", ">EXPECTED", "NOTE"}, rows)
	}
	text := restToCome(len(rows), more, held, times.Clock(of.Until))
	if len(of.Cuts) > 0 {
		text += "; that is not all there is"
	}
	t.Text(text + "; `belfry timetable` shows more, and `belfry timetable --for 31d` what is later")
	return t, nil
}

// restToCome says what there is beside so many rows.
func restToCome(rows int, more, held int64, until string) string {
	rest := "nothing"
	switch {
	case more > 0:
		rest = printer.Grouped(more) + " more"
	case rows > 0:
		rest += " else"
	}
	rest += " until " + until
	switch {
	case held == 1:
		rest += ", and 1 is held"
	case held > 1:
		rest += ", and " + printer.Grouped(held) + " are held"
	}
	return rest
}

// awaiting are the newest jobs that wait for approval; nil: none does.
func (v *visit) awaiting() (*told, error) {
	list, there := v.named(jobsList)
	if !there {
		return nil, nil
	}
	in, _ := read(list, map[string][]string{"awaiting_approval": {"on"}, "limit": {"20"}})
	out, err := v.ask.Run(v.req.Context(), list, in)
	if jobs, is := out.(admin.List[admin.JobState]); err != nil || !is || len(jobs.Items) == 0 {
		return nil, err
	}
	return v.tell(list, in, out), nil
}

// running is a job of a look.
func (v *visit) running(w admin.WatchedJob) running {
	s := w.State()
	id := printer.Int(w.ID)
	r := running{
		ID: w.ID, Title: w.Title, About: w.Type + " · lane " + w.Lane, Link: v.link("/jobs/" + id), Status: statusOf(s.Shown()+s.Marks(), id+".status"),
		Walk: &progress{walked(s), v.unmarked(w.WalkText(printer.Times{}))}, Waits: v.inline(w.Waits()),
	}
	if s.Throttle != "" {
		r.Slowed = admin.ThrottledBy(s.Job)
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
