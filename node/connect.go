package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/text"
)

// Address is the address of a database, without secrets.
type Address struct{ Host, Database, User string } // the host with its port, or the directory of a Unix socket

// AddressOf returns the first address of a pool.
func AddressOf(pool *pgxpool.Pool) Address {
	c := pool.Config().ConnConfig
	host := c.Host
	if !strings.HasPrefix(host, "/") {
		host = net.JoinHostPort(host, fmt.Sprint(c.Port))
	}
	return Address{Host: host, Database: c.Database, User: c.User}
}

func (a Address) String() string {
	return fmt.Sprintf("%s (database %s, user %s)", a.Host, a.Database, a.User)
}

// Connect pings the server. If it cannot be reached, or refuses the login, the error is a *ConnectError; from
// is the place of the configuration that has the address.
func Connect(ctx context.Context, pool *pgxpool.Pool, from string) error {
	err := Ping(ctx, pool)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case answered(err):
		return fmt.Errorf("PostgreSQL at %s: %w", AddressOf(pool), err)
	}
	return &ConnectError{At: AddressOf(pool), From: from, Err: err, Waited: ConnectTimeout(pool)}
}

// answered reports whether err is the response of a server to a statement, not to a connection attempt.
func answered(err error) bool {
	return errors.As(err, new(*UnfitError)) || errors.Is(err, db.ErrStatementPooling) ||
		db.Code(err) != "" && !errors.As(err, new(*pgconn.ConnectError)) && !Unreachable(err)
}

// LoginRefused reports whether err is the server's answer to a login with a wrong user, password or
// database: trying again does not help.
func LoginRefused(err error) bool {
	return errors.As(err, new(*pgconn.ConnectError)) && db.ClassOf(err) == db.Refused
}

// ConnectError reports a failed connection, its address and the remedies.
type ConnectError struct {
	At     Address
	From   string // the place of the configuration that has the address, such as BELFRY_DATABASE_URL
	Err    error
	Waited time.Duration // of one attempt
}

func (e *ConnectError) Unwrap() error { return e.Err }

// Error names the host, the reason and the remedies.
func (e *ConnectError) Error() string {
	if LoginRefused(e.Err) {
		remedy := "correct user and password"
		if db.Code(e.Err) == db.NoSuchDatabase {
			remedy = "create that database, or correct its name"
		}
		return fmt.Sprintf("PostgreSQL refuses the login at %s: %s\n%s; the address comes from %s: postgres://user:password@host:5432/database",
			e.At, e.reason(), remedy, e.From)
	}
	if errors.Is(e.Err, pgconn.ErrStandbyConnection) {
		return fmt.Sprintf("PostgreSQL at %s is a standby and accepts no writes before it is promoted\n"+
			"point %s at the primary, or name both hosts", e.At, e.From)
	}
	return fmt.Sprintf(`cannot reach PostgreSQL at %s: %s
three ways out:
  1. start that server, or open the way to it
  2. correct the address, which comes from %s: postgres://user:password@host:5432/database
  3. leave database.url unset everywhere: belfry then runs a private PostgreSQL`, e.At, e.reason(), e.From)
}

// reason returns the message of the kernel or of the server, without the driver's.
func (e *ConnectError) reason() string {
	var server *pgconn.PgError
	var network *net.OpError
	switch {
	case errors.As(e.Err, &server):
		return server.Message
	case pgconn.Timeout(e.Err), errors.Is(e.Err, context.DeadlineExceeded):
		return "no answer within " + text.Short(e.Waited)
	case errors.As(e.Err, &network):
		return network.Err.Error()
	}
	return strings.ReplaceAll(e.Err.Error(), "\n", " ")
}
