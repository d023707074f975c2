package demo

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// verdict is what verify found out about one job in one snapshot.
type verdict struct {
	ID         int64
	Type       string
	Category   string
	Title      string
	Status     string
	Cursor     string
	Chunks     int64
	Matched    int64
	Rows       int64
	Missing    int64
	Unexpected int64
	Duplicates int64
}

// exact reports whether every matching channel has exactly one row and no other
// channel has any.
func (v verdict) exact() bool { return v.Missing == 0 && v.Unexpected == 0 && v.Duplicates == 0 }

func (v verdict) String() string {
	return fmt.Sprintf("%s rows for %s matching channels: %d missing, %d unexpected, %d duplicates",
		grouped(v.Rows), grouped(v.Matched), v.Missing, v.Unexpected, v.Duplicates)
}

// querier is a pool or a connection.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// verify compares the rows of a job with the channels that match its audience: all
// up to its bound, or with atCursor those up to its cursor.
func verify(ctx context.Context, q querier, id int64, atCursor bool) (verdict, error) {
	rows, err := q.Query(ctx, queries.SQL("Verify"), pgx.StrictNamedArgs{"id": id, "at_cursor": atCursor})
	if err != nil {
		return verdict{}, fmt.Errorf("verify job %d: %w", id, err)
	}
	v, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[verdict])
	if err != nil {
		return verdict{}, fmt.Errorf("verify job %d: %w", id, err)
	}
	return v, nil
}
