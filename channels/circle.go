package channels

import (
	"math"

	"github.com/jackc/pgx/v5/pgtype"
)

const (
	// earthRadiusM is the earth's mean radius in metres, as in belfry.distance_m.
	earthRadiusM = 6371008.8
	// maxRadiusM is half the circumference in whole metres: the whole earth.
	maxRadiusM = 20037509
	// boxMargin, in degrees, is about a metre. It enlarges the boxes, so
	// that rounding never excludes a point of the circle. The worst case is the
	// arc sine below with an argument near 1, which loses half of the digits.
	boxMargin = 1e-5
)

// box is an area between two meridians and two parallels, edges included, in
// degrees. west ≤ east: a box never crosses the 180° meridian.
type box struct{ west, south, east, north float64 }

func (b box) contains(lat, lon float64) bool {
	return b.west <= lon && lon <= b.east && b.south <= lat && lat <= b.north
}

// postgres returns the box for PostgreSQL, with the longitude as x.
func (b box) postgres() pgtype.Box {
	return pgtype.Box{P: [2]pgtype.Vec2{{X: b.east, Y: b.north}, {X: b.west, Y: b.south}}, Valid: true}
}

// boundingBoxes returns one box, or two that touch the 180° meridian from both
// sides and do not overlap, which together contain every point within radiusM
// of the centre. A circle that contains a pole spans all longitudes. For the
// longitudes of other circles see Jan Philip Matuschek, "Finding Points Within a
// Distance of a Latitude/Longitude Using Bounding Coordinates".
func boundingBoxes(lat, lon, radiusM float64) []box {
	angle := radiusM / earthRadiusM
	degrees := angle*180/math.Pi + boxMargin
	south, north := lat-degrees, lat+degrees
	if north >= 90 || south <= -90 {
		// A pole lies in the circle, or within the margin of it.
		return []box{{-180, math.Max(south, -90), 180, math.Min(north, 90)}}
	}
	ratio := math.Sin(angle) / math.Cos(lat*math.Pi/180)
	if ratio >= 1 {
		return []box{{-180, south, 180, north}}
	}
	width := math.Asin(ratio)*180/math.Pi + boxMargin
	west, east := lon-width, lon+width
	switch {
	case east-west >= 360:
		return []box{{-180, south, 180, north}}
	case west <= -180:
		return split(west+360, east, south, north)
	case east >= 180:
		return split(west, east-360, south, north)
	}
	return []box{{west, south, east, north}}
}

// split returns the two halves of a box that crosses the 180° meridian eastward
// from west to east.
func split(west, east, south, north float64) []box {
	if west <= east { // they meet again on the far side
		return []box{{-180, south, 180, north}}
	}
	return []box{{west, south, 180, north}, {-180, south, east, north}}
}
