package operation

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/job"
)

// stepTimeout bounds each transaction of a recall, an audit or retention, on the server and in the client. A
// wait for a locked row takes four fifths of it at most.
const stepTimeout = 15 * time.Second

// StepTx runs do in one short durable transaction. After a connection error the outcome of the COMMIT may be
// unknown; every step can be repeated.
func StepTx(ctx context.Context, pool *pgxpool.Pool, do func(context.Context, pgx.Tx) error) error {
	return Answered(db.InTx(ctx, pool, db.Options{Limit: stepTimeout}, do))
}

// lockWait bounds the wait of an operator's change for a lock of another session.
const lockWait = 5 * time.Second

// ChangeTx runs an operator's change in one transaction. It checks act.If first.
func ChangeTx(ctx context.Context, pool *pgxpool.Pool, act job.Act, do func(context.Context, pgx.Tx) error) error {
	return Answered(db.InTx(ctx, pool, db.Options{Limit: stepTimeout, Wait: lockWait, If: act.If}, do))
}

// ReadTx runs do in one short read-only transaction, which also works on a standby.
func ReadTx(ctx context.Context, pool *pgxpool.Pool, do func(context.Context, pgx.Tx) error) error {
	return Answered(db.InTx(ctx, pool, db.Options{Limit: stepTimeout, Reads: true}, do))
}

// SnapshotTx is ReadTx in a single snapshot.
func SnapshotTx(ctx context.Context, pool *pgxpool.Pool, do func(context.Context, pgx.Tx) error) error {
	return Answered(db.InTx(ctx, pool, db.Options{Limit: stepTimeout, Snapshot: true}, do))
}

// Answered translates an error of PostgreSQL into the errors of package job.
func Answered(err error) error { return job.TranslateError(err, job.ErrLocked, "") }
