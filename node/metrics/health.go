package metrics

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Health tracks the health of a process. It is safe for concurrent use, and its methods do not block.
type Health struct {
	patience time.Duration // maximum age of the last poll

	mu        sync.Mutex
	loops     []*loop
	stopping  bool
	tried     time.Time // end of the last poll; zero before the first
	succeeded time.Time // end of the last successful poll; zero before the first
	failed    bool      // whether the last poll failed
	problem   string    // of the last successful poll
}

// loop is a loop of the process.
type loop struct {
	name           string
	running, ended bool // ended without a stop
}

// NewHealth returns the Health of a process that polls its database at an interval of every.
func NewHealth(every time.Duration) *Health { return &Health{patience: 2*every + pollTimeout} }

// Loop registers a loop and returns run with its state tracked.
func (h *Health) Loop(name string, run func(context.Context) error) func(context.Context) error {
	l := &loop{name: name}
	h.mu.Lock()
	h.loops = append(h.loops, l)
	h.mu.Unlock()
	set := func(running, ended bool) {
		h.mu.Lock()
		defer h.mu.Unlock()
		l.running, l.ended = running, ended
	}
	return func(ctx context.Context) error {
		set(true, false)
		defer func() { set(false, ctx.Err() == nil) }()
		return run(ctx)
	}
}

// Stop marks the process as stopping.
func (h *Health) Stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopping = true
}

// Polled records a poll of the database that ended at the time at. problem is the reason why the
// database cannot be used, for operators, or "".
func (h *Health) Polled(at time.Time, problem string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tried = at
	if h.failed = err != nil; err == nil {
		h.succeeded, h.problem = at, problem
	}
}

// Live returns the reasons to restart the process, one line each; none if it is healthy. A poll ends
// within pollTimeout even if the database does not respond. The process hangs if no poll has ended
// for much longer.
func (h *Health) Live(now time.Time) (problems []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.loops {
		if l.ended && !h.stopping {
			problems = append(problems, fmt.Sprintf("loop %s has ended", l.name))
		}
	}
	if age := now.Sub(h.tried); !h.tried.IsZero() && !h.stopping && age > hangs*h.patience {
		problems = append(problems, fmt.Sprintf("no poll of the database has ended for %s: the process hangs", age.Round(time.Second)))
	}
	return problems
}

// hangs is the multiple of patience after which a process without polls is considered hanging.
const hangs = 3

// Ready returns the reasons why the process is not ready, one line each; none if it is.
func (h *Health) Ready(now time.Time) (problems []string) {
	problems = h.Live(now)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopping {
		problems = append(problems, "the process is stopping")
	}
	if waiting := slices.ContainsFunc(h.loops, func(l *loop) bool { return !l.running && !l.ended }); waiting || len(h.loops) == 0 {
		problems = append(problems, "the process is starting")
	}
	switch age := now.Sub(h.succeeded); {
	case h.succeeded.IsZero():
		problems = append(problems, "the database has not answered yet")
	case h.failed, age > h.patience:
		problems = append(problems, fmt.Sprintf("the database answered last %s ago", age.Round(time.Second)))
	case h.problem != "":
		problems = append(problems, h.problem)
	}
	return problems
}
