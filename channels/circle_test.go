package channels

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// distanceM is the oracle: haversine in float64, as belfry.distance_m.
func distanceM(lat1, lon1, lat2, lon2 float64) float64 {
	const rad = math.Pi / 180
	s := math.Sin((lat2 - lat1) * rad / 2)
	t := math.Sin((lon2 - lon1) * rad / 2)
	h := s*s + math.Cos(lat1*rad)*math.Cos(lat2*rad)*t*t
	return 2 * earthRadiusM * math.Asin(math.Min(1, math.Sqrt(h)))
}

// destination is the point at a distance and bearing from another.
func destination(lat, lon, metres, bearing float64) (float64, float64) {
	const rad = math.Pi / 180
	d := metres / earthRadiusM
	sinLat := math.Sin(lat*rad)*math.Cos(d) + math.Cos(lat*rad)*math.Sin(d)*math.Cos(bearing)
	toLat := math.Asin(max(-1, min(1, sinLat)))
	toLon := lon*rad + math.Atan2(math.Sin(bearing)*math.Sin(d)*math.Cos(lat*rad), math.Cos(d)-math.Sin(lat*rad)*sinLat)
	degrees := toLon / rad
	return toLat / rad, degrees - 360*math.Round(degrees/360)
}

func inBoxes(boxes []box, lat, lon float64) int {
	n := 0
	for _, b := range boxes {
		if b.contains(lat, lon) {
			n++
		}
	}
	return n
}

// TestBoundingBoxes_ContainTheCircle throws thousands of points at each circle, most
// of them aimed just inside the edge, where a box that is too small loses them.
func TestBoundingBoxes_ContainTheCircle(t *testing.T) {
	t.Parallel()
	const pointsPerCircle = 4000
	rapid.Check(t, func(t *rapid.T) {
		lat := rapid.OneOf(rapid.Float64Range(-90, 90), rapid.SampledFrom([]float64{-90, -89.9999, 0, 66.5, 89.99999, 90})).Draw(t, "lat")
		lon := rapid.OneOf(rapid.Float64Range(-180, 180), rapid.SampledFrom([]float64{-180, -179.9999, 0, 179.99999, 180})).Draw(t, "lon")
		radius := rapid.OneOf(rapid.Float64Range(1, 1000), rapid.Float64Range(1, maxRadiusM),
			rapid.SampledFrom([]float64{1, 30000, 1e7, 10007543, 2e7, maxRadiusM})).Draw(t, "radius")
		boxes := boundingBoxes(lat, lon, radius)
		require.LessOrEqual(t, len(boxes), 2)
		for _, b := range boxes {
			require.True(t, -180 <= b.west && b.west <= b.east && b.east <= 180 && -90 <= b.south && b.south <= b.north && b.north <= 90, "%+v", b)
		}
		for i := range pointsPerCircle {
			share := float64(i%100) / 99
			switch i % 3 {
			case 1:
				share = 1 - 1e-12 // just inside the edge
			case 2:
				share = 1 // on it, as far as rounding allows
			}
			pLat, pLon := destination(lat, lon, radius*share, float64(i/6)/(pointsPerCircle/6)*2*math.Pi)
			if distanceM(lat, lon, pLat, pLon) > radius {
				continue
			}
			if inBoxes(boxes, pLat, pLon) != 1 {
				t.Fatalf("point %v, %v at %v m is in %d of the boxes %+v", pLat, pLon, distanceM(lat, lon, pLat, pLon), inBoxes(boxes, pLat, pLon), boxes)
			}
		}
	})
}

func TestBoundingBoxes_Shapes(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name             string
		lat, lon, radius float64
		boxes            int
		global           bool // all longitudes
		contains         [][2]float64
	}{
		{"in the open", 37.57, 126.98, 30000, 1, false, nil},
		{"west of the 180° meridian", 0, 179.9, 30000, 2, false, [][2]float64{{0, 180}, {0, -180}, {0, -179.85}}},
		{"east of the 180° meridian", 0, -179.9, 30000, 2, false, [][2]float64{{0, 180}, {0, -180}, {0, 179.85}}},
		{"on the 180° meridian", -17, 180, 1, 2, false, [][2]float64{{-17, 180}, {-17, -180}}},
		{"on it, written -180", -17, -180, 1, 2, false, [][2]float64{{-17, 180}, {-17, -180}}},
		{"touching it", 0, 179, 111195.0802, 2, false, [][2]float64{{0, 180}, {0, -180}}},
		{"over the north pole", 89.9, 0, 30000, 1, true, [][2]float64{{90, 77}, {89.9, 180}}},
		{"at the south pole", -90, 0, 1, 1, true, [][2]float64{{-90, 180}}},
		{"everywhere", 0, 0, maxRadiusM, 1, true, [][2]float64{{0, 180}, {-90, 0}, {90, -180}}},
		{"nearly half the earth", 0, 0, 9.9e6, 1, false, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			boxes := boundingBoxes(tt.lat, tt.lon, tt.radius)
			require.Len(t, boxes, tt.boxes, "%+v", boxes)
			require.Equal(t, tt.global, len(boxes) == 1 && boxes[0].west == -180 && boxes[0].east == 180, "%+v", boxes)
			for _, p := range tt.contains {
				require.Positive(t, inBoxes(boxes, p[0], p[1]), "%v in %+v", p, boxes)
			}
		})
	}
}

// TestBoundingBoxes_TouchingAPole: a pole has every longitude, so a circle whose
// edge just reaches it has to hold them all, whichever way rounding went.
func TestBoundingBoxes_TouchingAPole(t *testing.T) {
	t.Parallel()
	for i := range 100000 {
		lat := float64(i) * 90 / 100000
		radius := distanceM(lat, 0, 90, 0)
		if inBoxes(boundingBoxes(lat, 0, radius), 90, 180) == 0 || inBoxes(boundingBoxes(-lat, 0, radius), -90, -180) == 0 {
			t.Fatalf("latitude %v", lat) // require would take most of the time
		}
	}
}
