package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/belfryhq/belfry/admin/jobs"

	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

const (
	redrawEvery = 100 * time.Millisecond // of the live line
	plainEvery  = 2 * time.Second        // between lines about one job
)

// Events of job.Progress that are not entries of a timeline.
const (
	eventChunk = "chunk"
	eventLost  = "lost"
)

// progress shows the progress of a run: on a terminal one line that is redrawn, elsewhere a line every
// plainEvery. Logs pass through it, so that they do not break the live line. It is safe for concurrent
// use.
type progress struct {
	mu    sync.Mutex
	out   io.Writer
	now   func() time.Time
	width func() int // of the terminal; nil if there is none
	live  string     // the line on the terminal, not ended yet
	shown map[int64]time.Time
	drawn time.Time
}

// newProgress writes to standard error.
func newProgress(x *streams) *progress {
	p := &progress{out: x.stderr, now: x.now, shown: make(map[int64]time.Time)}
	if fd, ok := terminal(x.stderr, x.environ); ok {
		p.width = func() int { columns, _ := sizeOf(fd); return columns }
	}
	return p
}

// observe is the runner's observer.
func (p *progress) observe(u job.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	switch {
	case u.Event != eventChunk:
		p.shown[u.Job.ID] = now
		p.print(transition(u))
		if u.Job.Status != job.Running {
			delete(p.shown, u.Job.ID)
		}
	case p.width != nil:
		if p.live == "" || now.Sub(p.drawn) >= redrawEvery {
			p.drawn = now
			p.draw(text.OneLine(advance(u), max(p.width()-1, 20)))
		}
	case now.Sub(p.shown[u.Job.ID]) >= plainEvery:
		p.shown[u.Job.ID] = now
		p.print(advance(u))
	}
}

// Write writes logs above the live line.
func (p *progress) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	live := p.live
	p.draw("")
	n, err := p.out.Write(b)
	p.draw(live)
	return n, err
}

// line shows a line: on a terminal in place of the last one, elsewhere below it.
func (p *progress) line(value string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.width == nil {
		p.print(value)
		return
	}
	p.draw(text.OneLine(value, max(p.width()-1, 20)))
}

// end removes the live line.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.draw("")
}

// print writes a line that stays.
func (p *progress) print(line string) {
	p.draw("")
	_, _ = io.WriteString(p.out, line+"\n")
}

// draw replaces the live line, or removes it if line is empty.
func (p *progress) draw(line string) {
	if p.width == nil || line == p.live {
		return
	}
	// Overwriting and blanking the rest flickers less than erasing first.
	rest := utf8.RuneCountInString(p.live) - utf8.RuneCountInString(line)
	_, _ = io.WriteString(p.out, "\r"+line+strings.Repeat(" ", max(rest, 0)))
	if line == "" {
		_, _ = io.WriteString(p.out, "\r")
	}
	p.live = line
}

// advance renders the progress of a running job as one line.
func advance(u job.Progress) string {
	j := u.Job
	line := jobs.JobLabel(j) + ": " + walked(j)
	if u.KeysPerSecond > 0 {
		line += fmt.Sprintf(", %s/s", text.Grouped(int64(u.KeysPerSecond)))
	}
	if u.ETA >= 0 {
		line += ", " + text.Short(u.ETA) + " left"
	}
	return line
}

// walked renders the number of channels and rows of a job.
func walked(j job.Job) string {
	line := text.Grouped(j.ChannelsRead)
	if total, known := j.Total(); known {
		line += fmt.Sprintf(" / %s channels, %s", text.Grouped(total), jobs.WalkDone(j))
	} else {
		line += " channels"
	}
	return line + ", " + text.Counted(j.RowsWritten, "row")
}

// transition renders an event of a job as one line.
func transition(u job.Progress) string {
	j := u.Job
	from := "from the start"
	if j.Cursor != "" {
		from = "from cursor " + j.Cursor
	}
	switch u.Event {
	case job.EventClaimed:
		return jobs.JobLabel(j) + ": claimed, " + from + ": " + text.OneLine(j.Title, 60)
	case job.EventResumed:
		return jobs.JobLabel(j) + ": taken over, its run was stale, " + from
	case job.EventFinished:
		return jobs.JobLabel(j) + ": processed, " + text.Counted(j.RowsWritten, "row") + " in " + text.Counted(j.Chunks, eventChunk) + took(j)
	case job.EventAborted:
		return jobs.JobLabel(j) + ": aborted at cursor " + text.OrNone(j.Cursor) + ", " + text.Counted(j.RowsWritten, "row") + " written" + jobs.NextStep(j).String()
	case job.EventFailed:
		return jobs.JobLabel(j) + ": failed at cursor " + text.OrNone(j.Cursor) + ": " + text.OneLine(j.LastError, 500) + jobs.NextStep(j).String()
	case job.EventInterrupted:
		return jobs.JobLabel(j) + ": handed back at cursor " + text.OrNone(j.Cursor) + ", " + text.Counted(j.RowsWritten, "row") + " written; the next run resumes there"
	case job.EventPreempted:
		return jobs.JobLabel(j) + ": handed back at cursor " + text.OrNone(j.Cursor) + " for a more urgent job of lane " + j.Lane
	case job.EventLanePaused:
		return jobs.JobLabel(j) + ": handed back at cursor " + text.OrNone(j.Cursor) + ", lane " + j.Lane + " was paused; `belfry lanes resume " + j.Lane + "` opens it"
	case job.EventExpired:
		return jobs.JobLabel(j) + ": expired, it did not start in time" + jobs.NextStep(j).String()
	case job.EventThrottled:
		return jobs.JobLabel(j) + ": slowed down, " + jobs.ThrottledBy(j)
	case job.EventReleased:
		return jobs.JobLabel(j) + ": at full speed again"
	case eventLost:
		return jobs.JobLabel(j) + ": this run is over, another runner has the job"
	}
	return jobs.JobLabel(j) + ": " + u.Event
}

// took renders the time from the first claim of a job to its end, pauses included.
func took(j job.Job) string {
	if j.StartedAt == nil || j.FinishedAt == nil {
		return ""
	}
	return ", " + text.Short(j.FinishedAt.Sub(*j.StartedAt))
}
