package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/migrations"
)

// CheckSchema returns an error if the schema of the database is missing or of another version than this
// belfry's.
func CheckSchema(ctx context.Context, pool *pgxpool.Pool) error {
	var exists bool
	var version int64
	err := pool.QueryRow(ctx, queries.schemaExists).Scan(&exists)
	if err == nil && exists {
		err = pool.QueryRow(ctx, queries.schemaVersion).Scan(&version)
	}
	if err != nil {
		return job.TranslateOutage(fmt.Errorf("read the version of the schema: %w", err), job.ErrLocked)
	}
	switch latest := migrations.Latest(); {
	case version == 0:
		return errors.New("this database has no belfry schema yet; create it with `belfry migrate up`")
	case version != latest:
		return fmt.Errorf(
			"the schema is at version %d, this belfry needs %d; run `belfry migrate up`, or use the belfry of that schema", version, latest)
	}
	return nil
}
