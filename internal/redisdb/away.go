package redisdb

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Away reports whether an error says that the server does not answer now, or not as the one
// that is written to: it is gone, starts, hands over to another, or has no room for one more
// connection. What was sent may or may not have been done.
func Away(err error) bool {
	var network net.Error
	switch {
	case err == nil:
		return false
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		errors.Is(err, context.DeadlineExceeded), errors.As(err, &network):
		return true
	}
	for _, prefix := range []string{
		"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "NOREPLICAS", "UNBLOCKED", "TRYAGAIN", "MOVED ", "ASK ", "BUSY ",
		"max number of clients reached",
	} {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	text := err.Error() // what go-redis says without a type
	return strings.Contains(text, "connection pool") || strings.Contains(text, "all sentinels") || strings.Contains(text, "cluster has no nodes")
}

// Full reports whether the server refused a write because its memory is full: maxmemory.
func Full(err error) bool { return redis.HasErrorPrefix(err, "OOM") }

// Denied reports whether the server's user may not run a command, or use a key.
func Denied(err error) bool { return redis.HasErrorPrefix(err, "NOPERM") }
