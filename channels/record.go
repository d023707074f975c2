package channels

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Recorded returns the relation that belfry.recipients names, when that or its columns is
// not what the relation is now; "": it is in step, or there is no such relation.
func (s *Store) Recorded(ctx context.Context, q Querier) (string, error) {
	var was string
	err := q.QueryRow(ctx, queries.recipientsRecorded, s.recordArgs()).Scan(&was)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return "", fmt.Errorf("channels: read belfry.recipients: %w", err)
	}
	return was, nil
}

// Record has belfry.recipients say what the relation is now: by it the database refuses a
// radius of a relation without location when it is asked for, and SQL functions find
// channels. It returns the name of the relation that was recorded before, when it changed
// anything.
func (s *Store) Record(ctx context.Context, db Beginner) (was string, err error) {
	was, err = s.Recorded(ctx, db)
	if err != nil || was == "" {
		return "", err
	}
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, queries.recipientsRecord, s.recordArgs())
		return err
	})
	if lacksRight(err) {
		return "", fmt.Errorf("channels: belfry.recipients says %s, and this user may not correct it: GRANT UPDATE ON belfry.recipients: %w", was, err)
	}
	if err != nil {
		return "", fmt.Errorf("channels: record %s in belfry.recipients: %w", s.name, err)
	}
	return was, nil
}

func (s *Store) recordArgs() pgx.StrictNamedArgs {
	names := make([]string, 0, len(optional))
	for _, o := range optional {
		names = append(names, o.name)
	}
	return pgx.StrictNamedArgs{"relation": s.relation, "optional": names}
}

// HasAddresses reports whether the relation has the column that messages find their
// addresses in.
func (s *Store) HasAddresses(ctx context.Context, q Querier) (bool, error) {
	have, err := s.columns(ctx, q)
	_, ok := have["addresses"]
	return ok, err
}
