package delivery

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// DeadLettersIn is DeadLetters, as far as it takes, in looks at so many as the test says.
func DeadLettersIn(ctx context.Context, pool *pgxpool.Pool, f DeadFilter, before *outbox.Key, limit, keys int) (list []DeadLetter, err error) {
	for {
		page, lookedTo, err := deadLetters(ctx, pool, f, before, limit-len(list), keys)
		if list = append(list, page...); err != nil || lookedTo == nil {
			return list, err
		}
		before = lookedTo
	}
}

// RedriveIn is Redrive in steps of the test's size.
func RedriveIn(ctx context.Context, pool *pgxpool.Pool, f DeadFilter, o DeadOptions, keys int) (DeadDone, error) {
	a := deadAct{deadWalk: deadWalk{pool: pool, filter: f, keys: keys}, kind: "redriven", to: outbox.Pending, options: o}
	err := a.run(ctx)
	return a.done, err
}

// DiscardIn is Discard in steps of the test's size.
func DiscardIn(ctx context.Context, pool *pgxpool.Pool, f DeadFilter, o DeadOptions, keys int) (DeadDone, error) {
	a := deadAct{deadWalk: deadWalk{pool: pool, filter: f, keys: keys}, kind: "discarded", to: outbox.Cancelled, options: o}
	err := a.run(ctx)
	return a.done, err
}

// DeadErrorsIn is DeadErrors in steps of the test's size, to the test's bounds.
func DeadErrorsIn(ctx context.Context, pool *pgxpool.Pool, f DeadFilter, limit, keys, kinds int, until time.Time) (DeadErrorList, error) {
	w := deadErrorWalk{pool: pool, filter: f, keys: keys, kinds: kinds, until: until}
	return w.run(ctx, limit)
}

// RecalledJob is the job of a recall.
func RecalledJob(r *BegunRecall) job.Job { return r.job }

// ErrorKind is errorKind.
func ErrorKind(text string) string { return errorKind(text) }

// DeadLettersOf is DeadLetters, which looks at so many as the test says.
func DeadLettersOf(ctx context.Context, pool *pgxpool.Pool, f DeadFilter, before *outbox.Key, limit, keys int) ([]DeadLetter, *outbox.Key, error) {
	return deadLetters(ctx, pool, f, before, limit, keys)
}
