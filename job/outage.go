package job

import (
	"errors"
	"time"

	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/internal/lifecycle"
)

// Outage is one voice about a database that does not answer, for all loops that share it:
// a Runner, a relay and what fires schedules in one process. It warns when the database
// goes and once for each minute in which it stays away, and says when it is back, and after
// how long. Each of them has one of its own unless it is given one.
type Outage = lifecycle.Outage

// NewOutage returns an Outage that speaks of ErrUnreachable.
func NewOutage(log zerolog.Logger) *Outage {
	return lifecycle.NewOutage(log, func(err error) bool { return errors.Is(mapError(err), ErrUnreachable) })
}

// WithOutage has others speak of a database that does not answer as well, with one voice.
func WithOutage(o *Outage) Option { return func(r *Runner) { r.outage = o } }

// quietly is the level of what a run says of an error beside the Outage, which does not
// speak of a single statement that was slow.
func (r *Runner) quietly(err error) zerolog.Level {
	if !errors.Is(mapError(err), errNoAnswer) && r.outage.Observe(time.Time{}, err) {
		return zerolog.DebugLevel
	}
	return zerolog.WarnLevel
}
