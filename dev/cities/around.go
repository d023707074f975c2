package cities

import (
	"cmp"
	"math"
	"slices"
)

// earthRadius is the earth's mean radius in metres, as in belfry.distance_m.
const earthRadius = 6371008.8

// Place is a city as it lies from a point: Metres away by the great circle, and so far East and
// North on a map on which distances and directions from that point are true (azimuthal
// equidistant), wherever on the earth it is. All are in metres.
type Place struct {
	City

	Metres, East, North float64
}

// placed is a city as it lies from a point.
func placed(c City, latitude, longitude float64) Place {
	from, to, turn := radians(latitude), radians(c.Latitude), radians(c.Longitude-longitude)
	up, across := math.Sin((to-from)/2), math.Sin(turn/2)
	h := up*up + math.Cos(from)*math.Cos(to)*across*across // haversine: exact for what is near as well
	p := Place{City: c, Metres: 2 * earthRadius * math.Asin(math.Sqrt(min(1, h)))}
	bearing := math.Atan2(math.Sin(turn)*math.Cos(to), math.Cos(from)*math.Sin(to)-math.Sin(from)*math.Cos(to)*math.Cos(turn))
	p.East, p.North = p.Metres*math.Sin(bearing), p.Metres*math.Cos(bearing)
	return p
}

func radians(degrees float64) float64 { return degrees * math.Pi / 180 }

// Around returns the places that lie within so many metres of a point, the edge included, the
// most populous first.
func Around(latitude, longitude, metres float64) (places []Place) {
	reach := metres/earthRadius*180/math.Pi + 1e-6 // in degrees, grown so that rounding leaves nothing out
	for _, c := range world().cities {
		if math.Abs(c.Latitude-latitude) > reach { // no place is nearer than its parallel
			continue
		}
		if p := placed(c, latitude, longitude); p.Metres <= metres {
			places = append(places, p)
		}
	}
	return places
}

// Nearest returns the place that is nearest to a point.
func Nearest(latitude, longitude float64) Place {
	var all []Place
	for reach := 100e3; len(all) == 0; reach *= 4 {
		all = Around(latitude, longitude, reach)
	}
	return slices.MinFunc(all, func(a, b Place) int { return cmp.Compare(a.Metres, b.Metres) })
}
