package api

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/errkind"
	"github.com/belfryhq/belfry/internal/text"
)

// Limits of what is done at once for one identity. What stops something has turns, and
// connections, of its own.
const (
	ownTurns = 4               // of one identity, of the six connections that a process has for all
	turnTime = 5 * time.Second // that a request waits for its turn
)

// turns bounds how much is looked up and changed at once for one identity, so that whoever asks a
// lot leaves connections to others. Those that wait have their turn in the order in which they came.
type turns struct {
	own    int
	within time.Duration

	mu sync.Mutex
	by map[string]*ownTurn // of those who look or wait
}

// ownTurn is what one identity has.
type ownTurn struct {
	slots chan struct{}
	users int // that hold one or wait for it
}

// newTurns leaves a third of a pool's connections to others, one at the least; of one connection
// it leaves none.
func newTurns(pool *pgxpool.Pool) *turns {
	t := &turns{own: ownTurns, within: turnTime, by: make(map[string]*ownTurn)}
	if pool != nil {
		t.own = max(1, min(t.own, 2*int(pool.Config().MaxConns)/3))
	}
	return t
}

// newStopTurns leaves connections of the reserve to others.
func newStopTurns() *turns {
	return &turns{own: 1, within: turnTime, by: make(map[string]*ownTurn)}
}

// enter waits for a turn of somebody's. leave gives it back; it is nil if ctx ended first.
func (t *turns) enter(ctx context.Context, name string) (leave func()) {
	t.mu.Lock()
	o := t.by[name]
	if o == nil {
		o = &ownTurn{slots: make(chan struct{}, t.own)}
		t.by[name] = o
	}
	o.users++
	t.mu.Unlock()
	gone := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if o.users--; o.users == 0 {
			delete(t.by, name)
		}
	}
	select {
	case o.slots <- struct{}{}:
		return func() { <-o.slots; gone() }
	case <-ctx.Done():
		gone()
		return nil
	}
}

// soon is enter with a limit to the wait: the error is a *RefusedError.
func (t *turns) soon(ctx context.Context, name string) (leave func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, t.within)
	defer cancel()
	if leave := t.enter(ctx, name); leave != nil {
		return leave, nil
	}
	text := fmt.Sprintf("too much is asked for at once; allowed: %s of one identity, and others wait for %s", text.Counted(int64(t.own), "request"), t.within)
	return nil, refused(http.StatusTooManyRequests, errkind.Unavailable, text).again(retryAfter)
}

// streamTurn is the turn of a stream, which has none while its reader takes a piece. It is for one
// goroutine at a time.
type streamTurn struct {
	turns *turns
	name  string
	free  bool // it needs none

	leave func() // nil: it has none
}

// begin is soon.
func (s *streamTurn) begin(ctx context.Context) (err error) {
	if !s.free {
		s.leave, err = s.turns.soon(ctx, s.name)
	}
	return err
}

// end gives the turn back, if there is one.
func (s *streamTurn) end() {
	if s.leave != nil {
		s.leave()
		s.leave = nil
	}
}

// sending does something without the turn, and waits for the next one.
func (s *streamTurn) sending(ctx context.Context, do func() error) error {
	if s.free {
		return do()
	}
	s.end()
	if err := do(); err != nil {
		return err
	}
	if s.leave = s.turns.enter(ctx, s.name); s.leave == nil {
		return ctx.Err()
	}
	return nil
}
