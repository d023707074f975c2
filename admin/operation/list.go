package operation

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/db"
)

// List is one page of a list. Its JSON is that of the items; Next goes beside it.
type List[T any] struct {
	Items []T
	// Next is what the parameter that pages takes for the page after this one; empty:
	// there is none.
	Next string
}

// MarshalJSON renders the items; none are [].
func (l List[T]) MarshalJSON() ([]byte, error) {
	if l.Items == nil {
		return []byte("[]"), nil
	}
	return json.Marshal(l.Items)
}

// UnmarshalJSON reads the items.
func (l *List[T]) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, &l.Items) }

// Pagers are the names that a parameter may have that takes List.Next; an operation has one of
// them at most.
func Pagers() []string { return []string{"before", "after", "cursor"} }

// NextPage is Next, of a list of anything.
func (l List[T]) NextPage() string { return l.Next }

// setNextPage sets Next, of a list of anything.
func (l *List[T]) setNextPage(next string) { l.Next = next }

func (l List[T]) items() any { return l.Items }

// JSONTypes returns the types of the result in JSON.
func (l List[T]) JSONTypes() []reflect.Type { return []reflect.Type{reflect.TypeFor[[]T]()} }

// resultTypes are the types of which an Out has the JSON of one.
func resultTypes[Out any]() []reflect.Type {
	var out Out
	if own, is := any(out).(interface{ JSONTypes() []reflect.Type }); is {
		return own.JSONTypes()
	}
	return []reflect.Type{reflect.TypeFor[Out]()}
}

// mustBeObject panics if the JSON of an act's result is no object: it has a receipt in it.
func mustBeObject(o Operation, t reflect.Type) {
	if t = pointed(t); t.Kind() != reflect.Struct && t.Kind() != reflect.Map {
		panic(fmt.Sprintf("%s changes something, and its result is a %s, which has no room for a receipt", o.Name, t))
	}
}

// pointed is what a type points to in the end, or the type itself.
func pointed(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// Reading runs what only reads, on a standby too, in one transaction whose statements the server ends
// when an operation's time is over: behind a pooler, which takes no cancel request, nothing else does.
func Reading(ctx context.Context, env *Env, do func(context.Context, pgx.Tx) error) error {
	return db.InTx(ctx, env.DB, db.Options{Limit: db.Left(ctx, DefaultDeadline), Reads: true}, do)
}

// Reads is for what reads one statement at a time, also for longer than DefaultDeadline where its
// operation may: the server ends each when the operation's time is over.
func (e *Env) Reads() db.Reader { return db.NewReader(e.DB, longest) }

// Listed is a list that is read whole.
func Listed[T any](ctx context.Context, env *Env, read func(context.Context, pgx.Tx) ([]T, error)) (out List[T], err error) {
	err = Reading(ctx, env, func(ctx context.Context, tx pgx.Tx) error {
		out.Items, err = read(ctx, tx)
		return err
	})
	return out, err
}

// AccessList is a list of a table whose policies are belfry's own: a role that may not change it
// reads no rows of it.
func AccessList[T any](ctx context.Context, env *Env, statement string, args ...any) (out List[T], err error) {
	o := db.Options{Policies: true, Limit: db.Left(ctx, DefaultDeadline), Reads: true}
	err = db.InTx(ctx, env.DB, o, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, statement, args...)
		if err != nil {
			return err
		}
		out.Items, err = pgx.CollectRows(rows, pgx.RowToStructByName[T])
		return err
	})
	return out, err
}

// PageOf cuts a list that was read with one item more than limit, and says by next how the
// page after it begins.
func PageOf[T any](items []T, limit int, next func(last T) string) List[T] {
	if len(items) <= limit {
		return List[T]{Items: items}
	}
	return List[T]{items[:limit], next(items[limit-1])}
}
