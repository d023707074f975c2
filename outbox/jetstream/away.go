package jetstream

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"
)

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
