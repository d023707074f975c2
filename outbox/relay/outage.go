package relay

import (
	"sync"
	"time"

	"github.com/rs/zerolog"
)

const (
	// sayAgain is how long a refusal of a carrier is not said again.
	sayAgain = time.Minute
	// lateError is how long an error may be on its way: of a call that began before the carrier
	// answered again, it tells nothing new. What is really away is noticed by the call after.
	lateError = time.Second
)

// carrierError is an error of the carrier, and not of the database.
type carrierError struct{ error }

func (e carrierError) Unwrap() error { return e.error }

// claimError is an error of the database that a carrier's Receive returns.
type claimError struct{ error }

func (e claimError) Unwrap() error { return e.error }

// Outage says once that a carrier's server is away, and once that it is back, whoever of the
// process notices. It may be used from any goroutine.
type Outage struct {
	log     zerolog.Logger
	away    func(error) bool
	refuses func(error) bool

	mu       sync.Mutex
	gone     bool
	answered time.Time // when it did what it was asked, last
	refused  time.Time // when was said last that it is there and refuses something
}

// NewOutage returns the outage of the transport of that name. away reports that an error means
// that the server does not answer; refuses, that another is to be said, once a minute.
func NewOutage(log zerolog.Logger, transport string, away, refuses func(error) bool) *Outage {
	return &Outage{log: log.With().Str("transport", transport).Logger(), away: away, refuses: refuses}
}

// Tried notes what came of a call that the server answers, and returns it.
func (o *Outage) Tried(err error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case err == nil:
		o.answered = time.Now()
		if o.gone {
			o.gone = false
			o.log.Info().Msg("the carrier is back")
		}
	case o.away(err):
		if time.Since(o.answered) > lateError {
			o.begins(err)
		}
	case o.refuses(err) && time.Since(o.refused) > sayAgain:
		o.refused = time.Now()
		o.log.Error().Err(err).Msg("the carrier refuses what it is asked")
	}
	return err
}

// Disconnected notes that the connection was lost, which is never late.
func (o *Outage) Disconnected(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.begins(err)
}

func (o *Outage) begins(err error) {
	if !o.gone {
		o.gone = true
		o.log.Warn().Err(err).Msg("the carrier is away")
	}
}

// Lasts reports whether the server is away, as far as is known.
func (o *Outage) Lasts() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.gone
}
