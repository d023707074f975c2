package cities

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/channels"
)

func TestLong_GenerateIsDeterministicAndPlausible(t *testing.T) {
	t.Parallel()
	const n = 20000
	b := setup(t)
	indexes := `SELECT string_agg(indexdef, ';' ORDER BY indexdef) FROM pg_indexes WHERE schemaname = 'belfry' AND tablename = 'channels'`
	var before, after string
	require.NoError(t, b.pool.QueryRow(b.ctx, indexes).Scan(&before))
	var progress []int64
	result, err := Generate(b.ctx, b.store, b.pool, n, Options{Seed: 7, Progress: func(made int64) { progress = append(progress, made) }})
	require.NoError(t, err)
	require.Equal(t, Result{Channels: n, Bulk: true}, result)
	require.Equal(t, []int64{10000, 20000}, progress)
	require.NoError(t, b.pool.QueryRow(b.ctx, indexes).Scan(&after))
	require.Equal(t, before, after)

	count := func(where string) int64 {
		return b.queryIDs(t, `SELECT ARRAY[count(*)] FROM belfry.channels WHERE `+where)[0]
	}
	require.Equal(t, int64(n), count(`external_id LIKE 'gen-7-%'`))
	require.InDelta(t, 0.01*n, count(`NOT active`), 80)
	require.InDelta(t, 0.005*n, count(`location IS NULL`), 60)
	require.InDelta(t, 0.52*n, count(`platform = 'android'`), 500)
	require.InDelta(t, 0.38*n, count(`platform = 'ios'`), 500)
	require.Equal(t, int64(n), count(`addresses ->> 'sms' LIKE '+999%' AND addresses ? 'push' AND locale <> ''`))
	require.Zero(t, count(`time_zone NOT IN (SELECT name FROM pg_timezone_names)`), "PostgreSQL knows every time zone")

	// The same seed gives the same channels, also in a table that is not empty, and
	// a smaller number of them is the beginning.
	other := setup(t)
	other.exec(t, `INSERT INTO belfry.channels (external_id, platform) VALUES ('gem', 'ios')`)
	result, err = Generate(other.ctx, other.store, other.pool, 5000, Options{Seed: 7})
	require.NoError(t, err)
	require.False(t, result.Bulk)
	fingerprint := `SELECT ARRAY[hashtextextended(string_agg(format('%s %s %s %s %s %s', external_id, platform, active, location, locale, addresses), '' ORDER BY external_id), 0)]
		FROM belfry.channels WHERE external_id LIKE 'gen-7-%' AND substr(external_id, 7)::int <= 5000`
	require.Equal(t, b.queryIDs(t, fingerprint), other.queryIDs(t, fingerprint))

	_, err = Generate(other.ctx, other.store, other.pool, 10, Options{Seed: 7})
	require.ErrorIs(t, err, errGenerated)
	require.Equal(t, []int64{5001}, other.queryIDs(t, `SELECT ARRAY[count(*)] FROM belfry.channels`), "all or none")
	_, err = Generate(b.ctx, b.store, b.pool, 0, Options{})
	require.ErrorContains(t, err, "allowed values: 1 and more")
	theirs, err := channels.New(channels.Config{Relation: "app.users"})
	require.NoError(t, err)
	_, err = Generate(b.ctx, theirs, b.pool, 1, Options{})
	require.ErrorIs(t, err, channels.ErrNotOwn)
}

func TestGenerate_FailedLoadLeavesTheTableAsItWas(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := Generate(b.ctx, b.store, b.pool, 5_000_000, Options{Timeout: 50 * time.Millisecond})
	require.Error(t, err)
	require.Equal(t, []int64{0, 1}, b.queryIDs(t, `SELECT ARRAY[(SELECT count(*) FROM belfry.channels), (SELECT count(*) FROM pg_indexes WHERE indexname = 'channels_location_idx')]`))
}

func TestGenerate_KeepsAReferencedTable(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE TABLE public.devices (channel bigint REFERENCES belfry.channels)`)
	result, err := Generate(b.ctx, b.store, b.pool, 100, Options{})
	require.NoError(t, err, "TRUNCATE would be refused")
	require.False(t, result.Bulk)
}

// TestGenerator_DrawsCitiesInProportion compares the share of each of the ten
// largest cities with its share of the population, without a database.
func TestGenerator_DrawsCitiesInProportion(t *testing.T) {
	t.Parallel()
	const draws = 100000
	g := newGenerator(1, Options{Seed: 3})
	drawn := map[City]int{}
	for range draws {
		drawn[g.atlas.at(g.random.Int64N(g.atlas.people()))]++
	}
	for _, c := range g.atlas.cities[:10] {
		want := float64(c.Population) / float64(g.atlas.people()) * draws
		require.InDelta(t, want, drawn[c], 5*math.Sqrt(want), "%s", c.Name)
	}
	last := len(g.atlas.cities) - 1
	require.Equal(t, g.atlas.cities[0], g.atlas.at(0))
	require.Equal(t, g.atlas.cities[0], g.atlas.at(g.atlas.cities[0].Population-1))
	require.Equal(t, g.atlas.cities[1], g.atlas.at(g.atlas.cities[0].Population))
	require.Equal(t, g.atlas.cities[last], g.atlas.at(g.atlas.people()-1))
}

func TestJitter_StaysOnEarth(t *testing.T) {
	t.Parallel()
	for _, c := range []City{{Latitude: 0, Longitude: 180}, {Latitude: -17, Longitude: -179.99}, {Latitude: 90, Longitude: 0}, {Latitude: -89.99, Longitude: 180}} {
		for _, metres := range []float64{-1e6, -4000, 0, 4000, 1e6} {
			p := jitter(c, metres, metres)
			require.True(t, math.Abs(p.Latitude) <= 90 && math.Abs(p.Longitude) <= 180, "%+v", p)
		}
	}
	p := jitter(City{Latitude: 37.5, Longitude: 127}, 3000, 4000)
	north, east := p.Latitude-37.5, (p.Longitude-127)*math.Cos(37.5*math.Pi/180)
	require.InDelta(t, 5000, math.Hypot(north, east)*math.Pi/180*6371008.8, 5)
}

func TestAtlas_IsWhole(t *testing.T) {
	t.Parallel()
	a := world()
	require.Len(t, a.cities, 24323)
	require.Less(t, len(citiesFile), 600<<10)
	require.True(t, slices.IsSorted(a.upTo))
	for _, c := range a.cities {
		require.True(t, c.Population > 0 && len(c.Country) == 2 && c.Country == strings.ToUpper(c.Country) && c.Name != "" &&
			math.Abs(c.Latitude) <= 90 && math.Abs(c.Longitude) <= 180, "%+v", c)
	}
}
