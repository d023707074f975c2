package lifecycle

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
)

const (
	// closeTimeout bounds the close of a connection.
	closeTimeout = time.Second
	// The first and the longest pause before another connection attempt.
	firstPause   = time.Second
	longestPause = time.Minute
)

// errDeaf reports a connection on which notifications do not arrive.
var errDeaf = errors.New(
	"notifications do not arrive: a pooler in transaction mode is in between, belfry.bell is off, or the server's " +
		"notification queue is more than half full")

// Listener receives the notifications of one channel on a connection outside the pool. It is safe for
// concurrent use.
type Listener struct {
	pool    *pgxpool.Pool
	channel string
	timeout time.Duration
	wake    func()
	outage  *Outage
	log     zerolog.Logger
	sure    atomic.Bool
}

// NewListener returns a Listener on a channel, a plain identifier. It calls wake at every notification and
// at every change of Listening, because earlier notifications may be lost; wake must return at once. timeout
// bounds the set-up of a connection and each of its statements. outage logs an unreachable database.
func NewListener(pool *pgxpool.Pool, channel string, timeout time.Duration, wake func(), outage *Outage, log zerolog.Logger) *Listener {
	return &Listener{pool: pool, channel: channel, timeout: timeout, wake: wake, outage: outage, log: log}
}

// Listening reports whether notifications arrive on the present connection. The Listener tests it with a
// notification of its own through the pool. A nil Listener does not listen.
func (l *Listener) Listening() bool { return l != nil && l.sure.Load() }

// Run listens until ctx ends and reconnects after failures.
func (l *Listener) Run(ctx context.Context) {
	for failures := 0; ctx.Err() == nil; {
		err := l.once(ctx)
		if l.sure.Swap(false) {
			failures = 0
			l.wake()
		}
		if ctx.Err() != nil {
			return
		}
		if !l.outage.Observe(time.Time{}, err) && failures == 0 {
			l.log.Warn().Err(err).Msg("not listening for notifications; polling continues")
		}
		timer := time.NewTimer(min(firstPause<<min(failures, 10), longestPause))
		failures++
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// once listens on one connection until it fails.
func (l *Listener) once(ctx context.Context) error {
	start, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	var suffix [8]byte
	_, _ = rand.Read(suffix[:]) // documented never to fail
	echo, heard := "belfry_echo_"+hex.EncodeToString(suffix[:]), false
	conn, err := l.connect(start, func(channel string) {
		if channel == echo {
			heard = true
			return
		}
		l.wake()
	})
	if err != nil {
		return err
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		_ = conn.Close(end) // nothing is lost with it
	}()
	for _, channel := range []string{l.channel, echo} {
		if _, err := conn.Exec(start, strings.ReplaceAll(queries.listen, "{{channel}}", pgx.Identifier{channel}.Sanitize())); err != nil {
			return fmt.Errorf("listen: %w", err)
		}
	}
	if _, err := l.pool.Exec(start, queries.echo, pgx.StrictNamedArgs{"channel": echo}); err != nil {
		return fmt.Errorf("notify: %w", err)
	}
	for !heard {
		if err := conn.PgConn().WaitForNotification(start); err != nil {
			if start.Err() != nil && ctx.Err() == nil {
				return errDeaf
			}
			return err
		}
	}
	l.sure.Store(true)
	l.wake()
	for {
		// A half-open connection costs only notifications.
		if err := conn.PgConn().WaitForNotification(ctx); err != nil {
			return err
		}
	}
}

// connect opens a connection as the pool does.
func (l *Listener) connect(ctx context.Context, heard func(channel string)) (*pgx.Conn, error) {
	config := l.pool.Config().ConnConfig
	config.OnNotification = func(_ *pgconn.PgConn, n *pgconn.Notification) { heard(n.Channel) }
	if prepare := l.pool.Config().BeforeConnect; prepare != nil { // such as a rotating password
		if err := prepare(ctx, config); err != nil {
			return nil, err
		}
	}
	return pgx.ConnectConfig(ctx, config)
}
