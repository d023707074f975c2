package channels

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/db"
)

// Inspected is the relation of one channel to an audience.
type Inspected struct {
	ID      int64
	Active  bool
	Matches bool // the audience contains it, or would if it were active
	// CreatedAt and UpdatedAt are nil if the relation has no such column of type timestamptz.
	CreatedAt, UpdatedAt *time.Time
}

// Inspection reads every channel of the relation and whether it matches one audience. It holds no connection
// and no position, and is safe for concurrent use.
type Inspection struct {
	store    *Store
	audience Audience
	page     string
	ids      []int64 // of kind channels, sorted
	boxes    []box
}

// Inspect prepares an Inspection. Unlike a walk, it treats an unknown segment
// as an empty segment. A malformed audience is ErrAudience.
func (s *Store) Inspect(ctx context.Context, q Querier, a Audience) (*Inspection, error) {
	if err := a.Validate(); err != nil {
		return nil, err
	}
	have, err := s.Columns(ctx, q)
	if err != nil {
		return nil, err
	}
	if err := s.requireColumns(have, a); err != nil {
		return nil, err
	}
	i := &Inspection{store: s, audience: a, page: s.renderOptional(queries.channelsInspect, have), ids: slices.Clone(a.IDs)}
	for _, name := range []string{"created_at", "updated_at"} {
		expression := "NULL::timestamptz"
		if have[name].Type == "timestamp with time zone" {
			expression = "c." + name
		}
		i.page = strings.ReplaceAll(i.page, "{{"+name+"}}", expression)
	}
	switch {
	case a.Kind == KindRadius:
		i.boxes = boundingBoxes(a.Latitude, a.Longitude, a.RadiusM)
	case len(a.ExternalIDs) > 0:
		if i.ids, err = s.resolve(ctx, q, a.external()); err != nil {
			return nil, err
		}
	}
	slices.Sort(i.ids)
	return i, nil
}

// Page returns the channels with ids above after, up to bound, ascending, at most
// limit of them; fewer mean that there are no more.
func (i *Inspection) Page(ctx context.Context, q Querier, after, bound int64, limit int) ([]Inspected, error) {
	args := circleArgs(i.audience, i.boxes)
	args["platforms"], args["segment"] = i.audience.Platforms, i.audience.Segment
	if len(i.audience.Platforms) == 0 {
		args["platforms"] = nil
	}
	if i.audience.Kind != KindSegment {
		args["segment"] = nil
	}
	args["after"], args["bound"], args["limit"] = after, bound, limit
	list, err := db.Collect(ctx, q, i.page, args, func(row pgx.CollectableRow) (c Inspected, err error) {
		err = row.Scan(&c.ID, &c.Active, &c.Matches, &c.CreatedAt, &c.UpdatedAt)
		if i.audience.Kind == KindChannels {
			_, c.Matches = slices.BinarySearch(i.ids, c.ID)
		}
		return c, err
	})
	if err != nil {
		return nil, i.store.wrap("inspect a page", err)
	}
	return list, nil
}

// Resolve returns the id of the channel with an external id, or ErrNoChannel.
func (s *Store) Resolve(ctx context.Context, q Querier, externalID string) (int64, error) {
	ids, err := s.resolve(ctx, q, []string{externalID})
	if err != nil {
		return 0, err
	}
	if len(ids) == 0 {
		return 0, fmt.Errorf("%w with external id %q in %s", ErrNoChannel, externalID, s.name)
	}
	return slices.Min(ids), nil
}

func (s *Store) resolve(ctx context.Context, q Querier, externalIDs []string) ([]int64, error) {
	ids, err := queryIDs(ctx, q, s.sql.resolveExternalIDs, pgx.StrictNamedArgs{
		"external_ids": externalIDs, "after": int64(math.MinInt64), "bound": int64(math.MaxInt64),
	})
	if err != nil {
		return nil, s.wrap("resolve external ids", err)
	}
	return ids, nil
}
