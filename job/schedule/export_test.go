package schedule

import (
	"context"
	"time"

	"github.com/belfryhq/belfry/internal/db"
)

// Statement is a statement of queries.sql, for tests that EXPLAIN it.
func Statement(name string) string { return db.QueriesByName(queries)[name] }

// WithFailpoint has f called at the points of a firing: due, locked, enqueued, commit (the
// last before it) and committed. What it returns is what the firing meets there.
func WithFailpoint(f func(ctx context.Context, point string) error) Option {
	return func(r *Firer) { r.at = f }
}

// WithAge sets how old the transactions are that lock schedules.
func WithAge(age time.Duration) Option {
	return func(r *Firer) { r.age = func(time.Time) time.Duration { return age } }
}

// MapError is the package's view of an error of the database.
func MapError(err error) error { return mapError(err) }
