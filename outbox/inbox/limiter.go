package inbox

import (
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
