package redisdb

import (
	"context"
	"net"
	"time"
)

// dialer connects with connect and reports a failed connection as a failed write. go-redis' pool treats
// a failed dial specially: it logs to a process-wide logger, returns the error for one second without
// retrying, and starts a goroutine that may outlive Close. It returns a failed write to the caller.
func dialer(connect func(context.Context, string, string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := connect(ctx, network, address)
		if err != nil {
			return refused{err}, nil //nolint:nilerr // the connection reports it, see above
		}
		return conn, nil
	}
}

// refused is a connection that could not be established.
type refused struct{ err error }

func (r refused) Read([]byte) (int, error)       { return 0, r.err }
func (r refused) Write([]byte) (int, error)      { return 0, r.err }
func (refused) Close() error                     { return nil }
func (refused) LocalAddr() net.Addr              { return &net.UnixAddr{} }
func (refused) RemoteAddr() net.Addr             { return &net.UnixAddr{} }
func (refused) SetDeadline(time.Time) error      { return nil }
func (refused) SetReadDeadline(time.Time) error  { return nil }
func (refused) SetWriteDeadline(time.Time) error { return nil }
