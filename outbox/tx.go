package outbox

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/job"
)

// stepTimeout bounds each short transaction, on the server and in this process. The wait for a locked row
// takes at most four fifths of it.
const stepTimeout = 15 * time.Second

// inTx runs do in one short durable transaction. After an error of the connection the outcome of COMMIT may
// be unknown. All transactions of this package can be repeated.
func inTx(ctx context.Context, pool *pgxpool.Pool, do func(context.Context, pgx.Tx) error) error {
	return mapError(db.InTx(ctx, pool, db.Options{Limit: stepTimeout}, do))
}

// reading runs do in one short read-only transaction, which also works on a standby.
func reading(ctx context.Context, pool *pgxpool.Pool, do func(context.Context, pgx.Tx) error) error {
	return mapError(db.InTx(ctx, pool, db.Options{Limit: stepTimeout, Reads: true}, do))
}

// inSnapshot is reading in one snapshot.
func inSnapshot(ctx context.Context, pool *pgxpool.Pool, do func(context.Context, pgx.Tx) error) error {
	return mapError(db.InTx(ctx, pool, db.Options{Limit: stepTimeout, Snapshot: true}, do))
}

// mapError translates PostgreSQL's errors into the errors of package job.
func mapError(err error) error { return job.TranslateError(err, job.ErrLocked, "") }
