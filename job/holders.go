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
// as "job 17 by session 4711 of app_web (psql)". It is empty if there are none, if several sessions share a
// lock, or if the database does not answer.
func (s *Store) Holders(ctx context.Context, ids ...int64) string {
	var names []string
	_ = db.InTx(context.WithoutCancel(ctx), s.pool, db.Options{Limit: holdersLimit, Reads: true}, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, queries.rowHolders, pgx.StrictNamedArgs{"ids": ids})
		if err != nil {
			return fmt.Errorf("sessions that lock jobs: %w", err)
		}
		names, err = pgx.CollectRows(rows, holder)
		return err
	})
	return strings.Join(names, ", ")
}

func holder(row pgx.CollectableRow) (string, error) {
	var id int64
	var h db.LockHolder
	err := row.Scan(&id, &h.PID, &h.Role, &h.Application, &h.Since)
	return fmt.Sprintf("job %d by %s", id, h), err
}

// named adds the sessions that lock the rows of these jobs to a lock error.
func (s *Store) named(ctx context.Context, err error, ids ...int64) error {
	if !errors.Is(err, ErrLocked) || len(ids) == 0 {
		return err
	}
	if holders := s.Holders(ctx, ids...); holders != "" {
		return fmt.Errorf("%w: %s; SELECT pg_terminate_backend(number) ends a session", err, holders)
	}
	return err
}
