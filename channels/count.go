package channels

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Unknown returns the number of entries without a channel in an audience of kind channels, and up to
// five of them. For other audiences it returns 0.
func (s *Store) Unknown(ctx context.Context, q Querier, a Audience) (n int64, sample []string, err error) {
	if a.Kind != KindChannels {
		return 0, nil, nil
	}
	err = q.QueryRow(ctx, s.render(queries.listedWithout), pgx.StrictNamedArgs{"ids": a.IDs, "external_ids": a.ExternalIDs}).Scan(&n, &sample)
	if err != nil {
		return 0, nil, s.wrap("check the listed channels", err)
	}
	return n, sample, nil
}

// Count returns the exact number of active channels that match an audience now.
// Everyone and platforms read the whole relation, a circle its index entries, a
// list or a segment its members; the deadline of ctx limits the reading. A
// malformed audience is ErrAudience, an unknown segment ErrNoSegment, a circle in a relation
// without location ErrRelation.
func (s *Store) Count(ctx context.Context, q Querier, a Audience) (int64, error) {
	if err := a.Validate(); err != nil {
		return 0, err
	}
	have, err := s.Columns(ctx, q)
	if err != nil {
		return 0, err
	}
	if err := s.requireColumns(have, a); err != nil {
		return 0, err
	}
	var platforms []string // NULL: any
	if len(a.Platforms) > 0 {
		platforms = a.Platforms
	}
	var n int64

	var row pgx.Row
	switch a.Kind {
	case KindEveryone, KindPlatforms:
		row = q.QueryRow(ctx, s.sql.countEveryone, pgx.StrictNamedArgs{"platforms": platforms})
	case KindRadius:
		args := circleArgs(a, boundingBoxes(a.Latitude, a.Longitude, a.RadiusM))
		args["platforms"] = platforms
		row = q.QueryRow(ctx, s.sql.countRadius, args)
	case KindChannels:
		if len(a.IDs) > 0 {
			row = q.QueryRow(ctx, s.sql.countIDs, pgx.StrictNamedArgs{"ids": a.IDs})
		} else {
			row = q.QueryRow(ctx, s.sql.countExternalIDs, pgx.StrictNamedArgs{"external_ids": a.external()})
		}
	case KindSegment:
		var exists bool
		err := q.QueryRow(ctx, s.sql.countSegment, pgx.StrictNamedArgs{"segment": a.Segment, "platforms": platforms}).Scan(&exists, &n)
		if err != nil {
			return 0, s.wrap("count an audience", err)
		}
		if !exists {
			return 0, fmt.Errorf("channels: %w: %q", ErrNoSegment, a.Segment)
		}
		return n, nil
	}
	if err := row.Scan(&n); err != nil {
		return 0, s.wrap("count an audience", err)
	}
	return n, nil
}
