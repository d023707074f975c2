package channels

import (
	"context"

	"github.com/belfryhq/belfry/cursor"
)

// sampleSlice is the number of keys that Sample reads at a time.
const sampleSlice = 1000

// Sample calls each with ids of the channels of an audience, ascending and never empty. If a walk of the
// audience examines no more than keys ids, these are all ids. Otherwise they are from slices that lie evenly over
// the ids and examine that number in all. Sample reports whether it read all ids. A malformed audience is
// ErrAudience.
func (s *Store) Sample(ctx context.Context, q Querier, a Audience, keys int, each func(ids []int64) error) (all bool, err error) {
	bound, err := s.Bound(ctx, q)
	if err != nil {
		return false, err
	}
	walk, err := s.Open(ctx, q, a, cursor.Position{}, bound)
	if err != nil {
		return false, err
	}
	all = walk.Total() <= int64(keys)
	var at cursor.Position
	for examined := 0; examined < keys; {
		page, err := walk.IDs(ctx, q, at, sampleSlice)
		if err != nil || page.Read == 0 {
			return all, err
		}
		if len(page.Rows) > 0 {
			if err := each(page.Rows); err != nil {
				return false, err
			}
		}
		examined += page.Read
		if at = page.Next; !all {
			at = sampleNext(at, bound, (keys-examined)/sampleSlice)
		}
	}
	// The estimate may have been too low.
	rest, err := walk.IDs(ctx, q, at, 1)
	return all && rest.Read == 0, err
}

// sampleNext is where the next slice begins, of those that are left.
func sampleNext(at, bound cursor.Position, left int) cursor.Position {
	now, _ := at.Int64()
	high, ok := bound.Int64()
	if !ok || left <= 0 || now >= high {
		return at
	}
	gap := (uint64(high) - uint64(now)) / uint64(left+1) //nolint:gosec // wraps as it should
	if gap <= sampleSlice {
		return at
	}
	return cursor.Int64(now + int64(gap-sampleSlice)) //nolint:gosec // below the bound
}
