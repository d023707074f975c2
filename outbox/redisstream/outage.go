package redisstream

import (
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/internal/redisdb"
)

const (
	// sayAgain is how long a refusal is not said again.
	sayAgain = time.Minute
	// lateError is how long an error may be on its way here: of a call that began before the
	// server came back, it tells nothing new. What is really away is noticed by the call after.
	lateError = time.Second
)

// outage says once that the server is away, and once that it is back, whoever of the process
// notices. It may be used from any goroutine.
type outage struct {
	log zerolog.Logger

	mu       sync.Mutex
	away     bool
	answered time.Time // when it did what it was asked, last
	refused  time.Time // when was said last that it is there and refuses something
}

// tried notes what came of a call, and returns it.
func (o *outage) tried(err error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case err == nil:
		o.answered = time.Now()
		if o.away {
			o.away = false
			o.log.Info().Str("transport", name).Msg("the carrier is back")
		}
	case redisdb.Away(err):
		if !o.away && time.Since(o.answered) > lateError {
			o.away = true
			o.log.Warn().Err(err).Str("transport", name).Msg("the carrier is away")
		}
	case !redisdb.Full(err) && time.Since(o.refused) > sayAgain:
		o.refused = time.Now()
		o.log.Error().Err(err).Str("transport", name).Msg("the carrier refuses what it is asked")
	}
	return err
}

// is reports whether the server is away, as far as is known.
func (o *outage) is() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.away
}
