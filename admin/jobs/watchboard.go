package jobs

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/rate"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// board is what a person sees of a watch.
type board struct {
	said    map[int64]string // the last line about each job in local time, where there is no terminal
	follows bool             // what is not told of any more stays on the screen
	kept    []WatchedJob     // that are on the screen, if so
	idle    bool             // it was said last that nothing is under way
}

func newBoard(follows bool) *board {
	return &board{said: make(map[int64]string), follows: follows}
}

// keep adds what was shown before. Of more than one screen has, what is at rest goes first, the
// oldest before others.
func (b *board) keep(jobs []WatchedJob) []WatchedJob {
	if !b.follows {
		return jobs
	}
	for _, old := range b.kept {
		if !slices.ContainsFunc(jobs, func(j WatchedJob) bool { return j.ID == old.ID }) {
			jobs = append(jobs, old)
		}
	}
	slices.SortFunc(jobs, func(x, y WatchedJob) int { return cmp.Compare(x.ID, y.ID) })
	for len(jobs) > watchMost {
		oldest := max(0, slices.IndexFunc(jobs, func(j WatchedJob) bool { return j.AtRest }))
		jobs = slices.Delete(jobs, oldest, oldest+1)
	}
	b.kept = slices.Clone(jobs)
	return jobs
}

// tell shows a look: in place of the one before on a terminal, elsewhere a line for each job
// that changed.
func (b *board) tell(p *text.Doc, jobs []WatchedJob) {
	jobs = b.keep(jobs)
	was := b.idle
	b.idle = len(jobs) == 0
	switch {
	case b.idle && was:
	case b.idle:
		p.Note("no job runs or is being delivered; `belfry jobs list` shows all")
	case p.Columns > 0:
		p.Redraw(boardLines(p.Times, jobs, max(p.Columns-1, 20), max(p.Rows-1, 4)))
	default:
		for _, one := range jobs {
			// What is so many minutes ago is another text at each look, and no news.
			if said := one.line(text.Times{}); said != b.said[one.ID] {
				p.Printf("%s\n", one.line(p.Times))
				b.said[one.ID] = said
			}
		}
	}
}

// State is as much of the job's state as is watched.
func (w WatchedJob) State() JobState {
	return JobState{Job: job.Job{
		ID: w.ID, Type: w.Type, Title: w.Title, Status: w.Status, ScheduleAt: w.ScheduleAt, WalkedAt: w.WalkedAt, Cursor: w.Cursor,
		ChannelsRead: w.ChannelsRead, ChannelsTotal: w.ChannelsTotal, RowsWritten: w.RowsWritten, Skipped: w.Skipped,
		Throttle: w.Throttle, ThrottleDetail: w.ThrottleDetail, AwaitsApprovalSince: w.AwaitsSince,
	}, Messages: w.Messages}
}

// WalkText is how far the walk is.
func (w WatchedJob) WalkText(times text.Times) string {
	if w.Status == job.Pending && w.Cursor == "" {
		return "due " + times.Clock(w.ScheduleAt)
	}
	j := w.State().Job
	line := WalkDone(j)
	if _, known := j.Total(); known && w.Status == job.Running {
		line += text.PaceText(w.KeysPerSecond, operation.SecondsSpan(w.SecondsLeft))
	}
	return line + "; " + text.Counted(w.ChannelsRead, "channel") + " read, " + text.Counted(w.RowsWritten, "row")
}

// DeliveryText is how far the delivery is.
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

// line is one line about the job.
func (w WatchedJob) line(times text.Times) string {
	s := w.State()
	line := JobLabel(s.Job) + ": " + string(w.Status) + s.Marks()
	if w.AwaitsSince != nil {
		line = JobLabel(s.Job) + ": " + s.Shown() + s.Marks()
	}
	switch {
	case w.Delivering:
		line = JobLabel(s.Job) + ": DELIVERING" + s.Marks() + " " + w.DeliveryText()
	case w.Messages.Messages == 0:
		line += ", " + w.WalkText(times)
	case w.Status == job.Processed:
		line += ", " + MessagesText(w.Messages)
	default:
		line += ", " + w.WalkText(times) + ", delivery " + w.DeliveryText()
	}
	if why := w.Waits(); why != "" {
		line += "; " + why
	}
	return text.OneLine(line, 500)
}

// Waits is why messages stay where they are; "" when they do not.
func (w WatchedJob) Waits() string {
	if w.AwaitsSince != nil {
		return strings.TrimPrefix(NextStep(w.State().Job), "; ")
	}
	if w.Messages.Waiting == 0 || len(w.Why) == 0 || w.SentPerSecond != nil && *w.SentPerSecond >= rate.Moving {
		return ""
	}
	return delivery.Standstill{Why: w.Why, Remedy: w.Remedy}.Text().String()
}

// boardLines are jobs for a terminal of this size: a block of lines for each, and how many
// there was no room for.
func boardLines(times text.Times, jobs []WatchedJob, width, height int) []string {
	var all []string
	for i, one := range jobs {
		block := one.block(times, width)
		room := height - len(all)
		if i < len(jobs)-1 {
			room-- // for saying that there are more
		}
		if len(block) > room && i > 0 {
			return append(all, text.OneLine(fmt.Sprintf("and %s more; a taller terminal shows them, or name those to watch", text.Counted(int64(len(jobs)-i), "job")), width))
		}
		all = append(all, block...)
	}
	return all
}

// block is what the terminal shows of one job.
func (w WatchedJob) block(times text.Times, width int) []string {
	s := w.State()
	size := max(10, min(24, width/5))
	row := func(name string, part, whole int64, line string) string {
		return text.OneLine(fmt.Sprintf("  %-8s %s %s", name, text.Bar(part, whole, size), line), width)
	}
	lines := []string{text.OneLine(JobLabel(s.Job)+": "+s.Shown()+s.Marks()+", "+w.Title, width)}
	read := w.ChannelsRead
	total, _ := s.Total()
	if w.Status == job.Processed {
		read, total = 1, 1
	}
	lines = append(lines, row("walk", read, total, w.WalkText(times)))
	if w.Messages.Messages > 0 {
		lines = append(lines, row("delivery", s.Settled(), w.Messages.Messages, w.DeliveryText()))
	}
	if w.Throttle != "" {
		lines = append(lines, text.OneLine("  slowed   "+ThrottledBy(s.Job), width))
	}
	if why := w.Waits(); why != "" {
		lines = append(lines, text.OneLine("  waits    "+why, width))
	}
	return lines
}
