package outbox

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// DeadLettersIn is DeadLetters in steps of the test's size.
func DeadLettersIn(ctx context.Context, pool *pgxpool.Pool, f DeadFilter, before *Key, limit, keys int) ([]DeadLetter, error) {
	return deadLetters(ctx, pool, f, before, limit, keys)
}

// RedriveIn is Redrive in steps of the test's size.
func RedriveIn(ctx context.Context, pool *pgxpool.Pool, f DeadFilter, o DeadOptions, keys int) (DeadDone, error) {
	a := deadAct{deadWalk: deadWalk{pool: pool, filter: f, keys: keys}, kind: "redriven", to: Pending, options: o}
	err := a.run(ctx)
	return a.done, err
}

// DiscardIn is Discard in steps of the test's size.
func DiscardIn(ctx context.Context, pool *pgxpool.Pool, f DeadFilter, o DeadOptions, keys int) (DeadDone, error) {
	a := deadAct{deadWalk: deadWalk{pool: pool, filter: f, keys: keys}, kind: "discarded", to: Cancelled, options: o}
	err := a.run(ctx)
	return a.done, err
}

// DeadErrorsIn is DeadErrors in steps of the test's size, to the test's bounds.
func DeadErrorsIn(ctx context.Context, pool *pgxpool.Pool, f DeadFilter, limit, keys, kinds int, until time.Time) (DeadErrorList, error) {
	w := deadErrorWalk{pool: pool, filter: f, keys: keys, kinds: kinds, until: until}
	return w.run(ctx, limit)
}

// ErrorKind is errorKind.
func ErrorKind(text string) string { return errorKind(text) }
