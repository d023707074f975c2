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
		if Says(err, prefix) {
			return true
		}
	}
	text := err.Error() // what go-redis says without a type
	return strings.Contains(text, "connection pool") || strings.Contains(text, "all sentinels") || strings.Contains(text, "cluster has no nodes")
}

// Full reports whether the server refused a write because its memory is full: maxmemory.
func Full(err error) bool { return Says(err, "OOM") }

// Denied reports whether the server's user may not run a command, or use a key.
func Denied(err error) bool { return Says(err, "NOPERM") }

// Says reports whether the server answered with an error of that code, itself or of a command
// in a script. Redis 6.2 puts the latter into a sentence of its own: "ERR Error running script
// (call to f_…): @user_script:3: -OOM command not allowed". go-redis looks behind an "ERR ".
func Says(err error, code string) bool {
	if redis.HasErrorPrefix(err, code) {
		return true
	}
	if !redis.HasErrorPrefix(err, "Error running script") {
		return false
	}
	_, cause, found := strings.Cut(err.Error(), ": -")
	return found && strings.HasPrefix(cause, code)
}
