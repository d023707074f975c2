package job

import (
	"errors"
	"time"

	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/internal/lifecycle"
)

// Outage logs that the database is unreachable, once for all loops of a process that share it, such as a
// Runner, a relay and a Firer. It warns at the beginning and every minute, and logs the end with the
// duration. Each loop has its own unless one is passed.
type Outage = lifecycle.Outage

// NewOutage returns an Outage for ErrUnreachable.
func NewOutage(log zerolog.Logger) *Outage {
	return lifecycle.NewOutage(log, func(err error) bool { return errors.Is(mapError(err), ErrUnreachable) })
}

// WithOutage shares an Outage with other loops of the process.
func WithOutage(o *Outage) Option { return func(r *Runner) { r.outage = o } }

// quietly returns the log level for an error of a run: debug if the Outage logs it, otherwise warn. The
// Outage does not log a single slow statement.
func (r *Runner) quietly(err error) zerolog.Level {
	if !errors.Is(mapError(err), errNoAnswer) && r.outage.Observe(time.Time{}, err) {
		return zerolog.DebugLevel
	}
	return zerolog.WarnLevel
}
