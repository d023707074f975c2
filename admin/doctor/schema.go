package doctor

import (
	"context"
	"errors"
	"fmt"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/migrations"
)

// ErrSchema reports a schema that is missing, or older than this belfry.
var ErrSchema = errors.New("the schema is not this belfry's")

// schemaError is an ErrSchema with its own text.
type schemaError struct{ text string }

func (e *schemaError) Error() string        { return e.text }
func (e *schemaError) Is(target error) bool { return target == ErrSchema }

// SchemaVersion returns the version of the newest migration in the database, or 0 if it has none.
func SchemaVersion(ctx context.Context, q channels.Querier) (int64, error) {
	var exists bool
	if err := q.QueryRow(ctx, queries.schemaExists).Scan(&exists); err != nil {
		return 0, job.TranslateOutage(fmt.Errorf("find the belfry schema: %w", err), job.ErrLocked)
	}
	if !exists {
		return 0, nil
	}
	var version int64
	if err := q.QueryRow(ctx, queries.schemaVersion).Scan(&version); err != nil {
		return 0, job.TranslateOutage(fmt.Errorf("read the schema's version: %w", err), job.ErrLocked)
	}
	return version, nil
}

// SchemaProblem compares the database's version with the binary's. It returns an ErrSchema for an older
// database, and a migrations.ErrNewer for a newer one.
func SchemaProblem(have, latest int64) error {
	switch {
	case have == 0:
		return &schemaError{"this database has no belfry schema yet; create it with `belfry migrate up`"}
	case have < latest:
		return &schemaError{fmt.Sprintf("the schema is at version %d, this belfry needs %d; bring it up with `belfry migrate up`", have, latest)}
	case have > latest:
		return fmt.Errorf("%w: it is at version %d, this belfry knows up to %d; use the newer belfry", migrations.ErrNewer, have, latest)
	}
	return nil
}
