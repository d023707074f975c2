package cities

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// earthRadius is the earth's mean radius in metres, as in belfry.distance_m.
const earthRadius = 6371008.8

// Place is a city with its position relative to a point: its great-circle distance Metres, and East and
// North in the azimuthal equidistant projection around the point. All are in metres.
type Place struct {
	City

	Metres, East, North float64
}

// placed returns the position of a city relative to a point.
func placed(c City, latitude, longitude float64) Place {
	from, to, turn := radians(latitude), radians(c.Latitude), radians(c.Longitude-longitude)
	up, across := math.Sin((to-from)/2), math.Sin(turn/2)
	h := up*up + math.Cos(from)*math.Cos(to)*across*across // haversine is also exact for small distances
	p := Place{City: c, Metres: 2 * earthRadius * math.Asin(math.Sqrt(min(1, h)))}
	bearing := math.Atan2(math.Sin(turn)*math.Cos(to), math.Cos(from)*math.Sin(to)-math.Sin(from)*math.Cos(to)*math.Cos(turn))
	p.East, p.North = p.Metres*math.Sin(bearing), p.Metres*math.Cos(bearing)
	return p
}

func radians(degrees float64) float64 { return degrees * math.Pi / 180 }

// Around returns the places within metres of a point, the edge included, the most populous first.
func Around(latitude, longitude, metres float64) (places []Place) {
	reach := metres/earthRadius*180/math.Pi + 1e-6 // in degrees, with a margin for rounding
	for _, c := range world().cities {
		if math.Abs(c.Latitude-latitude) > reach { // the distance is at least the difference of latitudes
			continue
		}
		if p := placed(c, latitude, longitude); p.Metres <= metres {
			places = append(places, p)
		}
	}
	return places
}

// Nearest returns the nearest place of a point.
func Nearest(latitude, longitude float64) Place {
	var all []Place
	for reach := 100e3; len(all) == 0; reach *= 4 {
		all = Around(latitude, longitude, reach)
	}
	return slices.MinFunc(all, func(a, b Place) int { return cmp.Compare(a.Metres, b.Metres) })
}

// Named returns the most populous place with a name, whatever its case.
func Named(name string) (City, bool) {
	for _, c := range world().cities {
		if len(name) == len(c.Name) && strings.EqualFold(c.Name, name) {
			return c, true
		}
	}
	return City{}, false
}
