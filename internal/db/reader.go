package db

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// leastLeft is what the server is given at least: none would be as long as it likes.
const leastLeft = time.Millisecond

// Left is how long ctx leaves, and limit at most or where it has no deadline.
func Left(ctx context.Context, limit time.Duration) time.Duration {
	if deadline, has := ctx.Deadline(); has {
		limit = min(limit, time.Until(deadline))
	}
	return max(limit, leastLeft)
}

// Reader reads through a pool, each statement in a transaction of its own that only reads, on a
// standby too, and that the server ends when the time is up: for what reads much in many steps, of
// which none is to keep a snapshot or a lock. Its plans are kept for a second. Rows have to be read
// to their end or closed. It is safe for concurrent use.
type Reader struct {
	on    beginner
	limit time.Duration
}

// NewReader returns a Reader of a pool. A statement may take limit, or what its context leaves.
func NewReader(pool beginner, limit time.Duration) Reader { return Reader{pool, limit} }

// Query sends a statement.
func (r Reader) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	o := Options{Limit: Left(ctx, r.limit), Reads: true, Often: true}
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

// readRows end their transaction.
type readRows struct {
	pgx.Rows

	end func()
}

// Next ends it after the last row.
func (r *readRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

// Close ends it.
func (r *readRows) Close() {
	r.Rows.Close()
	if r.end != nil {
		r.end()
		r.end = nil
	}
}

// readRow is the first row, or why there is none.
type readRow struct {
	rows pgx.Rows
	err  error
}

// Scan reads it.
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
