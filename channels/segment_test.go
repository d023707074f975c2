package channels

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

func TestSegment_LifeOfOne(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `INSERT INTO belfry.channels (external_id, platform, active) SELECT 'u-' || i, 'ios', i <> 3 FROM generate_series(1, 9) i`)
	require.NoError(t, b.store.CreateSegment(b.ctx, b.pool, "vip", "paying", By{}))
	require.ErrorIs(t, b.store.CreateSegment(b.ctx, b.pool, "vip", "", By{}), ErrSegmentExists)
	require.ErrorIs(t, b.store.CreateSegment(b.ctx, b.pool, "v i p", "", By{}), ErrAudience)

	change, err := b.store.SetSegment(b.ctx, b.pool, SegmentEdit{Segment: "vip", Key: ByExternalID}, strings.NewReader("\xef\xbb\xbfu-1\r\nu-2\n\n  u-3\nnobody\nu-1\nnobody\nno-one"))
	require.NoError(t, err)
	require.Equal(t, SegmentChange{Given: 7, Added: 3, Unknown: 2, UnknownSample: []string{"no-one", "nobody"}}, change)
	members := `SELECT array_agg(channel_id ORDER BY channel_id) FROM belfry.segment_members WHERE segment = 'vip'`
	require.Equal(t, []int64{1, 2, 3}, b.queryIDs(t, members))

	version := `SELECT array_agg(xmin::text::bigint) FROM belfry.segment_members WHERE channel_id = 2`
	before := b.queryIDs(t, version)
	change, err = b.store.SetSegment(b.ctx, b.pool, SegmentEdit{Segment: "vip", Key: ByID}, strings.NewReader("2\n3\n007\n99\n"))
	require.NoError(t, err)
	require.Equal(t, SegmentChange{Given: 4, Added: 1, Removed: 1, Unknown: 1, UnknownSample: []string{"99"}}, change)
	require.Equal(t, []int64{2, 3, 7}, b.queryIDs(t, members))
	require.Equal(t, before, b.queryIDs(t, version), "who stays is not touched")

	change, err = b.store.AddToSegment(b.ctx, b.pool, SegmentEdit{Segment: "vip", Key: ByID}, strings.NewReader("7\n8"))
	require.NoError(t, err)
	require.Equal(t, SegmentChange{Given: 2, Added: 1, UnknownSample: []string{}}, change)
	change, err = b.store.RemoveFromSegment(b.ctx, b.pool, SegmentEdit{Segment: "vip", Key: ByExternalID}, strings.NewReader("u-2\nu-9"))
	require.NoError(t, err)
	require.Equal(t, SegmentChange{Given: 2, Removed: 1, UnknownSample: []string{}}, change)

	list, err := b.store.ListSegments(b.ctx, b.pool)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, Segment{Name: "vip", Description: "paying", Members: 3, CreatedAt: list[0].CreatedAt}, list[0])
	n, err := b.store.Count(b.ctx, b.pool, InSegment("vip"))
	require.NoError(t, err)
	require.Equal(t, int64(2), n, "3 is inactive")

	change, err = b.store.DropSegment(b.ctx, b.pool, SegmentEdit{Segment: "vip"})
	require.NoError(t, err)
	require.Equal(t, SegmentChange{Removed: 3}, change)
	_, err = b.store.DropSegment(b.ctx, b.pool, SegmentEdit{Segment: "vip"})
	require.ErrorIs(t, err, ErrNoSegment)
	require.Nil(t, b.queryIDs(t, members))
	_, err = b.store.Count(b.ctx, b.pool, InSegment("vip"))
	require.ErrorIs(t, err, ErrNoSegment)
}

func TestSegments_AreCountedToTenThousand(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, name := range []string{"few", "many"} {
		require.NoError(t, b.store.CreateSegment(b.ctx, b.pool, name, "", By{}))
	}
	b.exec(t, `INSERT INTO belfry.channels (external_id, platform) SELECT 'u' || g, 'ios' FROM generate_series(1, 10300) g`)
	b.exec(t, `INSERT INTO belfry.segment_members (segment, channel_id) SELECT 'many', id FROM belfry.channels`)
	b.exec(t, `INSERT INTO belfry.segment_members (segment, channel_id) SELECT 'few', id FROM belfry.channels ORDER BY id LIMIT 10000`)
	list, err := b.store.ListSegments(b.ctx, b.pool)
	require.NoError(t, err)
	require.EqualValues(t, SegmentCounts, list[0].Members)
	require.EqualValues(t, SegmentCounts+1, list[1].Members)
}

func TestSegment_BadInputChangesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `INSERT INTO belfry.channels (external_id, platform) VALUES ('u-1', 'ios')`)
	require.NoError(t, b.store.CreateSegment(b.ctx, b.pool, "vip", "", By{}))
	for _, tt := range []struct {
		name string
		by   MemberKey
		text string
		want string
	}{
		{"vip", ByID, "1\n\nx\n", `line 3: "x" is not a channel id`},
		{"vip", ByID, "1\n9223372036854775808\n", `line 2: "9223372036854775808" is not a channel id`},
		{"vip", ByExternalID, "u-1\n\xff\n", `line 2: not UTF-8 text`},
		{"vip", ByExternalID, "u-1\na\x00b\n", `line 2: not UTF-8 text`},
		{"vip", ByExternalID, "u-1\n" + strings.Repeat("x", 1<<17), `line 2: bufio.Scanner: token too long`},
		{"vip", "name", "u-1\n", `members by "name"; allowed values: id, external_id`},
		{"none", ByID, "1\n", `no such segment: "none"`},
	} {
		_, err := b.store.SetSegment(b.ctx, b.pool, SegmentEdit{Segment: tt.name, Key: tt.by}, strings.NewReader(tt.text))
		require.ErrorContains(t, err, tt.want)
		require.Equal(t, []int64{0}, b.queryIDs(t, `SELECT ARRAY[count(*)] FROM belfry.segment_members`))
	}
}

func TestCount_AgreesWithEachKind(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `INSERT INTO belfry.channels (external_id, platform, active, location)
		SELECT 'u-' || i, (ARRAY['ios','android'])[1 + i % 2], i % 10 > 0, point(i % 20, 0) FROM generate_series(1, 200) i;
		INSERT INTO belfry.segments (name) VALUES ('s'); INSERT INTO belfry.segment_members SELECT 's', i FROM generate_series(1, 300, 3) i`)
	narrow := Within(0, 0, 150000)
	narrow.Platforms = []string{"android"}
	segment := InSegment("s")
	segment.Platforms = []string{"ios"}
	for _, a := range []Audience{
		Everyone(), OnPlatforms("ios"), OnPlatforms("ios", "ios", "web"), Within(0, 0, 150000), narrow, WithIDs(1, 1, 2, 10, 999),
		WithExternalIDs("u-1", "u-1", "u-20", "u-3", "x"), InSegment("s"), segment,
	} {
		ids, _ := b.walkAll(t, a, 17)
		n, err := b.store.Count(b.ctx, b.pool, a)
		require.NoError(t, err)
		require.Equal(t, int64(len(ids)), n, "%s", a)
		require.Positive(t, n)
	}
	_, err := b.store.Count(b.ctx, b.pool, Audience{Kind: "x"})
	require.ErrorIs(t, err, ErrAudience)
}

// What changes members leaves one event, with who did it; what is not agreed to leaves nothing.
func TestSegment_RecordsWhoChangedItsMembers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `INSERT INTO belfry.channels (external_id, platform) SELECT 'u-' || i, 'ios' FROM generate_series(1, 3) i`)
	by := By{Actor: "ann", Reason: "from the form"}
	require.NoError(t, b.store.CreateSegment(b.ctx, b.pool, "vip", "", by))
	disagreed := errors.New("there are too many")
	edit := SegmentEdit{Segment: "vip", Key: ByID, By: by, Agree: func(c SegmentChange) error {
		require.EqualValues(t, 2, c.Added)
		return disagreed
	}}
	change, err := b.store.AddToSegment(b.ctx, b.pool, edit, strings.NewReader("2\n3"))
	require.Equal(t, disagreed, err)
	require.EqualValues(t, 2, change.Added, "it says what would be changed")
	edit.Agree = nil
	_, err = b.store.AddToSegment(b.ctx, b.pool, edit, strings.NewReader("2\n3"))
	require.NoError(t, err)
	_, err = b.store.AddToSegment(b.ctx, b.pool, edit, strings.NewReader("2\n3"))
	require.NoError(t, err, "nothing is changed, and nothing recorded")
	_, err = b.store.DropSegment(b.ctx, b.pool, SegmentEdit{Segment: "vip", By: by})
	require.NoError(t, err)
	rows, err := b.pool.Query(b.ctx, `SELECT kind || ' ' || coalesce(detail ->> 'added', '') FROM belfry.events
		WHERE subject = 'segment' AND name = 'vip' AND actor = 'ann' AND reason = 'from the form' ORDER BY id`)
	require.NoError(t, err)
	kinds, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Equal(t, []string{"created ", "changed 2", "removed "}, kinds)
}
