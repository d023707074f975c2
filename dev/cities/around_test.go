package cities

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// named is a place among others.
func named(t *testing.T, places []Place, name string) Place {
	t.Helper()
	for _, p := range places {
		if p.Name == name {
			return p
		}
	}
	require.Fail(t, "not found", name)
	return Place{}
}

func TestAround_KnowsWhatIsNear(t *testing.T) {
	t.Parallel()
	places := Around(37.566, 126.9784, 40e3)
	require.Equal(t, "Seoul", places[0].Name)
	incheon := named(t, places, "Incheon")
	require.InDelta(t, 27e3, incheon.Metres, 2e3)
	require.Negative(t, incheon.East, "it lies to the west")
	for i, p := range places {
		require.LessOrEqual(t, p.Metres, 40e3)
		require.InDelta(t, p.Metres, math.Hypot(p.East, p.North), 1)
		if i > 0 {
			require.LessOrEqual(t, p.Population, places[i-1].Population)
		}
	}
	require.Len(t, Around(0, 0, math.Pi*earthRadius), len(world().cities), "half the circumference is the whole earth")
	require.Empty(t, Around(-48.9, -123.4, 1e6), "where nobody lives")
	require.Greater(t, Nearest(-48.9, -123.4).Metres, 2e6)
	require.Equal(t, "Seoul", Nearest(37.566, 126.9784).Name)
}

// What is near is near across the 180° meridian, and where the meridians run together.
func TestNamed_IsTheMostPopulous(t *testing.T) {
	t.Parallel()
	for name, country := range map[string]string{"seoul": "KR", "London": "GB", "BIRMINGHAM": "GB"} {
		c, known := Named(name)
		require.True(t, known, name)
		require.Equal(t, country, c.Country, name)
	}
	for _, name := range []string{"", "37.57,126.98", "Nowhere at all"} {
		_, known := Named(name)
		require.False(t, known, name)
	}
}

func TestAround_CrossesTheAntimeridianAndThePole(t *testing.T) {
	t.Parallel()
	suva := named(t, Around(-17, -179.5, 400e3), "Suva")
	require.InDelta(t, -218e3, suva.East, 2e3, "to the west, across the meridian: %v", suva.Longitude)
	require.InDelta(t, suva.Metres, named(t, Around(-17, 180.5, 400e3), "Suva").Metres, 1, "however the meridian is called")

	// At 69.6° north Murmansk is twice as many degrees away as it would be on the equator.
	murmansk := named(t, Around(69.6489, 18.9551, 600e3), "Murmansk")
	require.InDelta(t, 563e3, murmansk.Metres, 15e3)
	require.Greater(t, murmansk.East, 500e3)

	// From the pole everything lies to the south, and what is beyond it is as near.
	for _, p := range Around(89.9, 0, 2500e3) {
		require.InDelta(t, (90-p.Latitude)*math.Pi/180*earthRadius, p.Metres, 12e3, p.Name)
	}
}
