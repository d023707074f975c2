package inbox

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// maxTracked is the number of readers in each of the limiter's two generations. A reader who is forgotten has a full
// burst again, as after a pause of burst / rate: with the defaults that is 3 s, in which 20,000 other readers would
// have to make requests.
const maxTracked = 20_000

// limiter limits the requests of each reader. It forgets the readers that made no request since maxTracked others did.
type limiter struct {
	rate  rate.Limit
	burst int
	most  int // of a generation

	mu           sync.Mutex
	newer, older map[string]*rate.Limiter
}

func newLimiter(c Config) *limiter {
	return &limiter{rate: rate.Limit(c.RatePerSecond), burst: c.Burst, most: maxTracked, newer: make(map[string]*rate.Limiter)}
}

// take counts a request of a reader. It returns the time after which a rejected request can be repeated, or 0.
func (l *limiter) take(reader string, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	one, recent := l.newer[reader]
	if !recent {
		if one = l.older[reader]; one == nil {
			one = rate.NewLimiter(l.rate, l.burst)
		}
		if len(l.newer) >= l.most {
			l.older, l.newer = l.newer, make(map[string]*rate.Limiter)
		}
		l.newer[reader] = one
	}
	reserved := one.ReserveN(now, 1)
	wait := reserved.DelayFrom(now)
	if wait > 0 {
		reserved.CancelAt(now)
	}
	return wait
}

// Limits of the requests in flight, so that one reader, and readers whose marks wait for a lock, leave connections to
// the others.
const (
	maxInFlight = 3           // of one reader; further ones wait
	maxQueue    = time.Second // the wait of one
)

// Errors of a request that got no slot within maxQueue.
var (
	errInFlight = &limitError{"too many requests of this reader at once; allowed: " + strconv.Itoa(maxInFlight), maxQueue}
	errMarks    = errors.New("too many notifications are being marked")
)

// flights limits the requests in flight.
type flights struct {
	marks slots // the marks of all readers

	mu sync.Mutex
	by map[string]*flight
}

// flight has the limits of a reader.
type flight struct {
	all, marks slots
	users      int // requests that hold a slot or wait for one
}

type slots chan struct{}

// newFlights reserves half of the pool for requests that mark nothing.
func newFlights(c Config) *flights {
	return &flights{marks: make(slots, max(1, c.MaxConnections/2)), by: make(map[string]*flight)}
}

// enter waits for a slot of a reader. leave must be called.
func (f *flights) enter(ctx context.Context, reader string) (one *flight, leave func(), err error) {
	f.mu.Lock()
	if one = f.by[reader]; one == nil {
		one = &flight{all: make(slots, maxInFlight), marks: make(slots, 1)}
		f.by[reader] = one
	}
	one.users++
	f.mu.Unlock()
	gone := func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if one.users--; one.users == 0 {
			delete(f.by, reader)
		}
	}
	if err := one.all.take(ctx, errInFlight); err != nil {
		gone()
		return nil, nil, err
	}
	return one, func() { <-one.all; gone() }, nil
}

// mark runs do alone among the marks of its reader, which would wait for each other in the database.
func (f *flights) mark(ctx context.Context, one *flight, do func() error) error {
	if err := one.marks.take(ctx, errMarks); err != nil {
		return err
	}
	defer func() { <-one.marks }()
	if err := f.marks.take(ctx, errMarks); err != nil {
		return err
	}
	defer func() { <-f.marks }()
	return do()
}

// take waits for a slot.
func (s slots) take(ctx context.Context, late error) error {
	timer := time.NewTimer(maxQueue)
	defer timer.Stop()
	select {
	case s <- struct{}{}:
		return nil
	case <-timer.C:
		return late
	case <-ctx.Done():
		return ctx.Err()
	}
}
