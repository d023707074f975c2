package db

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Querier is a pool, a connection or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// All returns the rows of a statement as structs, by the names of the columns.
func All[T any](ctx context.Context, on Querier, sql string, args ...any) ([]T, error) {
	rows, err := on.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByName[T])
}

// One is All for a statement of exactly one row. Without a row it returns pgx.ErrNoRows.
func One[T any](ctx context.Context, on Querier, sql string, args ...any) (one T, err error) {
	rows, err := on.Query(ctx, sql, args...)
	if err != nil {
		return one, err
	}
	return pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[T])
}

// Column returns the values of a statement's only column.
func Column[T any](ctx context.Context, on Querier, sql string, args ...any) ([]T, error) {
	rows, err := on.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[T])
}

// Collect returns the rows of a statement, each read by to. args may be nil.
func Collect[T any](ctx context.Context, on Querier, sql string, args pgx.StrictNamedArgs, to pgx.RowToFunc[T]) ([]T, error) {
	rows, err := on.Query(ctx, sql, optional(args)...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, to)
}

// Each scans each row of a statement and calls do, which may stop by an error. args may be nil.
func Each(ctx context.Context, on Querier, sql string, args pgx.StrictNamedArgs, scans []any, do func() error) error {
	rows, err := on.Query(ctx, sql, optional(args)...)
	if err != nil {
		return err
	}
	_, err = pgx.ForEachRow(rows, scans, do)
	return err
}

// optional returns the arguments of a query.
func optional(args pgx.StrictNamedArgs) []any {
	if args == nil {
		return nil
	}
	return []any{args}
}
