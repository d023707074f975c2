package operation

import (
	"context"
	"encoding/json"
	"reflect"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/db"
)

// List is one page of a list. Its JSON is the array of the items; Next is sent separately.
type List[T any] struct {
	Items []T
	// Next is the value of the paging parameter for the next page. It is empty on the last page.
	Next string
}

// MarshalJSON renders the items, [] if there are none.
func (l List[T]) MarshalJSON() ([]byte, error) {
	if l.Items == nil {
		return []byte("[]"), nil
	}
	return json.Marshal(l.Items)
}

// UnmarshalJSON parses the items.
func (l *List[T]) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, &l.Items) }

// Pagers are the possible names of the paging parameter, whose values are those of List.Next. An operation
// has one at most.
func Pagers() []string { return []string{"before", "after", "cursor"} }

// NextPage returns Next.
func (l List[T]) NextPage() string { return l.Next }

// setNextPage sets Next.
func (l *List[T]) setNextPage(next string) { l.Next = next }

func (l List[T]) items() any { return l.Items }

// JSONTypes returns the types of the result in JSON.
func (l List[T]) JSONTypes() []reflect.Type { return []reflect.Type{reflect.TypeFor[[]T]()} }

// resultTypes returns the types that the JSON of an Out can have.
func resultTypes[Out any]() []reflect.Type {
	var out Out
	if own, is := any(out).(interface{ JSONTypes() []reflect.Type }); is {
		return own.JSONTypes()
	}
	return []reflect.Type{reflect.TypeFor[Out]()}
}

// mustBeObject panics if the JSON of an act's result is no object, because the receipt is a field of it.
func mustBeObject(o Operation, t reflect.Type) {
	t = pointed(t)
	must(t.Kind() == reflect.Struct || t.Kind() == reflect.Map, "%s has a receipt, which a result of type %s cannot contain", o.Name, t)
}

// pointed dereferences a pointer type.
func pointed(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// Reading runs a read-only function in one transaction, which also works on a standby. The server ends its
// statements when the operation's deadline is over, because a pooler forwards no cancel requests.
func Reading(ctx context.Context, env *Env, do func(context.Context, pgx.Tx) error) error {
	return db.InTx(ctx, env.DB, db.Options{Limit: db.Left(ctx, DefaultDeadline), Reads: true}, do)
}

// Reads returns a reader for single statements, whose deadline may exceed DefaultDeadline. The server ends
// each statement when the operation's deadline is over.
func (e *Env) Reads() db.Reader { return db.NewReader(e.DB, longest) }

// Listed returns a list that is read as a whole.
func Listed[T any](ctx context.Context, env *Env, read func(context.Context, pgx.Tx) ([]T, error)) (out List[T], err error) {
	err = Reading(ctx, env, func(ctx context.Context, tx pgx.Tx) error {
		out.Items, err = read(ctx, tx)
		return err
	})
	return out, err
}

// AccessList returns the rows of a table with policies of belfry. A role that may not change the table reads
// no rows.
func AccessList[T any](ctx context.Context, env *Env, statement string, args ...any) (out List[T], err error) {
	o := db.Options{Policies: true, Limit: db.Left(ctx, DefaultDeadline), Reads: true}
	err = db.InTx(ctx, env.DB, o, func(ctx context.Context, tx pgx.Tx) error {
		out.Items, err = db.All[T](ctx, tx, statement, args...)
		return err
	})
	return out, err
}

// PageOf returns a page from a list that was read with one item more than limit. next returns the paging
// parameter for the page after an item.
func PageOf[T any](items []T, limit int, next func(last T) string) List[T] {
	if len(items) <= limit {
		return List[T]{Items: items}
	}
	return List[T]{items[:limit], next(items[limit-1])}
}
