package jetstream

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"
)

// lateError is how long an error may be on its way here: of a call that began before the streams
// answered again, it tells nothing new. What is really away is noticed by the call after.
const lateError = time.Second

// outage says once that the carrier is away, and once that it is back, whoever of the process
// notices. It may be used from any goroutine.
type outage struct {
	log zerolog.Logger

	mu       sync.Mutex
	gone     bool
	answered time.Time // when a stream did what it was asked, last
}

// tried notes what came of a call that the streams answer, and returns it.
func (o *outage) tried(err error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case err == nil:
		o.answered = time.Now()
		if o.gone {
			o.log.Info().Str("transport", name).Msg("the carrier is back")
		}
		o.gone = false
	case away(err) && time.Since(o.answered) > lateError:
		o.say(err)
	}
	return err
}

// disconnected notes that the carrier is away. Without an error the connection was closed on
// purpose.
func (o *outage) disconnected(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil {
		o.say(err)
	}
}

// say says that the carrier is away, unless it was said.
func (o *outage) say(err error) {
	if o.gone {
		return
	}
	o.gone = true
	o.log.Warn().Err(err).Str("transport", name).Msg("the carrier is away")
}

// away reports an error of a server that does not answer, or of a cluster without a leader.
func away(err error) bool {
	for _, of := range []error{
		context.DeadlineExceeded, nats.ErrTimeout, nats.ErrNoResponders, nats.ErrConnectionClosed, nats.ErrDisconnected,
		nats.ErrConnectionReconnecting, nats.ErrReconnectBufExceeded, nats.ErrNoServers,
	} {
		if errors.Is(err, of) {
			return true
		}
	}
	return false
}
