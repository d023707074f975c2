package channels

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/cursor"
	"github.com/belfryhq/belfry/dev/dbtest"
)

// BenchmarkWalk_IDs reads a million channels all over the world, or a circle of them, in
// pages of 50,000 and reports keys and matches per second. Keys are what the
// walk examines.
func BenchmarkWalk_IDs(b *testing.B) {
	const channels = 1_000_000
	ctx := b.Context()
	pool := dbtest.New(b).Pool
	store, err := New(DefaultConfig())
	require.NoError(b, err)
	_, err = pool.Exec(ctx, `INSERT INTO belfry.channels (external_id, platform, active, location)
		SELECT n::text, (ARRAY['ios', 'android', 'web'])[1 + n % 3], n % 100 <> 0, point((n * 7919 % 3600) / 10.0 - 180, (n * 104729 % 1400) / 10.0 - 60)
		FROM generate_series(1, $1::bigint) n`, channels)
	require.NoError(b, err)
	_, err = pool.Exec(ctx, `VACUUM (ANALYZE) belfry.channels`)
	require.NoError(b, err)
	_, err = pool.Exec(ctx, `INSERT INTO belfry.segments (name) VALUES ('half'); INSERT INTO belfry.segment_members SELECT 'half', id FROM belfry.channels WHERE id % 2 = 0`)
	require.NoError(b, err)
	bound, err := store.Bound(ctx, pool)
	require.NoError(b, err)
	for _, bm := range []struct {
		name     string
		audience Audience
		full     bool
	}{
		{"everyone", Everyone(), false},
		{"everyone/channels", Everyone(), true},
		{"platforms", OnPlatforms("ios"), false},
		{"circle/30km", Within(37.57, 126.98, 30000), false},
		{"circle/1000km", Within(37.57, 126.98, 1e6), false},
		{"circle/dense", Within(0, 0, 1.9e7), false},
		{"segment", InSegment("half"), false},
	} {
		b.Run(bm.name, func(b *testing.B) {
			b.ReportAllocs()
			var keys, matches int
			for b.Loop() {
				w, err := store.Open(ctx, pool, bm.audience, cursor.Position{}, bound)
				require.NoError(b, err)
				var at cursor.Position
				for {
					var read, rows int
					if bm.full {
						page, err := w.Channels(ctx, pool, at, 50000)
						require.NoError(b, err)
						read, rows, at = page.Read, len(page.Rows), page.Next
					} else {
						page, err := w.IDs(ctx, pool, at, 50000)
						require.NoError(b, err)
						read, rows, at = page.Read, len(page.Rows), page.Next
					}
					if read == 0 {
						break
					}
					keys += read
					matches += rows
				}
			}
			b.ReportMetric(float64(keys)/b.Elapsed().Seconds(), "keys/s")
			b.ReportMetric(float64(matches)/b.Elapsed().Seconds(), "matches/s")
		})
	}
}
