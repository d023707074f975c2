package operation

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/job"
)

// stepTimeout bounds each transaction of a recall, an audit or retention, on the
// server and here. Waiting for a row that another session keeps locked takes four
// fifths of it at the most.
const stepTimeout = 15 * time.Second

// StepTx runs do in one short durable transaction. An error of the connection may be
// that of the COMMIT, whose outcome is then unknown: every step here can be done
// again.
func StepTx(ctx context.Context, pool *pgxpool.Pool, do func(context.Context, pgx.Tx) error) error {
	return Answered(db.InTx(ctx, pool, db.Options{Limit: stepTimeout}, do))
}

// ChangeTx is inTx for a change by an operator; it checks act.If first.
func ChangeTx(ctx context.Context, pool *pgxpool.Pool, act job.Act, do func(context.Context, pgx.Tx) error) error {
	return Answered(db.InTx(ctx, pool, db.Options{Limit: stepTimeout, If: act.If}, do))
}

// ReadTx runs do in one short transaction that only reads, as on a standby.
func ReadTx(ctx context.Context, pool *pgxpool.Pool, do func(context.Context, pgx.Tx) error) error {
	return Answered(db.InTx(ctx, pool, db.Options{Limit: stepTimeout, Reads: true}, do))
}

// SnapshotTx is reading, all of it as of one moment.
func SnapshotTx(ctx context.Context, pool *pgxpool.Pool, do func(context.Context, pgx.Tx) error) error {
	return Answered(db.InTx(ctx, pool, db.Options{Limit: stepTimeout, Snapshot: true}, do))
}

// Answered translates an answer of PostgreSQL into the errors of package job.
func Answered(err error) error { return job.TranslateError(err, job.ErrLocked, "") }
