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

// holdersLimit bounds the search for the sessions that keep rows locked: the act has failed.
const holdersLimit = 2 * time.Second

// Holders names the sessions that keep the rows of these jobs locked now, without ids those of all
// RUNNING jobs, such as "job 17 by session 4711 of app_web (psql)". It is empty if there are none, if
// several sessions share a lock, or if the database does not answer.
func (s *Store) Holders(ctx context.Context, ids ...int64) string {
	var names []string
	_ = db.InTx(context.WithoutCancel(ctx), s.pool, db.Options{Limit: holdersLimit, Reads: true}, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, queries.rowHolders, pgx.StrictNamedArgs{"ids": ids})
		if err != nil {
			return fmt.Errorf("sessions that keep jobs locked: %w", err)
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

// named adds to an error of a locked row which sessions keep the rows of these jobs locked.
func (s *Store) named(ctx context.Context, err error, ids ...int64) error {
	if !errors.Is(err, ErrLocked) || len(ids) == 0 {
		return err
	}
	if holders := s.Holders(ctx, ids...); holders != "" {
		return fmt.Errorf("%w: %s; SELECT pg_terminate_backend(number) ends a session", err, holders)
	}
	return err
}
