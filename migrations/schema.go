package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/pressly/goose/v3"
)

// ErrOlder reports a schema that is missing, or older than this belfry.
var ErrOlder = errors.New("the database schema is older than this belfry")

// ErrNewer reports a schema that this belfry may not use, because a newer belfry has migrated the database.
var ErrNewer = errors.New("the database schema is newer than this belfry")

// Schema is the state of a database's schema.
type Schema struct {
	// Version is the version of the newest applied migration; 0 means that there is none.
	Version int64
	// UsableFrom is the result of belfry.usable_from(): a binary may use a newer schema than its own if it
	// has the migrations up to this version. It is 0 unless the schema is newer than this binary's.
	UsableFrom int64
}

// Newer reports whether the schema has migrations that this binary does not have.
func (s Schema) Newer() bool { return s.Version > Latest() }

// Check returns an error that is ErrOlder or ErrNewer if this binary may not use the schema. It may use the
// schema of its own version, and a newer one from UsableFrom on: only a migration that removes something that
// this version uses raises UsableFrom above it.
func (s Schema) Check() error {
	switch latest := Latest(); {
	case s.Version == 0:
		return &olderError{"this database has no belfry schema yet; create it with `belfry migrate up`"}
	case s.Version < latest:
		return &olderError{fmt.Sprintf("the schema is at version %d, this belfry needs %d; update it with `belfry migrate up`", s.Version, latest)}
	case s.Newer() && s.UsableFrom > latest:
		return fmt.Errorf("%w: it is at version %d, for a belfry that knows version %d, and this belfry knows up to %d; use a newer belfry",
			ErrNewer, s.Version, s.UsableFrom, latest)
	}
	return nil
}

// String describes a newer schema that this binary may use.
func (s Schema) String() string {
	return fmt.Sprintf("version %d, newer than this belfry, which knows up to %d and may use it: upgrade this belfry", s.Version, Latest())
}

// olderError is ErrOlder with a text.
type olderError struct{ text string }

func (e *olderError) Error() string        { return e.text }
func (e *olderError) Is(target error) bool { return target == ErrOlder }

// readSchema returns the schema of a database.
func (c Config) readSchema(ctx context.Context, db *sql.DB, p *goose.Provider) (s Schema, err error) {
	if s.Version, err = p.GetDBVersion(ctx); err == nil && s.Version > c.latest() {
		//sql:allow migrations stands alone
		err = db.QueryRowContext(ctx, "SELECT belfry.usable_from()").Scan(&s.UsableFrom)
	}
	return s, err
}
