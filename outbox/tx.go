package outbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/job"
)

// stepTimeout bounds each transaction of a recall, an audit or retention, on the
// server and here. Waiting for a row that another session keeps locked takes four
// fifths of it at the most.
const stepTimeout = 15 * time.Second

// inTx runs do in one short durable transaction. An error of the connection may be
// that of the COMMIT, whose outcome is then unknown: every step here can be done
// again.
func inTx(ctx context.Context, pool *pgxpool.Pool, do func(context.Context, pgx.Tx) error) error {
	return inTxWith(ctx, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}, do)
}

// inSnapshot runs do in one short transaction that reads one snapshot.
func inSnapshot(ctx context.Context, pool *pgxpool.Pool, do func(context.Context, pgx.Tx) error) error {
	return inTxWith(ctx, pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, do)
}

func inTxWith(ctx context.Context, pool *pgxpool.Pool, options pgx.TxOptions, do func(context.Context, pgx.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	err := pgx.BeginTxFunc(ctx, pool, options, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, queries.SQL("StepBegin"), pgx.StrictNamedArgs{
			"lock_timeout_ms": strconv.FormatInt((stepTimeout * 4 / 5).Milliseconds(), 10),
			"timeout_ms":      strconv.FormatInt(stepTimeout.Milliseconds(), 10),
		})
		if err != nil {
			return err
		}
		return do(ctx, tx)
	})
	return mapError(err)
}

// SQLSTATE codes that decide something here.
const (
	codeLockTimeout = "55P03"
	codeReadOnly    = "25006"
)

// mapError translates a PostgreSQL error by SQLSTATE and schema into the errors of
// package job, and leaves any other as it is.
func mapError(err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		if message, refused := db.Refusal(pg); refused && pg.ColumnName != "" {
			return &job.InvalidError{Column: pg.ColumnName, Message: message, Hint: pg.Hint}
		}
		switch {
		case pg.Code == codeLockTimeout:
			return fmt.Errorf("%w: %w", job.ErrLocked, err)
		case strings.HasPrefix(pg.Code, "08"), strings.HasPrefix(pg.Code, "57P"), pg.Code == "53300":
			return fmt.Errorf("%w: %w", job.ErrUnreachable, err)
		}
		return db.Explain(err)
	}
	var connect *pgconn.ConnectError
	var network net.Error
	if errors.As(err, &connect) || errors.As(err, &network) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, context.DeadlineExceeded) || pgconn.SafeToRetry(err) {
		return job.Unreachable(err)
	}
	return err
}

// pause waits, or returns the reason why ctx ended.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
