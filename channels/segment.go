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
)

// Segment is a named set of channels.
type Segment struct {
	Name        string    `json:"name"`
	Description string    `json:"description"`
	Members     int64     `json:"members"`    // SegmentCounts+1 are more than SegmentCounts: further nobody counts
	CreatedAt   time.Time `json:"created_at"` // the database's clock
}

// SegmentCounts is how far ListSegments counts the members of a segment; Count counts all.
const SegmentCounts = 10_000

// MemberKey says what the members of a segment are named by.
type MemberKey string

// The ways to name members.
const (
	ByID         MemberKey = "id"
	ByExternalID MemberKey = "external_id"
)

// SegmentChange tells what a change of a segment did.
type SegmentChange struct {
	Given   int64 `json:"given"`   // keys read, repeated ones included
	Added   int64 `json:"added"`   // channels that became members
	Removed int64 `json:"removed"` // channels that ceased to be members
	Unknown int64 `json:"unknown"` // different keys without a channel, left out
	// UnknownSample is up to five of the unknown keys.
	UnknownSample []string `json:"unknown_sample"`
}

// CreateSegment makes an empty segment. The name has 1 to 63 letters, digits,
// _ . and -, the first a letter or digit. A name in use is ErrSegmentExists.
func (s *Store) CreateSegment(ctx context.Context, q Querier, name, description string) error {
	if err := InSegment(name).Validate(); err != nil {
		return err
	}
	err := q.QueryRow(ctx, queries.segmentCreate, pgx.StrictNamedArgs{"segment": name, "description": description}).Scan(nil)
	if err != nil {
		return fmt.Errorf("channels: create segment %q: %w", name, mapError(err))
	}
	return nil
}

// DropSegment removes a segment and its members; ErrNoSegment if there is none.
// A job on it that is under way finds no further members and ends early.
func (s *Store) DropSegment(ctx context.Context, q Querier, name string) error {
	err := q.QueryRow(ctx, queries.segmentDrop, pgx.StrictNamedArgs{"segment": name}).Scan(nil)
	return segmentError("drop", name, err)
}

// ListSegments returns every segment by name.
func (s *Store) ListSegments(ctx context.Context, q Querier) ([]Segment, error) {
	rows, err := q.Query(ctx, queries.segmentList, pgx.StrictNamedArgs{"most": SegmentCounts + 1})
	if err != nil {
		return nil, fmt.Errorf("channels: list segments: %w", mapError(err))
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Segment, error) {
		var g Segment
		err := row.Scan(&g.Name, &g.Description, &g.CreatedAt, &g.Members)
		g.CreatedAt = g.CreatedAt.UTC()
		return g, err
	})
	if err != nil {
		return nil, fmt.Errorf("channels: list segments: %w", mapError(err))
	}
	return list, nil
}

// SetSegment makes the channels named in r, one key per line, the members of an
// existing segment: missing ones are added and others removed, in one
// transaction, so that a walk sees the old set or the new one. A channel in
// both is not touched. Keys without a channel are counted and left out; blank
// lines are skipped; a line that cannot be a key is an error with its number
// and nothing is changed.
func (s *Store) SetSegment(ctx context.Context, db Beginner, name string, by MemberKey, r io.Reader) (SegmentChange, error) {
	return s.changeSegment(ctx, db, name, by, r, func(ctx context.Context, tx pgx.Tx, c *SegmentChange) error {
		tag, err := tx.Exec(ctx, queries.segmentDeleteOthers, pgx.StrictNamedArgs{"segment": name})
		c.Removed = tag.RowsAffected()
		if err != nil {
			return err
		}
		return addMembers(ctx, tx, name, c)
	})
}

// AddToSegment is SetSegment without removing anybody.
func (s *Store) AddToSegment(ctx context.Context, db Beginner, name string, by MemberKey, r io.Reader) (SegmentChange, error) {
	return s.changeSegment(ctx, db, name, by, r, func(ctx context.Context, tx pgx.Tx, c *SegmentChange) error {
		return addMembers(ctx, tx, name, c)
	})
}

// RemoveFromSegment removes the channels named in r, read as by SetSegment.
func (s *Store) RemoveFromSegment(ctx context.Context, db Beginner, name string, by MemberKey, r io.Reader) (SegmentChange, error) {
	return s.changeSegment(ctx, db, name, by, r, func(ctx context.Context, tx pgx.Tx, c *SegmentChange) error {
		tag, err := tx.Exec(ctx, queries.segmentDelete, pgx.StrictNamedArgs{"segment": name})
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
func (s *Store) changeSegment(ctx context.Context, db Beginner, name string, by MemberKey, r io.Reader,
	apply func(context.Context, pgx.Tx, *SegmentChange) error,
) (SegmentChange, error) {
	var resolve string
	switch by {
	case ByID:
		resolve = s.render(queries.segmentResolveIDs)
	case ByExternalID:
		resolve = s.render(queries.segmentResolveExternalIDs)
	default:
		return SegmentChange{}, fmt.Errorf("channels: members by %q; allowed values: id, external_id", by)
	}
	var change SegmentChange
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		change = SegmentChange{}
		if err := tx.QueryRow(ctx, queries.segmentLock, pgx.StrictNamedArgs{"segment": name}).Scan(nil); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, queries.segmentStage); err != nil {
			return err
		}
		source := &memberSource{lines: bufio.NewScanner(r), by: by}
		var err error
		if change.Given, err = tx.CopyFrom(ctx, pgx.Identifier{"pg_temp", "belfry_members"}, []string{"key"}, source); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, resolve); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, queries.segmentUnknown).Scan(&change.Unknown, &change.UnknownSample); err != nil {
			return err
		}
		return apply(ctx, tx, &change)
	})
	if err != nil {
		return SegmentChange{}, segmentError("change", name, err)
	}
	return change, nil
}

func segmentError(verb, name string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, pgx.ErrNoRows):
		return fmt.Errorf("channels: %s segment: %w: %q", verb, ErrNoSegment, name)
	}
	return fmt.Errorf("channels: %s segment %q: %w", verb, name, mapError(err))
}

// memberSource feeds COPY with the keys of a file, a line each.
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

// check refuses what cannot be a key of the kind.
func (m *memberSource) check() error {
	if m.by == ByID {
		id, err := strconv.ParseInt(m.key, 10, 64)
		if err != nil {
			return fmt.Errorf("line %d: %s is not a channel id; allowed values: whole numbers", m.line, clip(m.key))
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
