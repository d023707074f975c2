package delivery

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/db"
)

// Statement is a statement of the package's, for tests that EXPLAIN it.
func Statement(name string) string { return db.QueriesByName(queries)[name] }

// DeliveriesUntil is Deliveries with a limit of the test's.
func DeliveriesUntil(ctx context.Context, pool *pgxpool.Pool, jobID int64, until time.Time) (Counts, error) {
	return deliveries(ctx, pool, jobID, until)
}
