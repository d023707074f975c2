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

	"github.com/belfryhq/belfry/admin/console/draw"
	"github.com/belfryhq/belfry/admin/console/words"
	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/admin/jobs"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/admin/upcoming"

	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/job/schedule"
	"github.com/belfryhq/belfry/outbox/samples"
)

// overviewPage shows jobs in progress, upcoming work, delivery, errors, health and the last jobs.
type overviewPage struct {
	Jobs     []running
	Awaiting []jobRow
	Days     []upcomingDay
	Senders  []senderCard
	Day      *draw.ColumnChart // sent and failed messages of the last 24 hours; nil without any
	Errors   []errorRow
	AllFails string // the page of all errors; "" if the caller may not read it
	Health   health
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

// senderCard is a sender that relays run or an operator has paused.
type senderCard struct {
	Name, Medium, Link    string
	Status                template.HTML
	Rate, Failed, Waiting string
	Fails                 bool
	Chart                 *draw.Sparkline
}

// errorRow is an error of dead letters.
type errorRow struct {
	Text, About, Link, Count string
	Last                     template.HTML
}

const (
	upcomingOperation = "upcoming" // lists pending jobs and occurrences of schedules
	lastJobs          = 8          // the number of finished jobs
	chartedSenders    = 12         // the number of senders with a chart
	errorsFor         = "1h"       // the time of the most frequent errors
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
	ended := []string{string(job.Processed), string(job.Aborted), string(job.Failed), string(job.Expired)}
	if page.Last, err = h.jobRows(url.Values{"status": ended, "limit": {text.Int(lastJobs)}}); err != nil {
		return err
	}
	page.Last = slices.DeleteFunc(page.Last, func(r jobRow) bool {
		return slices.ContainsFunc(page.Jobs, func(j running) bool { return j.ID == r.ID })
	})
	a, err := h.query("senders list", nil)
	if err != nil {
		return err
	}
	senders, _ := a.out.(delivery.Senders)
	if page.Senders, err = h.senderCards(senders.Senders); err != nil {
		return err
	}
	if page.Day, err = h.dayOfDelivery(senders.Senders); err != nil {
		return err
	}
	page.Errors, page.AllFails = h.frequentErrors()
	if page.Health, err = h.health(senders, waiting); err != nil {
		return err
	}
	if len(page.Jobs)+len(page.Awaiting)+len(page.Days)+len(page.Last) == 0 {
		page.First = slices.Concat(h.action("channels count", "Count the recipients", nil), h.action("senders list", "Check the senders", nil),
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
		Status: badge(words.JobStatus(s, w.Held || h.held(s)), id+".status"), Bar: draw.JobProgress(s),
		Rate: words.JobRate(w), Left: words.JobTimeLeft(w), Slowed: words.SlowedBy(s), Waits: h.html(w.Waiting()), Stop: h.stop(id),
	}
	if r.Waits != "" {
		r.Remedies = h.remedies(w.Remedy)
	}
	return r
}

// stop returns the link that aborts a job, if the caller may.
func (h *handler) stop(id string) []tab {
	return h.action("abort", "Stop job "+id, url.Values{"id": {id}})
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
	a, err := h.query(upcomingOperation, url.Values{"skip_held": {"on"}, "occurrences": {"1"}, "limit": {"12"}})
	entries, is := a.out.(operation.List[upcoming.Entry])
	if err != nil || !is || len(entries.Items) == 0 {
		return nil, err
	}
	a, err = h.query("schedules list", nil)
	if err != nil {
		return nil, err
	}
	schedules, _ := a.out.(operation.List[schedule.Schedule])
	now := time.Now()
	for _, e := range entries.Items {
		at := words.In(h.zone, e.At)
		one := upcomingEntry{Clock: at.Format("15:04"), Title: e.Title, When: words.When(h.zone, e.At), About: words.AboutJob(e.Lane, strings.Join(e.Types, ", "), e.Category)}
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
		name := words.DayOf(at, now)
		if e.At.Before(now) {
			name = "Due"
		}
		if len(days) == 0 || days[len(days)-1].Name != name {
			days = append(days, upcomingDay{Name: name})
		}
		last := &days[len(days)-1]
		last.Entries = append(last.Entries, one)
	}
	return days, nil
}

// senderCards returns the senders that relays run or an operator has paused.
func (h *handler) senderCards(list []delivery.SenderState) (cards []senderCard, err error) {
	slices.SortFunc(list, func(a, b delivery.SenderState) int {
		return cmp.Or(cmp.Compare(a.Medium, b.Medium), cmp.Compare(a.Name, b.Name))
	})
	for _, s := range list {
		if s.Relays == 0 && s.PausedAt == nil {
			continue
		}
		cards = append(cards, senderCard{
			Name: s.Name, Medium: s.Medium, Link: h.pageFor("sender", s.Name), Status: badge(words.SenderStatus(s), ""),
			Rate: words.PerSecond(s.SentPerSecond, ""), Failed: words.Ratio(s.FailedPerSecond, s.SentPerSecond+s.FailedPerSecond),
			Waiting: text.Grouped(int64(s.Waiting)), Fails: s.FailedPerSecond > 0,
		})
		if len(cards) > chartedSenders {
			continue
		}
		hour, err := h.samples(samples.Sender, s.Name, "1h", "1m")
		if err != nil {
			return nil, err
		}
		if points, n := sentOf(hour); n > 0 {
			cards[len(cards)-1].Chart = draw.NewSparkline(h.zone, "Sent by "+s.Name, "messages a minute", points)
		}
	}
	return cards, nil
}

// sentOf returns the sent messages of each step, and their number.
func sentOf(list []samples.Point) (points []draw.Point, n int64) {
	for _, s := range list {
		points, n = append(points, draw.Point{At: s.At, Values: []float64{float64(s.Sent)}}), n+s.Sent
	}
	return points, n
}

// samples returns the figures of a subject since a time ago. It returns none if the operation does not exist.
func (h *handler) samples(kind samples.Kind, name, since, step string) ([]samples.Point, error) {
	a, err := h.query("samples", url.Values{"kind": {string(kind)}, "name": {name}, "since": {since}, "step": {step}})
	list, _ := a.out.(operation.List[samples.Point])
	return list.Items, err
}

// dayOfDelivery draws the messages of the last 24 hours: sent by medium, and failed attempts.
func (h *handler) dayOfDelivery(list []delivery.SenderState) (*draw.ColumnChart, error) {
	var of []draw.Series
	var points []draw.Point
	var all int64
	media := make(map[string]int)
	tones := []string{"done", "s2", "s3", "s4", "s5"}
	for _, s := range list {
		if _, known := media[s.Medium]; !known && s.Medium != "" && len(media) < len(tones) {
			of, media[s.Medium] = append(of, draw.Series{Name: s.Medium + " sent", Tone: tones[len(media)]}), len(media)
		}
	}
	of = append(of, draw.Series{Name: "failed", Tone: "bad"})
	for _, s := range list[:min(len(list), chartedSenders)] {
		medium, known := media[s.Medium]
		if !known {
			continue
		}
		steps, err := h.samples(samples.Sender, s.Name, "24h", "30m")
		if err != nil {
			return nil, err
		}
		for i, step := range steps {
			if i == len(points) {
				points = append(points, draw.Point{At: step.At, Values: make([]float64, len(of))})
			}
			points[i].Values[medium] += float64(step.Sent)
			points[i].Values[len(of)-1] += float64(step.Failed)
			all += step.Sent + step.Failed
		}
	}
	if all == 0 {
		return nil, nil
	}
	return draw.NewColumnChart(h.zone, draw.ColumnChart{ID: "day", Title: "Delivery of the last 24 hours", Series: of}, 30*time.Minute, points, nil), nil
}

// frequentErrors returns the most frequent errors of the last hour and the page of all errors. It returns
// nothing if the caller may not read them, or if the database needs more than a second.
func (h *handler) frequentErrors() (list []errorRow, all string) {
	o, allowed := h.allowed("dead-letters errors")
	if !allowed {
		return nil, ""
	}
	in, _ := read(o, url.Values{"since": {errorsFor}, "limit": {"3"}})
	ctx, cancel := context.WithTimeout(h.req.Context(), partTimeout)
	defer cancel()
	out, err := h.do(ctx, o, in)
	found, is := out.(delivery.DeadErrorList)
	if err != nil || !is {
		return nil, ""
	}
	letters, _ := h.named("dead-letters list")
	for _, e := range found.Errors {
		about := cmp.Or(e.Sender, e.Medium)
		if e.Code != "" {
			about += ", code " + text.OneLine(e.Code, 40)
		}
		of := url.Values{"dead_reason": {string(e.Reason)}, "since": {errorsFor}}
		if e.Medium != "" {
			of.Set("medium", e.Medium)
		}
		list = append(list, errorRow{Text: cmp.Or(text.OneLine(e.Error, 160), e.Reason.Text()), About: about, Link: h.linkWith(letters, of),
			Count: text.Counted(e.Letters, "message"), Last: words.When(h.zone, e.LastAt)})
	}
	return list, h.linkWith(o, nil)
}
