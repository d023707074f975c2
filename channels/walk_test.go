package channels

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/belfryhq/belfry/cursor"
	"github.com/belfryhq/belfry/dev/dbtest"
)

// person is a channel of the model.
type person struct {
	platform string
	active   bool
	location *Point
	member   bool // of segment "s"
}

// place is a relation under test and how to write to it.
type place struct {
	name, relation, setUp, upsert, remove, clear string
}

// places are belfry's own table, a user's table without the optional columns
// and with a name that needs quotes, a view that makes its location, and a table whose ids
// are narrower than bigint.
var places = []place{
	{
		name: "own", relation: DefaultRelation,
		upsert: `INSERT INTO belfry.channels (id, external_id, platform, active, location) VALUES ($1::bigint, 'u-' || $1::bigint, $2, $3, $4)
			ON CONFLICT (id) DO UPDATE SET platform = excluded.platform, active = excluded.active, location = excluded.location`,
		remove: `DELETE FROM belfry.channels WHERE id = $1`,
		clear:  `DELETE FROM belfry.channels`,
	},
	{
		name: "table", relation: "app.Members",
		setUp: `CREATE SCHEMA app;
			CREATE TABLE app."Members" (id bigint PRIMARY KEY, external_id varchar(40) NOT NULL UNIQUE, platform varchar(20), active boolean, location point);
			CREATE INDEX ON app."Members" USING gist (location)`,
		upsert: `INSERT INTO app."Members" VALUES ($1::bigint, 'u-' || $1::bigint, $2, $3, $4)
			ON CONFLICT (id) DO UPDATE SET platform = excluded.platform, active = excluded.active, location = excluded.location`,
		remove: `DELETE FROM app."Members" WHERE id = $1`,
		clear:  `DELETE FROM app."Members"`,
	},
	{
		name: "view", relation: "app.people",
		setUp: `CREATE SCHEMA app;
			CREATE TABLE app.users (uid bigint PRIMARY KEY, os text, disabled boolean, lon float8, lat float8);
			CREATE INDEX ON app.users USING gist (point(lon, lat));
			CREATE VIEW app.people AS SELECT uid AS id, 'u-' || uid AS external_id, os AS platform, NOT disabled AS active, point(lon, lat) AS location FROM app.users`,
		upsert: `INSERT INTO app.users VALUES ($1, $2, NOT $3::boolean, ($4::point)[0], ($4::point)[1])
			ON CONFLICT (uid) DO UPDATE SET os = excluded.os, disabled = excluded.disabled, lon = excluded.lon, lat = excluded.lat`,
		remove: `DELETE FROM app.users WHERE uid = $1`,
		clear:  `DELETE FROM app.users`,
	},
	{
		name: "int", relation: "accounts",
		setUp: `CREATE TABLE accounts (id int PRIMARY KEY, external_id text NOT NULL UNIQUE, platform text, active boolean, location point);
			CREATE INDEX ON accounts USING gist (location)`,
		upsert: `INSERT INTO accounts VALUES ($1::bigint, 'u-' || $1::bigint, $2, $3, $4)
			ON CONFLICT (id) DO UPDATE SET platform = excluded.platform, active = excluded.active, location = excluded.location`,
		remove: `DELETE FROM accounts WHERE id = $1`,
		clear:  `DELETE FROM accounts`,
	},
}

// model is the naive oracle beside the real relation.
type model struct {
	ctx      context.Context //nolint:containedctx // lives as long as one check
	pool     *pgxpool.Pool
	place    place
	people   map[int64]person
	audience Audience
	// steady are the ids that matched at Open and at every moment since.
	steady map[int64]bool
}

func (m *model) matches(id int64) bool {
	p, ok := m.people[id]
	if !ok || !p.active {
		return false
	}
	a := m.audience
	if len(a.Platforms) > 0 && !slices.Contains(a.Platforms, p.platform) {
		return false
	}
	switch a.Kind {
	case KindRadius:
		return p.location != nil && distanceM(a.Latitude, a.Longitude, p.location.Latitude, p.location.Longitude) <= a.RadiusM
	case KindChannels:
		return slices.Contains(a.IDs, id) || slices.Contains(a.ExternalIDs, fmt.Sprintf("u-%d", id))
	case KindSegment:
		return p.member
	case KindEveryone, KindPlatforms:
	}
	return true
}

// put writes a person to both sides.
func (m *model) put(t *rapid.T, id int64, p person) {
	location := pgtype.Point{}
	if p.location != nil {
		location = pgtype.Point{P: pgtype.Vec2{X: p.location.Longitude, Y: p.location.Latitude}, Valid: true}
	}
	batch := &pgx.Batch{}
	batch.Queue(m.place.upsert, id, p.platform, p.active, location)
	sql := `DELETE FROM belfry.segment_members WHERE segment = 's' AND channel_id = $1`
	if p.member {
		sql = `INSERT INTO belfry.segment_members VALUES ('s', $1) ON CONFLICT DO NOTHING`
	}
	batch.Queue(sql, id)
	require.NoError(t, m.pool.SendBatch(m.ctx, batch).Close())
	m.people[id] = p
	m.settle()
}

func (m *model) remove(t *rapid.T, id int64) {
	_, err := m.pool.Exec(m.ctx, m.place.remove, id)
	require.NoError(t, err)
	delete(m.people, id)
	m.settle()
}

func (m *model) settle() {
	for id := range m.steady {
		if !m.matches(id) {
			delete(m.steady, id)
		}
	}
}

func drawPerson(t *rapid.T, a Audience) person {
	p := person{
		platform: rapid.SampledFrom([]string{"ios", "android", "web"}).Draw(t, "platform"),
		active:   rapid.IntRange(0, 5).Draw(t, "active") > 0,
		member:   rapid.Bool().Draw(t, "member"),
	}
	if rapid.IntRange(0, 9).Draw(t, "placed") > 0 {
		share := rapid.SampledFrom([]float64{0, 0.3, 0.7, 0.999999, 1.000001, 1.3}).Draw(t, "share")
		bearing := rapid.Float64Range(0, 2*math.Pi).Draw(t, "bearing")
		lat, lon := destination(a.Latitude, a.Longitude, min(a.RadiusM*share, 2e7), bearing)
		if math.Abs(lon) > 179.5 && rapid.Bool().Draw(t, "on the meridian") {
			lon = math.Copysign(180, lon)
		}
		p.location = &Point{Latitude: lat, Longitude: lon}
	}
	return p
}

// audiences draws one of the kind.
var audiences = map[string]*rapid.Generator[Audience]{
	"everyone": rapid.Just(Everyone()),
	"platforms": rapid.Custom(func(t *rapid.T) Audience {
		return OnPlatforms(rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"ios", "android"}), 1, 2, rapid.ID).Draw(t, "platforms")...)
	}),
	"radius": rapid.Custom(func(t *rapid.T) Audience {
		a := rapid.SampledFrom([]Audience{
			Within(37.57, 126.98, 30000), Within(0, 180, 50000), Within(-17.2, -179.95, 30000), Within(89.95, 10, 20000),
			Within(-90, 0, 100000), Within(0, 0, maxRadiusM), Within(10, 10, 1), Within(65, 179.99, 2e6),
		}).Draw(t, "circle")
		if rapid.IntRange(0, 3).Draw(t, "narrowed") == 0 {
			a.Platforms = []string{"ios"}
		}
		return a
	}),
	"ids": rapid.Custom(func(t *rapid.T) Audience {
		return WithIDs(rapid.SliceOfN(rapid.Int64Range(-20, 140), 1, 60).Draw(t, "ids")...)
	}),
	"external ids": rapid.Custom(func(t *rapid.T) Audience {
		n := rapid.SliceOfN(rapid.Int64Range(-20, 140), 1, 60).Draw(t, "ids")
		var external []string
		for _, id := range n {
			external = append(external, fmt.Sprintf("u-%d", id))
		}
		return WithExternalIDs(external...)
	}),
	"segment": rapid.Custom(func(t *rapid.T) Audience {
		a := InSegment("s")
		if rapid.IntRange(0, 3).Draw(t, "narrowed") == 0 {
			a.Platforms = []string{"web", "ios"}
		}
		return a
	}),
}

// TestLong_WalkReadsEachSteadyChannelOnce proves I1 for each kind of audience and
// relation, against a naive oracle: with channels inserted, deleted, moved,
// deactivated and re-enrolled behind and ahead of the walk between any two
// pages, whatever matched throughout is read exactly once, and nothing that does
// not match, lies above the bound or was read before ever is.
func TestLong_WalkReadsEachSteadyChannelOnce(t *testing.T) {
	t.Parallel()
	for _, where := range places {
		t.Run(where.name, func(t *testing.T) {
			t.Parallel()
			pool := dbtest.Reused(t, 10).Pool
			_, err := pool.Exec(t.Context(), where.setUp+`; INSERT INTO belfry.segments (name) VALUES ('s')`)
			require.NoError(t, err)
			for _, kind := range slices.Sorted(maps.Keys(audiences)) {
				inOrder(t, kind, func(t *testing.T) {
					ctx, cancel := context.WithTimeout(t.Context(), testDeadline)
					defer cancel()
					rapid.Check(t, func(t *rapid.T) {
						store, err := New(Config{Relation: where.relation})
						require.NoError(t, err)
						store.lookAhead = rapid.SampledFrom([]int{0, 1, 5, 1000}).Draw(t, "look-ahead")
						m := &model{ctx: ctx, pool: pool, place: where, people: map[int64]person{}, audience: audiences[kind].Draw(t, "audience")}
						_, err = pool.Exec(ctx, where.clear+`; DELETE FROM belfry.segment_members`)
						require.NoError(t, err)
						checkWalk(t, m, store)
					})
				})
			}
		})
	}
}

func checkWalk(t *rapid.T, m *model, store *Store) {
	ids := rapid.Int64Range(-10, 130)
	for range rapid.IntRange(0, 40).Draw(t, "people") {
		m.put(t, ids.Draw(t, "id"), drawPerson(t, m.audience))
	}
	bound, err := store.Bound(m.ctx, m.pool)
	require.NoError(t, err)
	highest, some := bound.Int64()
	require.Equal(t, len(m.people) > 0, some)
	if some {
		require.Equal(t, slices.Max(slices.Collect(maps.Keys(m.people))), highest)
	}
	m.change(t, ids) // between the claim's bound and Open

	var at cursor.Position
	if rapid.Bool().Draw(t, "resumed") {
		at = cursor.Int64(rapid.Int64Range(-15, 131).Draw(t, "from"))
	}
	walk, err := store.Open(m.ctx, m.pool, m.audience, at, bound)
	require.NoError(t, err)
	m.steady = map[int64]bool{}
	for id := range m.people {
		if some && id <= highest && m.matches(id) {
			m.steady[id] = true
		}
	}
	for pages := 0; ; pages++ {
		m.change(t, ids)
		limit := rapid.IntRange(1, 30).Draw(t, "limit")
		next, done := m.readPage(t, walk, at, highest, limit)
		if done {
			return
		}
		at = next
		require.Less(t, pages, 200, "the walk does not end")
	}
}

// change makes a few random changes anywhere.
func (m *model) change(t *rapid.T, ids *rapid.Generator[int64]) {
	for range rapid.IntRange(0, 4).Draw(t, "changes") {
		id := ids.Draw(t, "id")
		if rapid.IntRange(0, 2).Draw(t, "delete") == 0 {
			m.remove(t, id)
		} else {
			m.put(t, id, drawPerson(t, m.audience))
		}
	}
}

// readPage reads one page by both methods and checks it against the model.
func (m *model) readPage(t *rapid.T, walk *Walk, at cursor.Position, highest int64, limit int) (next cursor.Position, done bool) {
	page, err := walk.IDs(m.ctx, m.pool, at, limit)
	require.NoError(t, err)
	full, err := walk.Channels(m.ctx, m.pool, at, limit)
	require.NoError(t, err)
	require.Equal(t, page.Read, full.Read)
	require.Equal(t, page.Next, full.Next)
	require.LessOrEqual(t, page.Read, limit)
	require.LessOrEqual(t, len(page.Rows), page.Read)
	require.Len(t, full.Rows, len(page.Rows))
	from := int64(math.MinInt64)
	if v, ok := at.Int64(); ok {
		from = v
	}
	to := highest
	if page.Read > 0 {
		to, _ = page.Next.Int64()
		require.Greater(t, to, from)
		require.LessOrEqual(t, to, highest)
	}
	last := from
	for i, id := range page.Rows {
		require.Greater(t, id, last, "ascending, above the cursor")
		require.LessOrEqual(t, id, to)
		require.True(t, m.matches(id), "%d does not match", id)
		c, p := full.Rows[i], m.people[id]
		require.Equal(t, id, c.ID)
		require.Equal(t, fmt.Sprintf("u-%d", id), c.ExternalID)
		require.Equal(t, p.platform, c.Platform)
		require.Equal(t, p.location, c.Location)
		require.JSONEq(t, `{}`, string(c.Addresses))
		last = id
	}
	for id := range m.steady {
		if from < id && id <= to {
			require.Contains(t, page.Rows, id, "matched throughout and was skipped")
		}
	}
	return page.Next, page.Read == 0
}

// A cursor, a bound and listed ids are bigint, whatever the relation's key is.
func TestWalk_NarrowKeysTakeWidePositions(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"smallint", "int"} {
		b := setupOn(t, "narrow")
		b.exec(t, `CREATE TABLE narrow (id `+kind+` PRIMARY KEY, external_id text UNIQUE, platform text, active boolean)`)
		b.exec(t, `INSERT INTO narrow VALUES (-32768, 'low', 'ios', true), (0, 'mid', 'ios', true), (32767, 'high', 'ios', true)`)
		b.exec(t, `INSERT INTO belfry.segments (name) VALUES ('s'); INSERT INTO belfry.segment_members VALUES ('s', 32767), ('s', 1::bigint << 40)`)
		far := []int64{-1 << 50, 0, 1 << 40, 1 << 55}
		for _, bound := range []int64{1 << 40, math.MaxInt64} {
			for _, tt := range []struct {
				audience Audience
				want     []int64
			}{
				{Everyone(), []int64{-32768, 0, 32767}}, {WithIDs(far...), []int64{0}}, {InSegment("s"), []int64{32767}},
			} {
				w, err := b.store.Open(b.ctx, b.pool, tt.audience, cursor.Int64(-1<<50), cursor.Int64(bound))
				require.NoError(t, err)
				page, err := w.IDs(b.ctx, b.pool, cursor.Int64(-1<<50), 10)
				require.NoError(t, err)
				require.Equal(t, tt.want, page.Rows, "%s of %s", tt.audience, kind)
			}
		}
		n, err := b.store.Count(b.ctx, b.pool, WithIDs(far...))
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
		for _, ids := range [][]int64{far, {math.MaxInt64 - 1, math.MaxInt64}} {
			list, err := b.store.Recipients(b.ctx, b.pool, ids)
			require.NoError(t, err)
			require.LessOrEqual(t, len(list), 1)
		}
		change, err := b.store.AddToSegment(b.ctx, b.pool, SegmentEdit{Segment: "s", Key: ByID}, strings.NewReader("0\n1099511627777\n"))
		require.NoError(t, err)
		require.EqualValues(t, 1, change.Added)
	}
}

// A fault that would make every chunk sort the relation is said before the first one, with
// the statement to run.
func TestVet_RefusesARelationThatCannotBeWalked(t *testing.T) {
	t.Parallel()
	b := setupOn(t, "heap")
	b.exec(t, `CREATE TABLE heap (id int NOT NULL, external_id text UNIQUE, platform text, active boolean)`)
	vet := func() error {
		tx, err := b.pool.Begin(b.ctx)
		require.NoError(t, err)
		defer func() { require.NoError(t, tx.Rollback(b.ctx)) }()
		return b.store.Vet(b.ctx, tx)
	}
	err := vet()
	require.ErrorIs(t, err, ErrRelation)
	var unfit *UnfitError
	require.ErrorAs(t, err, &unfit)
	require.Len(t, unfit.Faults, 2, "warnings are no reason")
	require.ErrorContains(t, err, `heap.id cannot be read in order by an index: every chunk would sort the relation -> CREATE UNIQUE INDEX CONCURRENTLY ON "public"."heap" (id)`)
	b.exec(t, `CREATE UNIQUE INDEX CONCURRENTLY ON "public"."heap" (id)`)
	require.NoError(t, vet())
}

func TestWalk_SparseMatchesStayBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `INSERT INTO belfry.channels (external_id, platform) SELECT i, CASE WHEN i = 5000 THEN 'web' ELSE 'ios' END FROM generate_series(1, 5000) i`)
	b.exec(t, `ANALYZE belfry.channels`)
	bound, err := b.store.Bound(b.ctx, b.pool)
	require.NoError(t, err)
	w, err := b.store.Open(b.ctx, b.pool, OnPlatforms("web"), cursor.Position{}, bound)
	require.NoError(t, err)
	require.InDelta(t, 5000, w.Total(), 50)

	page, err := w.IDs(b.ctx, b.pool, cursor.Position{}, 100)
	require.NoError(t, err)
	require.Equal(t, cursor.Page[int64]{Read: 100, Next: cursor.Int64(100)}, page)

	ids, examined := b.walkAll(t, OnPlatforms("web"), 999)
	require.Equal(t, []int64{5000}, ids)
	require.Equal(t, 5000, examined)
}

func TestWalk_DenseCircleFallsBackToKeyOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `INSERT INTO belfry.channels (external_id, platform, location) SELECT i, 'ios', point(10 + i * 1e-6, 10) FROM generate_series(1, 50) i`)
	for _, tt := range []struct {
		lookAhead int
		want      route
	}{{50, byList}, {49, byKey}} {
		b.store.lookAhead = tt.lookAhead
		w, err := b.store.Open(b.ctx, b.pool, Within(10, 10, 1000), cursor.Position{}, cursor.Int64(50))
		require.NoError(t, err)
		require.Equal(t, tt.want, w.route)
		ids, _ := b.walkAll(t, Within(10, 10, 1000), 7)
		require.Len(t, ids, 50)
	}
}

func TestWalk_RefusesWhatItCannotWalk(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE TABLE bare (id bigint PRIMARY KEY, external_id text, platform text, active boolean)`)
	bare, err := New(Config{Relation: "bare"})
	require.NoError(t, err)
	missing, err := New(Config{Relation: "no.where"})
	require.NoError(t, err)
	composite := cursor.MustKeyset(cursor.Column{Name: "a", Type: cursor.Bigint}, cursor.Column{Name: "b", Type: cursor.Text})
	foreign, err := composite.Position(int64(1), "x")
	require.NoError(t, err)

	_, err = missing.Open(b.ctx, b.pool, Everyone(), cursor.Position{}, cursor.Int64(1))
	require.ErrorIs(t, err, ErrRelation)
	require.ErrorContains(t, err, "no.where does not exist")
	_, err = missing.Bound(b.ctx, b.pool)
	require.ErrorIs(t, err, ErrRelation)
	_, err = bare.Open(b.ctx, b.pool, Within(1, 1, 1), cursor.Position{}, cursor.Int64(1))
	require.ErrorIs(t, err, ErrRelation)
	require.ErrorContains(t, err, "no column location")
	_, err = b.store.Open(b.ctx, b.pool, InSegment("nobody"), cursor.Position{}, cursor.Int64(1))
	require.ErrorIs(t, err, ErrNoSegment)
	_, err = b.store.Open(b.ctx, b.pool, InSegment("nobody"), cursor.Position{}, cursor.Position{})
	require.ErrorIs(t, err, ErrNoSegment, "also when nothing is left to read")
	_, err = b.store.Open(b.ctx, b.pool, Audience{}, cursor.Position{}, cursor.Int64(1))
	require.ErrorIs(t, err, ErrAudience)
	_, err = b.store.Open(b.ctx, b.pool, Everyone(), foreign, cursor.Int64(1))
	require.ErrorContains(t, err, "not the key of a channel")
	_, err = b.store.Open(b.ctx, b.pool, Everyone(), cursor.Position{}, foreign)
	require.ErrorContains(t, err, "not the key of a channel")

	w, err := b.store.Open(b.ctx, b.pool, Everyone(), cursor.Position{}, cursor.Int64(1))
	require.NoError(t, err)
	_, err = w.IDs(b.ctx, b.pool, cursor.Position{}, 0)
	require.ErrorContains(t, err, "a page of 0 keys")
}

// TestWalk_FindsEveryMatchOnTheGlobe compares circles with a scan of all rows
// by the same distance, on points that crowd the poles and the 180° meridian.
func TestWalk_FindsEveryMatchOnTheGlobe(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `INSERT INTO belfry.channels (external_id, platform, location)
		SELECT 'a' || i, 'ios', point(CASE i % 5 WHEN 0 THEN 180 WHEN 1 THEN -180 WHEN 2 THEN 179.9 + random() * 0.1 WHEN 3 THEN -180 + random() * 0.1 ELSE random() * 360 - 180 END,
			CASE i % 3 WHEN 0 THEN degrees(asin(random() * 2 - 1)) WHEN 1 THEN random() * 2 - 1 ELSE (89.5 + random() * 0.5) * (CASE WHEN i % 2 = 0 THEN 1 ELSE -1 END) END)
		FROM generate_series(1, 2000) i;
		INSERT INTO belfry.channels (external_id, platform, location) VALUES ('n', 'ios', point(0, 90)), ('s', 'ios', point(77, -90)), ('e', 'ios', point(180, 0)), ('w', 'ios', point(-180, 0))`)
	for _, lookAhead := range []int{0, lookAhead} {
		b.store.lookAhead = lookAhead
		for _, a := range []Audience{
			Within(0, 180, 1), Within(0, -180, 1), Within(0, 180, 5000), Within(0.5, -179.99, 30000), Within(0, 179, 111196), Within(90, 0, 1),
			Within(90, -12, 30000), Within(-89.8, 33, 30000), Within(-90, 180, 200000), Within(60, 170, 1e6), Within(0, 0, 1e7), Within(10, 20, maxRadiusM), Within(-45, 12, 1.9e7),
		} {
			want := b.queryIDs(t, `SELECT array_agg(id ORDER BY id) FROM belfry.channels WHERE belfry.distance_m(location, point($1, $2)) <= $3`, a.Longitude, a.Latitude, a.RadiusM)
			ids, _ := b.walkAll(t, a, 1200)
			require.Equal(t, want, ids, "%s", a)
			n, err := b.store.Count(b.ctx, b.pool, a)
			require.NoError(t, err)
			require.Equal(t, int64(len(want)), n, "%s", a)
		}
	}
}

func TestDistance_IsInlinedAndDefinedEverywhere(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var text string
	require.NoError(t, b.pool.QueryRow(b.ctx, `EXPLAIN (VERBOSE, FORMAT JSON) SELECT 1 FROM belfry.channels WHERE belfry.distance_m(location, point(1, 2)) <= 3`).Scan(&text))
	require.NotContains(t, text, "distance_m(", "an SQL function that is called costs eleven times as much")
	b.exec(t, `SELECT belfry.distance_m(point(x, y), point(0, 0)) FROM unnest('{0,5e-324,1e-320,1e-200,1e-162,1e-99,-1e-99,90}'::float8[]) x,
		unnest('{0,5e-324,1e-200,-1e-162,89.99999999999999,90,-90}'::float8[]) y`)
	var worst float64
	require.NoError(t, b.pool.QueryRow(b.ctx, `SELECT max(belfry.distance_m(point(x / 7.0, y / 7.0), point(x / 7.0 - 180, -y / 7.0))) FROM generate_series(0, 1260, 3) x, generate_series(-630, 630, 7) y`).Scan(&worst))
	require.InDelta(t, math.Pi*earthRadiusM, worst, 1, "antipodes do not push asin out of range")
}
