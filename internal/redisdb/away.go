package redisdb

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Away reports whether an error means that the server is unreachable or cannot serve writes now: it is
// down, starting, failing over, or out of connections. The command may or may not have been executed.
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
		if HasCode(err, prefix) {
			return true
		}
	}
	text := err.Error() // go-redis returns these errors without a type
	return strings.Contains(text, "connection pool") || strings.Contains(text, "all sentinels") ||
		strings.Contains(text, "cluster has no nodes")
}

// Full reports whether the server refused a write because its memory is full: maxmemory.
func Full(err error) bool { return HasCode(err, "OOM") }

// Denied reports whether the server's user may not run a command, or use a key.
func Denied(err error) bool { return HasCode(err, "NOPERM") }

// HasCode reports whether the server returned an error of a code, directly or from a command in a
// script. Redis 6.2 wraps the latter: "ERR Error running script (call to f_…): @user_script:3: -OOM
// command not allowed". go-redis strips an "ERR " prefix.
func HasCode(err error, code string) bool {
	if redis.HasErrorPrefix(err, code) {
		return true
	}
	if !redis.HasErrorPrefix(err, "Error running script") {
		return false
	}
	_, cause, found := strings.Cut(err.Error(), ": -")
	return found && strings.HasPrefix(cause, code)
}
