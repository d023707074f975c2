package main

import (
	"sync"
	"time"

	"github.com/belfryhq/belfry/admin/jobs"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// progress shows the progress of a run: on a terminal one line that is redrawn, elsewhere a line every
// text.PlainEvery for each job. It is safe for concurrent use.
type progress struct {
	*text.Progress

	now   func() time.Time
	mu    sync.Mutex
	shown map[int64]time.Time
	drawn time.Time // of the live line; zero without one
}

// live returns the live line of standard error.
func (x *streams) live() *text.Progress {
	fd, is := terminal(x.stderr, x.environ)
	if !is {
		return text.NewProgress(x.stderr, nil)
	}
	return text.NewProgress(x.stderr, func() int { columns, _ := sizeOf(fd); return columns })
}

// ticker returns the progress of a long command.
func (x *streams) ticker() *text.Ticker { return text.NewTicker(x.live(), x.now) }

// newProgress writes to standard error.
func newProgress(x *streams) *progress {
	return &progress{Progress: x.live(), now: x.now, shown: make(map[int64]time.Time)}
}

// observe is the runner's observer.
func (p *progress) observe(u job.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	switch {
	case u.Event != jobs.EventChunk:
		p.shown[u.Job.ID], p.drawn = now, time.Time{}
		p.Print(jobs.ProgressLine(u))
		if u.Job.Status != job.Running {
			delete(p.shown, u.Job.ID)
		}
	case p.OnTerminal():
		if now.Sub(p.drawn) >= text.RedrawEvery {
			p.drawn = now
			p.Line(jobs.ProgressLine(u))
		}
	case now.Sub(p.shown[u.Job.ID]) >= text.PlainEvery:
		p.shown[u.Job.ID] = now
		p.Line(jobs.ProgressLine(u))
	}
}
