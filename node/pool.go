package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/internal/db"
)

// statementTimeout bounds the first statements of a process.
const statementTimeout = 30 * time.Second

// OpenPool returns a pool on the database at dsn, which connects on first use. If writes is set, a standby
// counts as unreachable until it is promoted.
func OpenPool(ctx context.Context, dsn string, c Database, writes bool, log zerolog.Logger) (*pgxpool.Pool, error) {
	return openPool(ctx, dsn, c, 0, writes, log)
}

// OpenReserve returns a pool that writes and holds its connections open from the start, so that a server
// with no connections left cannot take them.
func OpenReserve(ctx context.Context, dsn string, c Database, connections int, log zerolog.Logger) (*pgxpool.Pool, error) {
	c.MaxConnections = connections
	return openPool(ctx, dsn, c, connections, true, log)
}

func openPool(ctx context.Context, dsn string, c Database, kept int, writes bool, log zerolog.Logger) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("database.url: %s", parseProblem(err))
	}
	cfg.MaxConns = int32(c.MaxConnections) //nolint:gosec // Validate allows up to 1000
	cfg.MinConns = int32(kept)             //nolint:gosec // no more than those
	if !strings.Contains(dsn, "connect_timeout") {
		cfg.ConnConfig.ConnectTimeout = c.ConnectTimeout
	}
	if cfg.ConnConfig.RuntimeParams["application_name"] == "" {
		cfg.ConnConfig.RuntimeParams["application_name"] = "belfry"
	}
	cfg.ConnConfig.RuntimeParams["client_encoding"] = "UTF8" // overrides the database, the role and the URL
	cfg.AfterConnect = standardSession
	if writes && cfg.ConnConfig.ValidateConnect == nil { // no target_session_attrs
		cfg.ConnConfig.ValidateConnect = notStandby
	}
	pool, err := db.Open(ctx, cfg, log)
	if err != nil {
		return nil, fmt.Errorf("open connection pool: %w", err)
	}
	return pool, nil
}

// ConnectTimeout returns the time that one attempt to connect may take. A pool without a limit,
// such as one that pgxpool.New opens, has the default of database.connect_timeout.
func ConnectTimeout(pool *pgxpool.Pool) time.Duration {
	return cmp.Or(pool.Config().ConnConfig.ConnectTimeout, DefaultConfig().Database.ConnectTimeout)
}

// Ping pings the server within the time of one attempt to connect to each of its addresses.
func Ping(ctx context.Context, pool *pgxpool.Pool) error {
	attempts := 1 + len(pool.Config().ConnConfig.Fallbacks)
	ctx, cancel := context.WithTimeout(ctx, time.Duration(attempts)*ConnectTimeout(pool))
	defer cancel()
	return pool.Ping(ctx)
}

// Unreachable reports whether err means that no statement, or no statement that writes, can reach the
// database.
func Unreachable(err error) bool {
	var unknown interface {
		Kind() db.Kind
		Unwrap() error
	}
	if errors.As(err, &unknown) && unknown.Kind() == db.KindUnknown {
		err = unknown.Unwrap()
	}
	kind := db.KindOf(err)
	return kind == db.KindUnavailable || kind == db.KindStandby
}

// notStandby rejects a standby.
func notStandby(_ context.Context, conn *pgconn.PgConn) error {
	if conn.ParameterStatus("in_hot_standby") == "on" {
		return pgconn.ErrStandbyConnection
	}
	return nil
}
