package lifecycle

import (
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// warnInterval is the shortest time between two warnings.
const warnInterval = time.Minute

// Outage logs that the database is unreachable, once for all loops that share it: a warning at the beginning
// and every minute, and one line with the duration at the end. Failed attempts in between are logged at
// debug. If an outage begins within a minute of a warning, the next warning waits for the end of the minute.
// It is safe for concurrent use. A nil Outage logs nothing.
type Outage struct {
	log  zerolog.Logger
	away func(error) bool

	mu     sync.Mutex
	since  time.Time // zero: reachable
	failed time.Time // the last failure
	said   time.Time // the last warning
	told   bool      // a warning for this outage was logged
	seen   int64     // outages so far
}

// NewOutage returns an Outage. away reports whether an error means that the database is unreachable.
func NewOutage(log zerolog.Logger, away func(error) bool) *Outage {
	return &Outage{log: log, away: away}
}

// Observe records the result of an attempt and reports whether the caller has nothing to log, because the
// attempt succeeded or the Outage logs its error. Only a successful attempt that began after the last
// failure ends an outage; a zero began never does. Do not pass attempts that a stop has cancelled.
func (o *Outage) Observe(began time.Time, err error) bool {
	if o == nil {
		return err == nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	switch {
	case err != nil && o.away(err):
		o.fails(now, err)
		return true
	case !o.since.IsZero() && began.After(o.failed):
		o.answers(now)
	}
	return err == nil
}

// Seen returns the number of outages so far and the start of the present one, or a zero time if the database
// is reachable.
func (o *Outage) Seen() (outages int64, since time.Time) {
	if o == nil {
		return 0, time.Time{}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.seen, o.since
}

func (o *Outage) fails(now time.Time, err error) {
	if o.since.IsZero() {
		o.since, o.told = now, false
		o.seen++
	}
	o.failed = now
	level := zerolog.DebugLevel
	if o.said.IsZero() || now.Sub(o.said) >= warnInterval {
		o.said, o.told, level = now, true, zerolog.WarnLevel
	}
	o.log.WithLevel(level).Err(err).Int64("elapsed_ms", now.Sub(o.since).Milliseconds()).Msg("the database does not answer; trying again")
}

func (o *Outage) answers(now time.Time) {
	level := zerolog.DebugLevel
	if o.told {
		level = zerolog.InfoLevel
	}
	o.log.WithLevel(level).Int64("elapsed_ms", now.Sub(o.since).Milliseconds()).Msg("the database answers again")
	o.since = time.Time{}
}
