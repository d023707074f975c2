package lifecycle

import (
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// sayEvery is how often an outage is said at the most.
const sayEvery = time.Minute

// Outage is the one voice of all loops that share it about a database that does not
// answer: a warning when it goes, one for each minute that it stays away, and one line when
// it is back, with how long it was away. What is tried meanwhile is logged at debug. An
// outage that begins within a minute of a warning is silent until the minute is over. It is
// safe for concurrent use; nil says nothing.
type Outage struct {
	log  zerolog.Logger
	away func(error) bool

	mu     sync.Mutex
	since  time.Time // zero: it answers
	failed time.Time // the last try that failed
	said   time.Time // the last warning
	told   bool      // this outage was said
	seen   int64     // outages so far
}

// NewOutage returns an Outage; away reports whether an error means that the database did
// not answer.
func NewOutage(log zerolog.Logger, away func(error) bool) *Outage {
	return &Outage{log: log, away: away}
}

// Tried takes note of what came of a try that began then, and reports whether nothing is
// left to log: it succeeded, or the Outage speaks of its error. Only a try that began after
// the last one that failed ends an outage; began is zero where there is nothing to tell of
// a success. What a stop has cut short must not be given.
func (o *Outage) Tried(began time.Time, err error) bool {
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

// Seen returns how many outages began so far, and since when the database does not answer;
// zero: it does.
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
	if o.said.IsZero() || now.Sub(o.said) >= sayEvery {
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
