package db

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ErrStandby reports that the server is a standby. It accepts reads, and no writes before it is promoted.
var ErrStandby = errors.New("the database is a standby and accepts no writes before it is promoted")

// beginner is a pool, or one connection of it.
type beginner interface {
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}

// Options are the properties of a transaction, independent of the role's defaults. With only Limit set, the
// transaction writes at READ COMMITTED; guards rely on reading the current row after a lock wait.
type Options struct {
	// Limit bounds the transaction in this process and, on the server, each statement and each pause between
	// statements.
	Limit time.Duration
	// Wait bounds the wait for a row or a table that another session has locked. Zero means four fifths of Limit, and at
	// most five seconds for a transaction that only reads, which waits for tables alone.
	Wait time.Duration
	// Grace is added to Limit in this process, so that the server's deadline is the first to pass.
	Grace time.Duration
	// Reads makes the transaction read-only. It then also runs on a standby.
	Reads bool
	// Snapshot makes the transaction read-only, and all its statements read one snapshot.
	Snapshot bool
	// Often is for transactions that begin many times a second. Their plans are cached for one second,
	// unless a pooler is in between. Other transactions plan every statement at each execution, including
	// the statements of functions.
	Often bool
	// Policies applies row-level security, for tables with belfry's own policies (users, tokens, sessions,
	// requests). Without it, a policy that hides rows causes ErrRowSecurity.
	Policies bool
	// Path keeps the session's search_path, for statements of the user. Without it, functions and operators
	// are PostgreSQL's own: a role that may CREATE in a schema of the path can define closer matches.
	Path bool
	// First runs before the other statements and sets the transaction's limits on the server
	// itself. Nil sets them from the other options.
	First func(context.Context, pgx.Tx) error
	// If is checked before do, in a transaction that writes. Nil checks nothing.
	If *Precondition
}

// planLife is the maximum age of a cached plan. Planning a claim takes about 2 ms. A plan that was made for
// a small table is slow for at most this time after the table has grown.
const planLife = time.Second

// planned is the key in a connection's custom data for the time when its plans were discarded.
const planned = "belfry planned"

// InTx runs do in one transaction and commits it durably when do returns nil. If COMMIT itself fails, its
// outcome is unknown. On a standby, a transaction that writes fails with ErrStandby. A connection
// on which do called Foreign is closed at the end.
func InTx(ctx context.Context, on beginner, o Options, do func(context.Context, pgx.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, o.Limit+o.Grace)
	defer cancel()
	if pool, ok := on.(*pgxpool.Pool); ok { // so that Commit does not return the connection
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release()
		on = conn
	}
	tx, err := server{on}.BeginTx(ctx, o.begin())
	if err != nil {
		return err
	}
	defer endForeign(ctx, tx.Conn())
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

// tableWait is the default of Options.Wait for a transaction that only reads.
const tableWait = 5 * time.Second

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

// explainHidden adds ErrRowSecurity to an error that HidesRows recognises.
func explainHidden(err error) error {
	if !HidesRows(err) || errors.Is(err, ErrRowSecurity) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrRowSecurity, err)
}

// set sets the transaction's limits on the server.
func (o Options) set(ctx context.Context, tx pgx.Tx) error {
	wait := o.Limit * 4 / 5
	if o.readsOnly() {
		wait = min(wait, tableWait)
	}
	args := pgx.StrictNamedArgs{"lock_timeout_ms": milliseconds(cmp.Or(o.Wait, wait)), "timeout_ms": milliseconds(o.Limit), "fresh": 0}
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

// forgetPlans discards the session's plans if they are older than planLife.
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
	is.BeginQuery = fmt.Sprintf("BEGIN ISOLATION LEVEL %s %s%s", is.IsoLevel, is.AccessMode, pins(o.Policies, o.Path))
	return is
}

// server translates the errors of BEGIN on a standby and through a pooler in statement mode.
type server struct{ beginner }

// BeginTx begins a transaction. The only unsupported feature of BEGIN is to write during recovery.
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
