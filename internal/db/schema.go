package db

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// SchemaVersion returns the version of the newest migration in the database, or 0 if it has none.
func SchemaVersion(ctx context.Context, q interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
},
) (version int64, err error) {
	var exists bool
	if err = q.QueryRow(ctx, queries.schemaExists).Scan(&exists); err == nil && exists {
		err = q.QueryRow(ctx, queries.schemaVersion).Scan(&version)
	}
	if err != nil {
		return 0, fmt.Errorf("read the version of the schema: %w", err)
	}
	return version, nil
}
