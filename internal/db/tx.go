package db

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// ErrStandby reports that the server follows another one: it can be read, and takes no rows
// before it is promoted.
var ErrStandby = errors.New("the database is a standby, and takes no rows before it is promoted")

// beginner is a pool, or one connection of it.
type beginner interface {
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}

// Options is what a transaction is, whatever the role's defaults are. The zero value but
// for Limit is one that writes, at READ COMMITTED: its guards count on seeing a row as it is
// after a lock wait.
type Options struct {
	// Limit bounds the transaction here, and on the server each of its statements and each
	// pause between two. Waiting for a row that another session keeps locked takes four
	// fifths of it at the most.
	Limit time.Duration
	// Grace is how much longer than Limit this side waits, for a server that is to be the
	// first to say that time is up.
	Grace time.Duration
	// Reads is a transaction that only reads, on a standby too.
	Reads bool
	// Snapshot is a transaction that only reads, all of it as of one moment.
	Snapshot bool
}

// InTx runs do in one transaction and commits it when do returns nil; what it commits is
// durable. The error may be that of the COMMIT, whose outcome is then unknown. One that is
// to write is refused by a standby as ErrStandby.
func InTx(ctx context.Context, on beginner, o Options, do func(context.Context, pgx.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, o.Limit+o.Grace)
	defer cancel()
	return pgx.BeginTxFunc(ctx, server{on}, o.begin(), func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, queries.txBegin, pgx.StrictNamedArgs{
			"lock_timeout_ms": milliseconds(o.Limit * 4 / 5), "timeout_ms": milliseconds(o.Limit),
		})
		if err != nil {
			return err
		}
		return do(ctx, tx)
	})
}

// Begin begins a transaction that writes, without deadlines: for one whose first statement
// sets them beside others.
func Begin(ctx context.Context, on beginner) (pgx.Tx, error) {
	return server{on}.BeginTx(ctx, Options{}.begin())
}

func (o Options) begin() pgx.TxOptions {
	is := pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}
	if o.Reads || o.Snapshot {
		is.AccessMode = pgx.ReadOnly
	}
	if o.Snapshot {
		is.IsoLevel = pgx.RepeatableRead
	}
	return is
}

// server knows what a standby says.
type server struct{ beginner }

// BeginTx is the Beginner's; all that a server does not support of BEGIN is to write during
// recovery.
func (s server) BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error) {
	tx, err := s.beginner.BeginTx(ctx, options)
	if Code(err) == featureNotSupported {
		return nil, fmt.Errorf("%w: %w", ErrStandby, err)
	}
	return tx, err
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
