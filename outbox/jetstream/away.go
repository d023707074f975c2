package jetstream

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"
)

// refused reports an error that no call returns, but only the connection: the server refuses the login, or
// the login lacks a permission. Callers report all other errors.
func refused(err error) bool {
	for _, of := range []error{
		nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired, nats.ErrPermissionViolation,
	} {
		if errors.Is(err, of) {
			return true
		}
	}
	return false
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
