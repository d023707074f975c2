package api

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/text"
)

// Limits of concurrent requests of one identity. Operations that stop something have their own limiter
// and their own connections.
const (
	maxOwn  = 4               // of the six connections of a process
	maxWait = 5 * time.Second // maximum wait of a request
	// stopReadTime is the maximum time of a read on a reserved connection.
	stopReadTime = 5 * time.Second
)

// limiter limits the concurrent requests of each identity to fewer than the pool has connections.
// Waiting requests are served in the order of their arrival.
type limiter struct {
	own    int
	of     string // whose requests own limits, for the error
	within time.Duration

	mu sync.Mutex
	by map[string]*identitySlots // identities with running or waiting requests
}

// identitySlots is the state of one identity.
type identitySlots struct {
	slots chan struct{}
	users int // requests that hold a slot or wait for one
}

// newLimiter reserves a third of the pool's connections, at least one, for other identities. A pool of
// one connection has no reserve.
func newLimiter(pool *pgxpool.Pool) *limiter {
	l := &limiter{own: maxOwn, of: "of one identity", within: maxWait, by: make(map[string]*identitySlots)}
	if pool != nil {
		l.own = max(1, min(l.own, 2*int(pool.Config().MaxConns)/3))
	}
	return l
}

// newStopLimiter returns the limiter of operations that stop something.
func newStopLimiter() *limiter {
	return &limiter{own: 1, of: "of one identity", within: maxWait, by: make(map[string]*identitySlots)}
}

// newPartLimiter returns the limiter of operations that stop a part of everything, and of the reads of pages of
// stops, of all identities together. It leaves a connection of the pool to operations with StopsAll. A pool of one connection has none
// to leave.
func newPartLimiter(pool *pgxpool.Pool) *limiter {
	l := &limiter{own: 1, of: "that stop or resume something", within: maxWait, by: make(map[string]*identitySlots)}
	if pool != nil {
		l.own = max(1, int(pool.Config().MaxConns)-1)
	}
	return l
}

// wait waits for a slot of the identity name until ctx ends. It returns nil if ctx ended first.
func (l *limiter) wait(ctx context.Context, name string) (release func()) {
	return l.join(ctx, name, math.MaxInt)
}

// join is wait for at most that many running and waiting requests of the identity; it returns nil at once to
// further requests. With most equal to own no request waits.
func (l *limiter) join(ctx context.Context, name string, most int) (release func()) {
	l.mu.Lock()
	o := l.by[name]
	if o != nil && o.users >= most {
		l.mu.Unlock()
		return nil
	}
	if o == nil {
		o = &identitySlots{slots: make(chan struct{}, l.own)}
		l.by[name] = o
	}
	o.users++
	l.mu.Unlock()
	gone := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if o.users--; o.users == 0 {
			delete(l.by, name)
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

// acquire waits for a slot for a limited time. The error is a *RefusedError.
func (l *limiter) acquire(ctx context.Context, name string) (release func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, l.within)
	defer cancel()
	if release := l.wait(ctx, name); release != nil {
		return release, nil
	}
	text := fmt.Sprintf("too many concurrent requests; allowed: %s %s; further requests wait up to %s",
		text.Counted(int64(l.own), "request"), l.of, l.within)
	return nil, refused(http.StatusTooManyRequests, db.KindUnavailable, text).again(retryAfter)
}

// streamSlot is the slot of a stream, which releases it while the client reads. It is used by one
// goroutine at a time.
type streamSlot struct {
	limiter *limiter
	name    string
	free    bool // it needs no slot

	release func() // nil without a slot
}

// begin acquires the slot.
func (s *streamSlot) begin(ctx context.Context) (err error) {
	if !s.free {
		s.release, err = s.limiter.acquire(ctx, s.name)
	}
	return err
}

// end releases the slot, if there is one.
func (s *streamSlot) end() {
	if s.release != nil {
		s.release()
		s.release = nil
	}
}

// sending runs do without the slot and then waits for a new one.
func (s *streamSlot) sending(ctx context.Context, do func() error) error {
	if s.free {
		return do()
	}
	s.end()
	if err := do(); err != nil {
		return err
	}
	if s.release = s.limiter.wait(ctx, s.name); s.release == nil {
		return ctx.Err()
	}
	return nil
}
