package db

import (
	"cmp"
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
	// pause between two.
	Limit time.Duration
	// Wait is how long a row that another session keeps locked is waited for; 0: four fifths of
	// Limit.
	Wait time.Duration
	// Grace is how much longer than Limit this side waits, for a server that is to be the
	// first to say that time is up.
	Grace time.Duration
	// Reads is a transaction that only reads, on a standby too.
	Reads bool
	// Snapshot is a transaction that only reads, all of it as of one moment.
	Snapshot bool
	// Often is a transaction that is begun many times a second: its statements' plans are
	// kept for a second, where the connection is the server's own. Others are planned at
	// each execution, and what they execute in functions too.
	Often bool
	// Policies has row-level security hide rows, as for tables whose policies are belfry's own
	// (users, tokens, sessions, requests). Elsewhere a policy that hides rows is ErrRowSecurity.
	Policies bool
	// First runs before the other statements and sets the transaction's limits on the server
	// itself. Nil sets them from the other options.
	First func(context.Context, pgx.Tx) error
	// If is checked before do, in a transaction that writes. Nil checks nothing.
	If *Precondition
}

// planLife is how old a plan may be that is kept. Planning all of a claim takes
// some 2 ms; a plan of a table that was small is slow for so long at the most.
const planLife = time.Second

// planned is the key of a connection's custom data for when its plans were forgotten.
const planned = "belfry planned"

// InTx runs do in one transaction and commits it when do returns nil; what it commits is
// durable. The error may be that of the COMMIT, whose outcome is then unknown. A standby refuses a
// transaction that writes with ErrStandby.
func InTx(ctx context.Context, on beginner, o Options, do func(context.Context, pgx.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, o.Limit+o.Grace)
	defer cancel()
	tx, err := server{on}.BeginTx(ctx, o.begin())
	if err != nil {
		return err
	}
	defer func() {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
		defer cancel()
		_ = tx.Rollback(clean) // has no effect after a commit
	}()
	if err = o.run(ctx, tx, do); err == nil {
		err = tx.Commit(ctx)
	}
	return explainHidden(err)
}

// rollbackTimeout bounds a rollback, which also runs after the context has ended, so that the
// connection remains usable.
const rollbackTimeout = 5 * time.Second

// run executes all statements of the transaction.
func (o Options) run(ctx context.Context, tx pgx.Tx, do func(context.Context, pgx.Tx) error) error {
	first := o.First
	if first == nil {
		first = o.set
	}
	if err := first(ctx, tx); err != nil {
		return err
	}
	if o.readsOnly() {
		return do(ctx, tx)
	}
	if err := o.If.Check(ctx, tx); err != nil {
		return err
	}
	if err := do(ctx, tx); err != nil {
		return err
	}
	return o.If.release(ctx, tx)
}

// explainHidden adds ErrRowSecurity to an error that HidesRows knows.
func explainHidden(err error) error {
	if !HidesRows(err) || errors.Is(err, ErrRowSecurity) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrRowSecurity, err)
}

// set tells the server what the transaction is.
func (o Options) set(ctx context.Context, tx pgx.Tx) error {
	args := pgx.StrictNamedArgs{"lock_timeout_ms": milliseconds(cmp.Or(o.Wait, o.Limit*4/5)), "timeout_ms": milliseconds(o.Limit), "fresh": 0}
	if o.Often {
		if err := forgetPlans(ctx, tx); err != nil {
			return err
		}
		args["fresh"] = tx.Conn().PgConn().PID()
	}
	_, err := tx.Exec(ctx, queries.txBegin, args)
	return err
}

func (o Options) readsOnly() bool { return o.Reads || o.Snapshot }

// forgetPlans leaves no plan in the connection's session that is older than planLife.
func forgetPlans(ctx context.Context, tx pgx.Tx) error {
	data := tx.Conn().PgConn().CustomData()
	if at, ok := data[planned].(time.Time); ok && time.Since(at) < planLife {
		return nil
	}
	_, err := tx.Exec(ctx, queries.forgetPlans)
	data[planned] = time.Now()
	return err
}

func (o Options) begin() pgx.TxOptions {
	is := pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}
	if o.readsOnly() {
		is.AccessMode = pgx.ReadOnly
	}
	if o.Snapshot {
		is.IsoLevel = pgx.RepeatableRead
	}
	is.BeginQuery = fmt.Sprintf("BEGIN ISOLATION LEVEL %s %s%s", is.IsoLevel, is.AccessMode, pins(o.Policies))
	return is
}

// server knows what a standby says.
type server struct{ beginner }

// BeginTx is the Beginner's; all that a server does not support of BEGIN is to write during
// recovery.
func (s server) BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error) {
	tx, err := s.beginner.BeginTx(ctx, options)
	switch {
	case Code(err) == featureNotSupported:
		return nil, fmt.Errorf("%w: %w", ErrStandby, err)
	case statementPooling(err):
		return nil, fmt.Errorf("%w: %w", ErrStatementPooling, err)
	}
	return tx, err
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
