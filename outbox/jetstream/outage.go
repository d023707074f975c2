package jetstream

import (
	"context"
	"errors"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"
)

// outage says once that the carrier is away, and once that it is back, whoever of the process
// notices. It may be used from any goroutine.
type outage struct {
	log zerolog.Logger

	mu   sync.Mutex
	gone bool
}

// tried notes what came of a call that the streams answer, and returns it.
func (o *outage) tried(err error) error {
	switch {
	case err == nil:
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.gone {
			o.log.Info().Str("transport", name).Msg("the carrier is back")
		}
		o.gone = false
	case away(err):
		o.disconnected(err)
	}
	return err
}

// disconnected notes that the carrier is away. Without an error the connection was closed on
// purpose.
func (o *outage) disconnected(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err == nil || o.gone {
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
