package db

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// leastLeft is the shortest timeout for the server; zero would mean no timeout.
const leastLeft = time.Millisecond

// Left returns the time until ctx's deadline, at most limit. It returns limit if ctx has no deadline.
func Left(ctx context.Context, limit time.Duration) time.Duration {
	if deadline, has := ctx.Deadline(); has {
		limit = min(limit, time.Until(deadline))
	}
	return max(limit, leastLeft)
}

// Reader runs each statement in a read-only transaction of its own, with a deadline on the server. It is for
// long work in many steps that must not hold a snapshot or a lock, and also works on a standby. Plans are
// cached for one second. Callers must read rows to the end or close them. It is safe for concurrent use.
type Reader struct {
	on          beginner
	limit, wait time.Duration // see Options
}

// NewReader returns a Reader of a pool. Each statement may take limit, or less if its context ends earlier.
func NewReader(pool beginner, limit time.Duration) Reader { return Reader{on: pool, limit: limit} }

// Waiting returns a Reader whose statements wait for the lock of a table for wait at most.
func (r Reader) Waiting(wait time.Duration) Reader {
	r.wait = wait
	return r
}

// Query sends a statement.
func (r Reader) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	o := Options{Limit: Left(ctx, r.limit), Wait: r.wait, Reads: true, Often: true}
	ctx, cancel := context.WithTimeout(ctx, o.Limit)
	tx, err := server{r.on}.BeginTx(ctx, o.begin())
	if err != nil {
		cancel()
		return nil, err
	}
	end := func() {
		_ = tx.Rollback(ctx) // there is nothing to commit
		cancel()
	}
	if err := o.set(ctx, tx); err != nil {
		end()
		return nil, err
	}
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		end()
		return nil, err
	}
	return &readRows{rows, end}, nil
}

// QueryRow sends a statement of one row.
func (r Reader) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, err := r.Query(ctx, sql, args...)
	return readRow{rows, err}
}

// readRows are rows that end their transaction.
type readRows struct {
	pgx.Rows

	end func()
}

// Next also ends the transaction after the last row.
func (r *readRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

// Close ends the transaction.
func (r *readRows) Close() {
	r.Rows.Close()
	if r.end != nil {
		r.end()
		r.end = nil
	}
}

// readRow is the first row, or the error of its query.
type readRow struct {
	rows pgx.Rows
	err  error
}

// Scan reads the row.
func (r readRow) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	defer r.rows.Close()
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	if err := r.rows.Scan(dest...); err != nil {
		return err
	}
	r.rows.Close()
	return r.rows.Err()
}
