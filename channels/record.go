package channels

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// A MismatchError reports that SQL functions (belfry.send_external, belfry.audience_missing) do not read
// channels.relation, because belfry.recipients names another relation, or another owner of it.
type MismatchError struct {
	Relation  string // channels.relation
	Owner     string // of that relation
	Was       string // the relation that is recorded
	WasOwner  string // its owner when it was recorded
	MayRecord bool   // this user may correct it
	Recorder  string // the role that may: the owner of the schema belfry
}

func (m *MismatchError) Error() string {
	if m.Was == m.Relation {
		return fmt.Sprintf("channels: %s belongs to %s, and to %s when it was recorded, so SQL functions do not read it; %s",
			m.Relation, m.Owner, m.WasOwner, m.Remedy())
	}
	return fmt.Sprintf("channels: SQL functions read recipients from %s, and channels.relation is %s; %s", m.Was, m.Relation, m.Remedy())
}

// Remedy is the statement that records the relation. SQL functions run with their caller's
// rights, so it also trusts the relation's owner with these.
func (m *MismatchError) Remedy() string {
	return fmt.Sprintf("as %s, who owns the schema belfry: SELECT belfry.record_recipients('%s')", m.Recorder,
		strings.ReplaceAll(m.Relation, "'", "''"))
}

// Recorded compares channels.relation with the relation that belfry.recipients names. Nil
// means that they are the same, or that there is no such relation.
func (s *Store) Recorded(ctx context.Context, q Querier) (*MismatchError, error) {
	var m MismatchError
	err := q.QueryRow(ctx, queries.recipientsRecorded, pgx.StrictNamedArgs{"relation": s.relation}).
		Scan(&m.Relation, &m.Was, &m.WasOwner, &m.Owner, &m.MayRecord, &m.Recorder)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, nil //nolint:nilnil // in step
	case err != nil:
		return nil, fmt.Errorf("channels: read belfry.recipients: %w", err)
	}
	return &m, nil
}

// Record records channels.relation in belfry.recipients, which SQL functions and checks of
// audiences read. It returns the relation that was recorded before, if it changed anything.
// Only the schema's owner and superusers may record it; other users get a *MismatchError with the remedy.
func (s *Store) Record(ctx context.Context, db Beginner) (was string, err error) {
	m, err := s.Recorded(ctx, db)
	switch {
	case err != nil || m == nil:
		return "", err
	case !m.MayRecord:
		return "", m
	}
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, queries.recipientsRecord, pgx.StrictNamedArgs{"relation": s.relation})
		return err
	})
	if err != nil {
		return "", fmt.Errorf("channels: record %s in belfry.recipients: %w", s.name, err)
	}
	return m.Was, nil
}

// HasAddresses reports whether the relation has the column addresses.
func (s *Store) HasAddresses(ctx context.Context, q Querier) (bool, error) {
	have, err := s.Columns(ctx, q)
	_, ok := have["addresses"]
	return ok, err
}
