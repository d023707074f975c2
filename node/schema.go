package node

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/migrations"
)

// SchemaVersion returns the version of the newest migration in the database, or 0 if it has none. An outage
// of the database is an error that is job.ErrUnreachable or job.ErrTooSlow.
func SchemaVersion(ctx context.Context, pool *pgxpool.Pool) (int64, error) {
	version, err := db.SchemaVersion(ctx, pool)
	if err != nil {
		return 0, job.TranslateOutage(err, job.ErrLocked)
	}
	return version, nil
}

// CheckSchema returns an error if the schema of the database is missing or of another version than this
// belfry's.
func CheckSchema(ctx context.Context, pool *pgxpool.Pool) error {
	version, err := SchemaVersion(ctx, pool)
	if err != nil {
		return err
	}
	return migrations.Check(version)
}
