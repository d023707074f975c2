package channels

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/db"
)

// Segment is a named set of channels.
type Segment struct {
	Name        string    `json:"name"`
	Description string    `json:"description"`
	Members     int64     `json:"members"`    // SegmentCounts+1 means more than SegmentCounts
	CreatedAt   time.Time `json:"created_at"` // the database's clock
}

// SegmentCounts is the largest number of members that ListSegments counts; Count counts all.
const SegmentCounts = 10_000

// MemberKey is the column that identifies the members of a segment.
type MemberKey string

// The member keys.
const (
	ByID         MemberKey = "id"
	ByExternalID MemberKey = "external_id"
)

// SegmentChange counts the effects of a change of a segment.
type SegmentChange struct {
	Given   int64 `json:"given"`   // keys read, repeated ones included
	Added   int64 `json:"added"`   // channels that became members
	Removed int64 `json:"removed"` // channels that ceased to be members
	Unknown int64 `json:"unknown"` // different keys without a channel, left out
	// UnknownSample is up to five of the unknown keys.
	UnknownSample []string `json:"unknown_sample" mask:"text"`
}

// By specifies who changes an object and why, for the events. An empty Actor is recorded as the
// database session's user.
type By struct {
	Actor, Reason string
	// If is the version of a category that the change expects; another version is a
	// *db.StaleError, and nothing is changed. Nil accepts any version. Other objects ignore it.
	If *db.Precondition
}

// SegmentEdit specifies a change of the members of a segment, or its deletion.
type SegmentEdit struct {
	Segment string    // its name
	Key     MemberKey // the key of the given members
	By      By
	// Agree receives the change before the commit. Its error rolls the change back and is returned.
	// Nil accepts every change.
	Agree func(SegmentChange) error
}

// CreateSegment makes an empty segment. The name has 1 to 63 letters, digits,
// _ . and -, the first a letter or digit. A name in use is ErrSegmentExists.
func (s *Store) CreateSegment(ctx context.Context, q Querier, name, description string, by By) error {
	if err := InSegment(name).Validate(); err != nil {
		return err
	}
	err := q.QueryRow(ctx, queries.segmentCreate,
		pgx.StrictNamedArgs{"segment": name, "description": description, "actor": by.Actor, "reason": by.Reason}).Scan(nil)
	if err != nil {
		return fmt.Errorf("channels: create segment %q: %w", name, Explain(err))
	}
	return nil
}

// DropSegment deletes a segment and counts its members. An unknown segment is ErrNoSegment. A running job
// on the segment finds no further members and ends early.
func (s *Store) DropSegment(ctx context.Context, db Beginner, e SegmentEdit) (SegmentChange, error) {
	return holdSegment(ctx, db, e, "drop", func(tx pgx.Tx, change *SegmentChange) error {
		if err := tx.QueryRow(ctx, queries.segmentMembers, pgx.StrictNamedArgs{"segment": e.Segment}).Scan(&change.Removed); err != nil {
			return err
		}
		if err := e.agree(*change); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, queries.segmentDrop, pgx.StrictNamedArgs{"segment": e.Segment, "actor": e.By.Actor, "reason": e.By.Reason})
		return err
	})
}

// ListSegments returns every segment by name.
func (s *Store) ListSegments(ctx context.Context, q Querier) ([]Segment, error) {
	args := pgx.StrictNamedArgs{"most": SegmentCounts + 1}
	list, err := db.Collect(ctx, q, queries.segmentList, args, func(row pgx.CollectableRow) (Segment, error) {
		var g Segment
		err := row.Scan(&g.Name, &g.Description, &g.CreatedAt, &g.Members)
		g.CreatedAt = g.CreatedAt.UTC()
		return g, err
	})
	if err != nil {
		return nil, fmt.Errorf("channels: list segments: %w", Explain(err))
	}
	return list, nil
}

// SetSegment makes the channels named in r, one key per line, the members of an
// existing segment: missing ones are added and others removed, in one
// transaction, so that a walk sees the old set or the new one. A channel in
// both is not written. Keys without a channel are counted and left out; blank
// lines are skipped; an invalid key is ErrMember with its line number,
// and nothing is changed. A change is recorded as one event with its counts.
func (s *Store) SetSegment(ctx context.Context, db Beginner, e SegmentEdit, r io.Reader) (SegmentChange, error) {
	return s.changeSegment(ctx, db, e, r, func(ctx context.Context, tx pgx.Tx, c *SegmentChange) error {
		tag, err := tx.Exec(ctx, queries.segmentDeleteOthers, pgx.StrictNamedArgs{"segment": e.Segment})
		c.Removed = tag.RowsAffected()
		if err != nil {
			return err
		}
		return addMembers(ctx, tx, e.Segment, c)
	})
}

// AddToSegment adds members as SetSegment does, and removes none.
func (s *Store) AddToSegment(ctx context.Context, db Beginner, e SegmentEdit, r io.Reader) (SegmentChange, error) {
	return s.changeSegment(ctx, db, e, r, func(ctx context.Context, tx pgx.Tx, c *SegmentChange) error {
		return addMembers(ctx, tx, e.Segment, c)
	})
}

// RemoveFromSegment removes the channels named in r, read as by SetSegment.
func (s *Store) RemoveFromSegment(ctx context.Context, db Beginner, e SegmentEdit, r io.Reader) (SegmentChange, error) {
	return s.changeSegment(ctx, db, e, r, func(ctx context.Context, tx pgx.Tx, c *SegmentChange) error {
		tag, err := tx.Exec(ctx, queries.segmentDelete, pgx.StrictNamedArgs{"segment": e.Segment})
		c.Removed = tag.RowsAffected()
		return err
	})
}

func addMembers(ctx context.Context, tx pgx.Tx, name string, c *SegmentChange) error {
	tag, err := tx.Exec(ctx, queries.segmentInsert, pgx.StrictNamedArgs{"segment": name})
	c.Added = tag.RowsAffected()
	return err
}

// changeSegment stages and resolves the keys and applies the change, all in one
// transaction that holds the segment's row.
func (s *Store) changeSegment(ctx context.Context, db Beginner, e SegmentEdit, r io.Reader,
	apply func(context.Context, pgx.Tx, *SegmentChange) error,
) (SegmentChange, error) {
	var resolve string
	switch e.Key {
	case ByID:
		resolve = s.render(queries.segmentResolveIDs)
	case ByExternalID:
		resolve = s.render(queries.segmentResolveExternalIDs)
	default:
		return SegmentChange{}, fmt.Errorf("channels: members by %q; allowed values: id, external_id", e.Key)
	}
	return holdSegment(ctx, db, e, "change", func(tx pgx.Tx, change *SegmentChange) error {
		if _, err := tx.Exec(ctx, queries.segmentStage); err != nil {
			return err
		}
		source := &memberSource{lines: bufio.NewScanner(r), by: e.Key}
		var err error
		if change.Given, err = tx.CopyFrom(ctx, pgx.Identifier{"pg_temp", "belfry_members"}, []string{"key"}, source); source.err != nil {
			return fmt.Errorf("%w: %w", ErrMember, source.err)
		} else if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, resolve); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, queries.segmentUnknown).Scan(&change.Unknown, &change.UnknownSample); err != nil {
			return err
		}
		if err := apply(ctx, tx, change); err != nil {
			return err
		}
		if err := e.agree(*change); err != nil {
			return err
		}
		if change.Added+change.Removed == 0 {
			return nil
		}
		_, err = tx.Exec(ctx, queries.segmentRecord, pgx.StrictNamedArgs{
			"segment": e.Segment, "actor": e.By.Actor, "reason": e.By.Reason, "added": change.Added, "removed": change.Removed,
		})
		return err
	})
}

// holdSegment changes a segment in a transaction that holds its row.
func holdSegment(ctx context.Context, db Beginner, e SegmentEdit, verb string,
	do func(pgx.Tx, *SegmentChange) error) (change SegmentChange, err error) {
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		change = SegmentChange{}
		if err := tx.QueryRow(ctx, queries.segmentLock, pgx.StrictNamedArgs{"segment": e.Segment}).Scan(nil); err != nil {
			return err
		}
		return do(tx, &change)
	})
	var disagreed *disagreedError
	if errors.As(err, &disagreed) {
		return change, disagreed.error
	}
	if err != nil {
		return SegmentChange{}, segmentError(verb, e.Segment, err)
	}
	return change, nil
}

func segmentError(verb, name string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, pgx.ErrNoRows):
		return fmt.Errorf("channels: %s segment: %w: %q", verb, ErrNoSegment, name)
	case errors.Is(err, ErrMember):
		return err
	}
	return fmt.Errorf("channels: %s segment %q: %w", verb, name, Explain(err))
}

// disagreedError is the error of Agree.
type disagreedError struct{ error }

// agree calls Agree.
func (e SegmentEdit) agree(c SegmentChange) error {
	if e.Agree == nil {
		return nil
	}
	if err := e.Agree(c); err != nil {
		return &disagreedError{err}
	}
	return nil
}

// memberSource feeds COPY with the keys of a file, one per line.
type memberSource struct {
	lines *bufio.Scanner
	by    MemberKey
	line  int
	key   string
	err   error
}

func (m *memberSource) Next() bool {
	for m.err == nil && m.lines.Scan() {
		m.line++
		m.key = strings.TrimSpace(m.lines.Text())
		if m.line == 1 {
			m.key = strings.TrimPrefix(m.key, "\uFEFF")
		}
		if m.key == "" {
			continue
		}
		m.err = m.check()
		return m.err == nil
	}
	if err := m.lines.Err(); m.err == nil && err != nil {
		m.err = fmt.Errorf("line %d: %w", m.line+1, err)
	}
	return false
}

// check rejects invalid keys.
func (m *memberSource) check() error {
	if m.by == ByID {
		id, err := strconv.ParseInt(m.key, 10, 64)
		if err != nil {
			return fmt.Errorf("line %d: %s is not a channel id; allowed values: whole numbers", m.line, Clip(m.key))
		}
		m.key = strconv.FormatInt(id, 10)
		return nil
	}
	if !utf8.ValidString(m.key) || strings.ContainsRune(m.key, 0) {
		return fmt.Errorf("line %d: not UTF-8 text", m.line)
	}
	return nil
}

func (m *memberSource) Values() ([]any, error) { return []any{m.key}, nil }

func (m *memberSource) Err() error { return m.err }
