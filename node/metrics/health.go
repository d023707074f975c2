package metrics

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Health is what a process knows of its own health. It is safe for concurrent use, and none
// of its methods waits for anything.
type Health struct {
	patience time.Duration // how old the last look may be

	mu       sync.Mutex
	loops    []*loop
	stopping bool
	tried    time.Time // when the last look at the database ended; zero: none has
	looked   time.Time // when the last look at the database succeeded; zero: none did
	failed   bool      // the last one did not
	problem  string    // what the last one that succeeded found wrong
}

// loop is one of the process's.
type loop struct {
	name           string
	running, ended bool // ended: and nobody told it to
}

// NewHealth returns the Health of a process that looks at its database every so often.
func NewHealth(every time.Duration) *Health { return &Health{patience: 2*every + lookTimeout} }

// Loop returns run, the state of which counts from now on.
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

// Stop says that the process is told to end.
func (h *Health) Stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopping = true
}

// Looked says what came of a look at the database that ended then. problem is what stands in
// the way of using it, for people; "": nothing.
func (h *Health) Looked(at time.Time, problem string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tried = at
	if h.failed = err != nil; err == nil {
		h.looked, h.problem = at, problem
	}
}

// Live returns why the process should be started again, one line each; none: it lives. A look
// ends within lookTimeout, whatever the database does: where none has for much longer, the
// process hangs.
func (h *Health) Live(now time.Time) (problems []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.loops {
		if l.ended && !h.stopping {
			problems = append(problems, fmt.Sprintf("loop %s has ended", l.name))
		}
	}
	if age := now.Sub(h.tried); !h.tried.IsZero() && !h.stopping && age > hangs*h.patience {
		problems = append(problems, fmt.Sprintf("nothing has looked at the database for %s: the process hangs", age.Round(time.Second)))
	}
	return problems
}

// hangs is after how many times the patience a process hangs in which nobody looks.
const hangs = 3

// Ready returns why the process does not do its work now, one line each; none: it does.
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
	switch age := now.Sub(h.looked); {
	case h.looked.IsZero():
		problems = append(problems, "the database has not answered yet")
	case h.failed, age > h.patience:
		problems = append(problems, fmt.Sprintf("the database answered last %s ago", age.Round(time.Second)))
	case h.problem != "":
		problems = append(problems, h.problem)
	}
	return problems
}
