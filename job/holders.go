package job

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/db"
)

// holdersLimit bounds the query for lock holders. The act has failed by then.
const holdersLimit = 2 * time.Second

// Holders describes the sessions that lock rows of these jobs now, or of all RUNNING jobs without ids, such
// as "job 17 by session 4711 of app_web (psql)", or the sessions that lock the whole table if there are any.
// It is empty if there are none, if several sessions share a row's lock, or if the database does not answer.
func (s *Store) Holders(ctx context.Context, ids ...int64) string {
	names := s.holders(ctx, queries.tableHolders, pgx.StrictNamedArgs{})
	if len(names) == 0 {
		names = s.holders(ctx, queries.rowHolders, pgx.StrictNamedArgs{"ids": ids})
	}
	return strings.Join(names, ", ")
}

func (s *Store) holders(ctx context.Context, statement string, args pgx.StrictNamedArgs) (names []string) {
	ctx = context.WithoutCancel(ctx)
	_ = db.InTx(ctx, s.pool, db.Options{Limit: holdersLimit, Reads: true}, func(ctx context.Context, tx pgx.Tx) (err error) {
		names, err = db.Collect(ctx, tx, statement, args, holder)
		return err
	})
	return names
}

func holder(row pgx.CollectableRow) (string, error) {
	var locked, prepared string
	var h db.LockHolder
	err := row.Scan(&locked, &h.PID, &h.Role, &h.Application, &h.Since, &prepared)
	if prepared != "" {
		return fmt.Sprintf("%s by a prepared transaction (ROLLBACK PREPARED '%s' ends it)", locked, strings.ReplaceAll(prepared, "'", "''")), err
	}
	return fmt.Sprintf("%s by %s", locked, h), err
}

// named adds the sessions that lock the rows of these jobs to a lock error.
func (s *Store) named(ctx context.Context, err error, ids ...int64) error {
	if !errors.Is(err, ErrLocked) || len(ids) == 0 {
		return err
	}
	if holders := s.Holders(ctx, ids...); holders != "" {
		return fmt.Errorf(
			"%w: %s; SELECT pg_terminate_backend(number) ends a session; `belfry halt`, or a pause of the job's lane, holds "+
				"its messages meanwhile", err, holders)
	}
	return err
}
