package channels

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/belfryhq/belfry/internal/db"
)

// Errors of the package; compare with errors.Is.
var (
	// ErrAudience: the audience is malformed. The text names the key and the
	// allowed values.
	ErrAudience = db.NewError(db.KindInvalid, "audience")
	// ErrRelation: the relation does not exist, or a column is missing or has
	// another type. Check returns every fault.
	ErrRelation = errors.New("channels.relation does not keep the contract; `belfry doctor` names every fault")
	// ErrNoSegment: no segment has that name.
	ErrNoSegment = db.NewError(db.KindNotFound, "no such segment")
	// ErrSegmentExists: a segment of that name exists already.
	ErrSegmentExists = db.NewError(db.KindConflict, "the segment exists already")
	// ErrMember: a line is not a valid key of a channel. The text has the line number and the
	// allowed values.
	ErrMember = errors.New("member")
	// ErrNoChannel: no channel has that id or external id.
	ErrNoChannel = db.NewError(db.KindNotFound, "no such channel")
	// ErrPreference: an opt-out or a category's setting is not allowed. The text names
	// the column and the allowed values.
	ErrPreference = db.NewError(db.KindInvalid, "preference")
	// ErrNoCategory: no category has that name.
	ErrNoCategory = db.NewError(db.KindNotFound, "no such category")
	// ErrCategoryExists: a category of that name exists already.
	ErrCategoryExists = db.NewError(db.KindConflict, "the category exists already")
	// ErrNotOwn: the operation writes channels, and channels.relation is not
	// belfry.channels.
	ErrNotOwn = db.NewError(db.KindConflict, "only belfry.channels can be written")
)

// wrap adds the operation and the relation to a database error, and ErrUnreachable to that of a lost connection.
func (s *Store) wrap(operation string, err error) error {
	if db.ClassOf(err) == db.Unreachable && !errors.Is(err, db.ErrUnreachable) {
		err = fmt.Errorf("%w: %w", db.ErrUnreachable, err)
	}
	return fmt.Errorf("channels: %s of %s: %w", operation, s.name, Explain(err))
}

// Explain adds the error of this package, such as ErrPreference, that a database error stands for.
func Explain(err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return err
	}
	if message, refused := db.Refusal(pg); refused && (pg.TableName == "opt_outs" || pg.TableName == "categories") {
		said := *pg
		said.Message = message
		return fmt.Errorf("%w: %w", ErrPreference, &said)
	}
	switch {
	case db.ClassOf(err) == db.Missing:
		return fmt.Errorf("%w: %w", ErrRelation, err)
	case pg.Code == db.ForeignKeyViolation && pg.ConstraintName == "segment_members_segment_fkey":
		return fmt.Errorf("%w: %w", ErrNoSegment, err)
	case pg.Code == db.UniqueViolation && pg.ConstraintName == "categories_pkey":
		return fmt.Errorf("%w: %w", ErrCategoryExists, err)
	case pg.Code == db.UniqueViolation && pg.ConstraintName == "segments_pkey":
		return fmt.Errorf("%w: %w", ErrSegmentExists, err)
	}
	return db.Explain(err)
}
