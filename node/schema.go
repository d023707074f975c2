package node

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/migrations"
)

// ReadSchema returns the state of the database's schema. An outage of the database is an error that is
// job.ErrUnreachable or job.ErrTooSlow.
func ReadSchema(ctx context.Context, pool *pgxpool.Pool) (migrations.Schema, error) {
	version, usableFrom, err := db.ReadSchema(ctx, pool, migrations.Latest())
	if err != nil {
		return migrations.Schema{}, job.TranslateOutage(err, job.ErrLocked)
	}
	return migrations.Schema{Version: version, UsableFrom: usableFrom}, nil
}

// CheckSchema returns an error if the schema of the database is missing or this belfry may not use it. It
// logs the use of a newer schema.
func CheckSchema(ctx context.Context, pool *pgxpool.Pool, log zerolog.Logger) error {
	schema, err := ReadSchema(ctx, pool)
	if err != nil {
		return err
	}
	return AcceptSchema(schema, log)
}

// AcceptSchema is schema.Check, and logs the use of a newer schema.
func AcceptSchema(schema migrations.Schema, log zerolog.Logger) error {
	if err := schema.Check(); err != nil {
		return err
	}
	if schema.Newer() {
		log.Info().Stringer("detail", schema).Msg("the schema is newer than this belfry, which may use it")
	}
	return nil
}
