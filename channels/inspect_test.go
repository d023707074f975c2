package channels

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Everybody is in an inspection once, active or not, and matches exactly when a walk
// of the same audience would find him, were he active.
func TestInspect_AgreesWithTheWalk(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `INSERT INTO belfry.channels (id, external_id, platform, active, location)
		SELECT i * 2, 'u-' || i, (ARRAY['ios','android','web'])[1 + abs(i) % 3], i % 7 > 0,
		       CASE WHEN i % 11 = 0 THEN NULL ELSE point(i % 180, i % 85) END FROM generate_series(-500, 500) i`)
	b.exec(t, `INSERT INTO belfry.segments (name) VALUES ('s'), ('empty')`)
	b.exec(t, `INSERT INTO belfry.segment_members SELECT 's', i FROM generate_series(1, 999) i`)
	narrow := Within(10, 20, 4e6)
	narrow.Platforms = []string{"ios", "web"}
	for _, a := range []Audience{
		Everyone(), OnPlatforms("ios"), Within(-80, 179, 3e6), narrow, WithIDs(4, 2, 9, -100, 70000), WithExternalIDs("u-3", "u--14", "nobody"),
		InSegment("s"), InSegment("empty"), {Kind: KindSegment, Segment: "s", Platforms: []string{"android"}},
	} {
		want, _ := b.walkAll(t, a, 100)
		inspection, err := b.store.Inspect(b.ctx, b.pool, a)
		require.NoError(t, err)
		var got []int64
		var inactive, all int
		for after, more := int64(math.MinInt64), true; more; {
			page, err := inspection.Page(b.ctx, b.pool, after, math.MaxInt64, 64)
			require.NoError(t, err)
			for _, c := range page {
				require.Greater(t, c.ID, after)
				after = c.ID
				all++
				switch {
				case c.Matches && c.Active:
					got = append(got, c.ID)
				case c.Matches:
					inactive++
				}
				require.WithinDuration(t, time.Now(), *c.CreatedAt, time.Hour)
			}
			more = len(page) == 64
		}
		require.Equal(t, 1001, all)
		require.Equal(t, want, got, "%s", a)
		b.exec(t, `UPDATE belfry.channels SET active = NOT active`)
		others, _ := b.walkAll(t, a, 100)
		require.Len(t, others, inactive, "%s", a)
		b.exec(t, `UPDATE belfry.channels SET active = NOT active`)
	}
	_, err := b.store.Inspect(b.ctx, b.pool, Audience{})
	require.ErrorIs(t, err, ErrAudience)
	gone, err := b.store.Inspect(b.ctx, b.pool, InSegment("dropped"))
	require.NoError(t, err)
	page, err := gone.Page(b.ctx, b.pool, 0, 2, 10)
	require.NoError(t, err)
	require.False(t, page[0].Matches)
}

func TestResolve_FindsTheIDOfAnExternalID(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `INSERT INTO belfry.channels (id, external_id, platform) VALUES (7, 'ann', 'ios')`)
	id, err := b.store.Resolve(b.ctx, b.pool, "ann")
	require.NoError(t, err)
	require.EqualValues(t, 7, id)
	_, err = b.store.Resolve(b.ctx, b.pool, "ben")
	require.ErrorIs(t, err, ErrNoChannel)
	require.EqualError(t, err, `no such channel with external id "ben" in belfry.channels`)
}

// An audit tells by updated_at who changed after a job's start: whoever writes, it
// follows what an audience looks at, and nothing else.
func TestChannels_UpdatedAtFollowsWhatAnAudienceLooksAt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `INSERT INTO belfry.channels (id, external_id, platform, location, updated_at) VALUES (7, 'ann', 'ios', point(1, 2), '2020-01-01')`)
	for _, c := range []struct {
		set     string
		touches bool
	}{
		{`platform = 'web'`, true},
		{`active = false`, true},
		{`location = point(3, 4)`, true},
		{`location = NULL`, true},
		{`external_id = 'anna'`, true},
		{`external_id = 'anna', active = false`, false},
		{`locale = 'ko'`, false},
		{`platform = 'ios', updated_at = '2021-01-01'`, false},
	} {
		b.exec(t, `UPDATE belfry.channels SET updated_at = '2020-01-01'`)
		b.exec(t, `UPDATE belfry.channels SET `+c.set)
		var touched bool
		require.NoError(t, b.pool.QueryRow(b.ctx, `SELECT updated_at > now() - interval '1 hour' FROM belfry.channels`).Scan(&touched))
		require.Equal(t, c.touches, touched, c.set)
	}
}

// The text that stands for an erased person selects nobody, not even a user who has chosen it.
func TestAudience_TheErasedAreNobody(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `INSERT INTO belfry.channels (id, external_id, platform) VALUES (1, '(erased)', 'ios'), (2, 'u-2', 'ios')`)
	for _, test := range []struct {
		audience Audience
		want     int
	}{{WithExternalIDs("(erased)"), 0}, {WithExternalIDs("u-2", "(erased)"), 1}} {
		ids, _ := b.walkAll(t, test.audience, 10)
		require.Len(t, ids, test.want)
		n, err := b.store.Count(b.ctx, b.pool, test.audience)
		require.NoError(t, err)
		require.EqualValues(t, test.want, n)
		inspection, err := b.store.Inspect(b.ctx, b.pool, test.audience)
		require.NoError(t, err)
		page, err := inspection.Page(b.ctx, b.pool, 0, 2, 10)
		require.NoError(t, err)
		require.Equal(t, test.want == 1, page[1].Matches)
		require.False(t, page[0].Matches)
	}
}
