package jobs

import (
	"fmt"
	"slices"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// shownEvents is the number of events below the jobs on a terminal.
const shownEvents = 5

// progressView renders the updates of one stream for people.
type progressView struct {
	last   map[int64]string // the last line of each job, in local time; without a terminal
	kept   []WatchedJob     // the jobs on the screen
	events []text.Line      // the events on the screen
	idle   bool             // the note that no job runs was written
}

func newProgressView() *progressView { return &progressView{last: make(map[int64]string)} }

// keep adds the jobs of previous updates, running jobs first. If there are too many, it removes the oldest job at
// rest, then the oldest that does not run.
func (v *progressView) keep(jobs []WatchedJob) []WatchedJob {
	for _, old := range v.kept {
		if !slices.ContainsFunc(jobs, func(j WatchedJob) bool { return j.ID == old.ID }) {
			jobs = append(jobs, old)
		}
	}
	slices.SortFunc(jobs, runningFirst)
	for len(jobs) > watchMost {
		oldest := slices.IndexFunc(jobs, func(j WatchedJob) bool { return j.AtRest })
		if oldest < 0 {
			oldest = max(0, slices.IndexFunc(jobs, func(j WatchedJob) bool { return j.Status != job.Running }))
		}
		jobs = slices.Delete(jobs, oldest, oldest+1)
	}
	v.kept = slices.Clone(jobs)
	return jobs
}

// text writes an update: on a terminal a screen, elsewhere a line for each event and each changed job.
func (v *progressView) text(d *text.Doc, u Update) {
	jobs := v.keep(u.Jobs)
	if len(jobs) == 0 && !v.idle {
		v.idle = true
		d.Note("no job is running or being delivered; %s", text.Command("jobs list").To("list all jobs"))
	}
	if d.Columns > 0 {
		v.redraw(d, jobs, u.Events)
		return
	}
	for _, e := range u.Events {
		d.Line("%s", watchedEvent(e))
	}
	for _, one := range jobs {
		line := one.line()
		// A relative time differs in each update. This is not a change.
		if now := line.String(); now != v.last[one.ID] {
			d.Line("%s", line)
			v.last[one.ID] = now
		}
	}
}

// redraw draws the jobs, and the last events below them.
func (v *progressView) redraw(d *text.Doc, jobs []WatchedJob, events []job.ControlEvent) {
	for _, e := range events {
		v.events = append(v.events, watchedEvent(e))
	}
	v.events = v.events[max(0, len(v.events)-shownEvents):]
	width := max(d.Columns-1, 20)
	lines := screen(d.Times, jobs, width, max(d.Rows-1-len(v.events), 4))
	for _, e := range v.events {
		lines = append(lines, text.OneLine(text.Plain(e, d.Times), width))
	}
	if len(lines) > 0 {
		d.Redraw(lines)
	}
}

// State returns the watched part of the job's state.
func (w WatchedJob) State() JobState {
	return JobState{Job: job.Job{
		ID: w.ID, Type: w.Type, Title: w.Title, Status: w.Status, Lane: w.Lane, ScheduleAt: w.ScheduleAt, WalkedAt: w.WalkedAt,
		RecalledAt: w.RecalledAt, Cursor: w.Cursor,
		ChannelsRead: w.ChannelsRead, ChannelsTotal: w.ChannelsTotal, RowsWritten: w.RowsWritten, Skipped: w.Skipped,
		Throttle: w.Throttle, ThrottleDetail: w.ThrottleDetail, AwaitsApprovalSince: w.AwaitsSince,
	}, Messages: w.Messages}
}

// WalkLine returns the progress of the walk.
func (w WatchedJob) WalkLine() text.Line {
	if w.Status == job.Pending && w.Cursor == "" {
		return text.Sprintf("due %s", w.ScheduleAt)
	}
	j := w.State().Job
	done := WalkDone(j)
	if _, known := j.Total(); known && w.Status == job.Running {
		done += text.PaceText(w.KeysPerSecond, operation.SecondsSpan(w.SecondsLeft))
	}
	return text.Sprintf("%s; %s read, %s", done, text.Counted(w.ChannelsRead, "channel"), text.Counted(w.RowsWritten, "row"))
}

// DeliveryText returns the progress of the delivery.
func (w WatchedJob) DeliveryText() string {
	line := "100%"
	if w.Messages.Waiting > 0 {
		line = Percent(w.State().Settled(), w.Messages.Messages)
		if !w.AtRest {
			line += text.PaceText(w.SentPerSecond, operation.SecondsSpan(w.DeliveryLeft))
		}
	}
	return line + "; " + MessagesText(w.Messages)
}

// line returns the status and the progress of the job.
func (w WatchedJob) line() text.Line {
	s := w.State()
	status := s.marked(text.Status(w.Status))
	if w.AwaitsSince != nil {
		status = s.Badge()
	}
	line := text.Sprintf("%s: ", jobRef(s.Job))
	switch {
	case w.Delivering:
		line = text.Sprintf("%s%s %s", line, s.marked(text.Status("DELIVERING")), w.DeliveryText())
	case w.Messages.Messages == 0:
		line = text.Sprintf("%s%s, %s", line, status, w.WalkLine())
	case w.Status == job.Processed:
		line = text.Sprintf("%s%s, %s", line, status, MessagesText(w.Messages))
	default:
		line = text.Sprintf("%s%s, %s, delivery %s", line, status, w.WalkLine(), w.DeliveryText())
	}
	if why := w.Waits(); why != nil {
		line = text.Sprintf("%s; %s", line, why)
	}
	return line
}

// Waits returns the reason why messages are not sent, and the next step. It is empty while they are sent.
func (w WatchedJob) Waits() text.Line {
	if w.AwaitsSince != nil {
		return text.Line{approvalStep(w.ID)}
	}
	if len(w.Waiting()) == 0 {
		return nil
	}
	return delivery.Standstill{Why: w.Why, Remedy: w.Remedy}.Text()
}

// Waiting returns the reason why messages are not sent, without the next step. It is empty while they are
// sent.
func (w WatchedJob) Waiting() text.Line {
	if w.Messages.Waiting == 0 || w.SentPerSecond != nil && *w.SentPerSecond >= lifecycle.Moving {
		return nil
	}
	return w.Why
}

// screen renders jobs for a terminal of this size: some lines for each, and the number of omitted jobs.
func screen(times text.Times, jobs []WatchedJob, width, height int) []string {
	var all []string
	for i, one := range jobs {
		block := one.block(times, width)
		room := height - len(all)
		if i < len(jobs)-1 {
			room-- // for the number of omitted jobs
		}
		if len(block) > room && i > 0 {
			return append(all,
				text.OneLine(fmt.Sprintf("%s omitted; use a taller terminal, or name the jobs to watch",
					text.Counted(int64(len(jobs)-i), "job")), width))
		}
		all = append(all, block...)
	}
	return all
}

// block renders one job for a terminal.
func (w WatchedJob) block(times text.Times, width int) []string {
	s := w.State()
	size := max(10, min(24, width/5))
	row := func(name string, part, whole int64, line string) string {
		return text.OneLine(fmt.Sprintf("  %-8s %s %s", name, text.Bar(part, whole, size), line), width)
	}
	lines := []string{text.OneLine(fmt.Sprintf("%s: %s, %s", jobLabel(s.Job), s.Badge(), w.Title), width)}
	read := w.ChannelsRead
	total, _ := s.Total()
	if w.Status == job.Processed {
		read, total = 1, 1
	}
	lines = append(lines, row("walk", read, total, text.Plain(w.WalkLine(), times)))
	if w.Messages.Messages > 0 {
		lines = append(lines, row("delivery", s.Settled(), w.Messages.Messages, w.DeliveryText()))
	}
	if w.Throttle != "" {
		lines = append(lines, text.OneLine("  slowed   "+ThrottledBy(s.Job), width))
	}
	if why := w.Waits(); why != nil {
		lines = append(lines, text.OneLine("  waits    "+text.Plain(why, times), width))
	}
	return lines
}
