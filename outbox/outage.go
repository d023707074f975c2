package outbox

import (
	"sync"
	"time"

	"github.com/rs/zerolog"
)

const (
	// refusalRepeats is the interval at which a refusal of a carrier is logged again.
	refusalRepeats = time.Minute
	// lateError is the longest delay of an error of a call that began before the carrier answered
	// again. Such an error is ignored: if the server is unreachable, the next call fails too.
	lateError = time.Second
)

// CarrierOutage logs once that a carrier's server is unreachable, and once that it is back, whichever part of
// the process notices. It is safe for concurrent use.
type CarrierOutage struct {
	log     zerolog.Logger
	away    func(error) bool
	refuses func(error) bool

	mu       sync.Mutex
	gone     bool
	answered time.Time // time of the last success
	refused  time.Time // time of the last logged refusal
}

// NewCarrierOutage returns the outage of a transport. away reports whether an error means that the server is
// unreachable; refuses, whether another error is logged, once a minute.
func NewCarrierOutage(log zerolog.Logger, transport string, away, refuses func(error) bool) *CarrierOutage {
	return &CarrierOutage{log: log.With().Str("transport", transport).Logger(), away: away, refuses: refuses}
}

// Observe records the result of a call that the server answers, and returns it.
func (o *CarrierOutage) Observe(err error) error {
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
	case o.refuses(err) && time.Since(o.refused) > refusalRepeats:
		o.refused = time.Now()
		o.log.Error().Err(err).Msg("the carrier returns errors")
	}
	return err
}

// Disconnected records that the connection was lost, which is never a late error.
func (o *CarrierOutage) Disconnected(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.begins(err)
}

func (o *CarrierOutage) begins(err error) {
	if !o.gone {
		o.gone = true
		o.log.Warn().Err(err).Msg("the carrier is away")
	}
}

// Lasts reports whether the server is unreachable, as far as known.
func (o *CarrierOutage) Lasts() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.gone
}
