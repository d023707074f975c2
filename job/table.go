package job

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/cursor"
	"github.com/belfryhq/belfry/internal/db"
)

// Table is a Source over any relation by any keyset: the user's own table or view,
// keyed by uuid, by text, by several columns. R is a struct whose fields pgx can
// fill by name (see pgx.RowToStructByName) from the key columns and Columns.
//
// The key columns must be unique together, NOT NULL, immutable, and served by an
// index in their order (text columns by one with COLLATE "C").
type Table[R any] struct {
	// Relation is the table or view: one or two identifiers, schema first.
	Relation pgx.Identifier
	// Key is the order of the walk.
	Key cursor.Keyset
	// Columns are the further columns R needs; the key columns are always read.
	Columns []string
	// KeyOf returns the key of one row, in the order of Key's columns.
	KeyOf func(R) []any
}

// Keyset returns t.Key.
func (t Table[R]) Keyset() cursor.Keyset { return t.Key }

// Bound returns the highest key of the relation.
func (t Table[R]) Bound(ctx context.Context, tx pgx.Tx, _ Job) (cursor.Position, error) {
	sql := render(queries.tableBound, map[string]string{
		"columns": t.Key.SelectList(), "relation": t.Relation.Sanitize(), "order": t.Key.OrderByDesc(),
	})
	rows, err := tx.Query(ctx, sql)
	if err != nil {
		return cursor.Position{}, err
	}
	bound, err := pgx.CollectExactlyOneRow(rows, t.Key.FromRow)
	if errors.Is(err, pgx.ErrNoRows) {
		return cursor.Position{}, nil
	}
	return bound, err
}

// Open begins a walk. Nothing is read before the first page.
func (t Table[R]) Open(_ context.Context, _ pgx.Tx, _ Job, _, bound cursor.Position) (Walk[R], error) {
	return tableWalk[R]{t, bound}, nil
}

type tableWalk[R any] struct {
	table Table[R]
	bound cursor.Position
}

// Total is unknown: a foreign relation may be a view that is dear to count.
func (w tableWalk[R]) Total() int64 { return 0 }

func (w tableWalk[R]) Page(ctx context.Context, tx pgx.Tx, after cursor.Position, limit int) (cursor.Page[R], error) {
	t := w.table
	columns := t.Key.SelectList()
	for _, c := range t.Columns {
		columns += ", " + pgx.Identifier{c}.Sanitize()
	}
	predicate, args := t.Key.Window(after, w.bound)
	args["limit"] = limit
	sql := render(queries.tablePage, map[string]string{
		"columns": columns, "relation": t.Relation.Sanitize(), "window": predicate, "order": t.Key.OrderBy(),
	})
	list, err := db.All[R](ctx, tx, sql, args)
	if err != nil || len(list) == 0 {
		return cursor.Page[R]{}, err
	}
	next, err := t.Key.Position(t.KeyOf(list[len(list)-1])...)
	if err != nil {
		return cursor.Page[R]{}, fmt.Errorf("key of %s: %w", t.Relation.Sanitize(), err)
	}
	return cursor.Page[R]{Rows: list, Read: len(list), Next: next}, nil
}

// render fills the {{marks}} of a statement with SQL text that was quoted or
// rendered by its owner, never with a user's value.
func render(sql string, marks map[string]string) string {
	for mark, text := range marks {
		sql = strings.ReplaceAll(sql, "{{"+mark+"}}", text)
	}
	return sql
}
