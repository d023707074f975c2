package db

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// ReadSchema returns the version of the newest migration in the database, and the oldest version that may use
// the schema if it is newer than known, the newest migration of this binary. Version 0 means that the database
// has no schema.
func ReadSchema(ctx context.Context, q interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, known int64,
) (version, usableFrom int64, err error) {
	var exists bool
	if err = q.QueryRow(ctx, queries.schemaExists).Scan(&exists); err == nil && exists {
		err = q.QueryRow(ctx, queries.schemaVersion).Scan(&version)
	}
	if err == nil && version > known {
		err = q.QueryRow(ctx, queries.schemaUsableFrom).Scan(&usableFrom)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("read the version of the schema: %w", err)
	}
	return version, usableFrom, nil
}
