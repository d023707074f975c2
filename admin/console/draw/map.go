package draw

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/dev/cities"
	"github.com/belfryhq/belfry/internal/text"
)

// The sizes of a map, in its own units, which are the pixels of a page.
const (
	mapSize   = 320
	mapCentre = mapSize / 2
	mapCircle = 118 // the radius of the circle
	mapEdge   = 150 // the largest distance of a place from the centre's axes
	mapDots   = 150 // the largest number of places, the most populous first
	mapNames  = 7   // the largest number of names
	mapLetter = 6.2 // the approximate width of a letter
	mapBar    = 110 // the longest scale bar
)

// Audience is an audience in words.
type Audience struct {
	Words string
	Map   *Map // nil if it is no radius
}

// Map is a circle on the earth with the places around it. North is up; distances and directions from its
// centre are exact, at any latitude and across the 180° meridian.
type Map struct {
	About  string // the text alternative
	Circle float64
	Dots   []Dot
	Names  []Label
	Bar    float64 // the length of the scale bar
	Scale  string  // its length in words
	Places *Table
}

// Dot is a place on a map.
type Dot struct {
	X, Y, R float64
	Inside  bool
}

// Label is a name on a map.
type Label struct {
	X, Y   float64
	Anchor string
	Text   string
}

// NewAudience describes an audience, a radius with a map.
func NewAudience(a channels.Audience) Audience {
	words := "Active channels " + a.String() + "."
	switch a.Kind {
	case channels.KindEveryone:
		words = "Every active channel."
	case channels.KindChannels:
		words = "Of " + a.String() + " those that are active."
	case channels.KindSegment:
		words = "Active channels in " + a.String() + "."
	case channels.KindPlatforms:
	case channels.KindRadius:
		m, places := newMap(a)
		return Audience{words + " " + places, m}
	}
	return Audience{Words: words}
}

// newMap draws a radius and describes the places in it.
func newMap(a channels.Audience) (m *Map, words string) {
	seen := a.RadiusM * mapEdge / mapCircle // from the centre to the edge of the map
	around := cities.Around(a.Latitude, a.Longitude, min(seen*math.Sqrt2, math.Pi*6371008.8))
	m = &Map{Circle: mapCircle,
		Places: NewTable("the largest places on the map", "place", "country", ">inhabitants", ">distance", "direction", "in the circle")}
	unit := mapCircle / a.RadiusM // per metre
	var within []cities.Place
	var people int64
	for _, p := range around {
		inside := p.Metres <= a.RadiusM
		if inside {
			within = append(within, p)
			people += p.Population
		}
		x, y := p.East*unit, -p.North*unit
		if len(m.Dots) == mapDots || max(math.Abs(x), math.Abs(y)) > mapEdge {
			continue
		}
		d := Dot{rounded(mapCentre + x), rounded(mapCentre + y), dotSize(p.Population), inside}
		m.Dots = append(m.Dots, d)
		if len(m.Names) < mapNames {
			m.name(p.Name, d)
		}
		if len(m.Places.Rows) < 3*mapNames {
			m.list(p, inside)
		}
	}
	length, scale := scaleBar(mapBar / unit)
	m.Bar, m.Scale = rounded(length*unit), scale
	words = describe(a, within, people)
	m.About = fmt.Sprintf("A circle with a radius of %s. %s North is up, and the bar is %s long.", distance(a.RadiusM), words, scale)
	return m, words
}

// describe describes the places in a circle.
func describe(a channels.Audience, within []cities.Place, people int64) string {
	near := cities.Nearest(a.Latitude, a.Longitude)
	words := "The centre is " + near.Name + ", " + near.Country + "."
	if near.Metres >= 500 {
		words = fmt.Sprintf("The centre is %s %s of %s, %s.", distance(near.Metres), direction(-near.East, -near.North), near.Name, near.Country)
	}
	switch len(within) {
	case 0:
		return words + " No place with 15,000 inhabitants lies within the circle."
	case 1:
		return words + fmt.Sprintf(" One place with at least 15,000 inhabitants lies within the circle: %s.", within[0].Name)
	}
	var names []string
	for _, p := range within[:min(len(within), 5)] {
		names = append(names, p.Name)
	}
	rest := ""
	if n := len(within) - len(names); n > 0 {
		rest = " and " + text.Grouped(int64(n)) + " more"
	}
	return words + fmt.Sprintf(" %s places with at least 15,000 inhabitants lie within the circle, with %s inhabitants together: %s%s.",
		text.Grouped(int64(len(within))), text.Grouped(people), strings.Join(names, ", "), rest)
}

// name adds a name beside its place unless it overlaps another name or leaves the map.
func (m *Map) name(text string, at Dot) {
	width := mapLetter * float64(len([]rune(text)))
	l := Label{rounded(at.X + at.R + 3), rounded(at.Y + 4), "start", text}
	left := l.X
	if at.X > mapCentre && l.X+width > mapSize-4 { // keep the name on the map
		l.X, l.Anchor = rounded(at.X-at.R-3), "end"
		left = l.X - width
	}
	if left < 2 || left+width > mapSize-2 || at.Y > mapSize-34 { // where the bar is
		return
	}
	for _, other := range m.Names {
		otherLeft, otherWidth := other.X, mapLetter*float64(len([]rune(other.Text)))
		if other.Anchor == "end" {
			otherLeft -= otherWidth
		}
		if math.Abs(other.Y-l.Y) < 12 && left < otherLeft+otherWidth+4 && otherLeft < left+width+4 {
			return
		}
	}
	m.Names = append(m.Names, l)
}

// list adds a place to the table of the map.
func (m *Map) list(p cities.Place, inside bool) {
	in, to := "no", direction(p.East, p.North)
	if inside {
		in = "yes"
	}
	if p.Metres < 100 {
		to = "at the centre"
	}
	m.Places.Add(nil, p.Name, p.Country, p.Population, distance(p.Metres), to, in)
}

// dotSize returns the radius of a dot, whose area grows with the population.
func dotSize(people int64) float64 {
	return rounded(min(6, 1.2+math.Sqrt(float64(people))/900))
}

// scaleBar returns the longest of 1, 2 and 5 times a power of ten that is at most the given length in metres.
func scaleBar(most float64) (metres float64, text string) {
	power := math.Pow(10, math.Floor(math.Log10(most)))
	metres = power
	for _, times := range []float64{2, 5} {
		if times*power <= most {
			metres = times * power
		}
	}
	return metres, distance(metres)
}

// distance renders a distance: 320 m, 1.2 km, 27 km, 1,400 km.
func distance(metres float64) string {
	switch {
	case metres < 1:
		return strconv.FormatFloat(metres, 'g', 1, 64) + " m"
	case metres < 1000:
		return strconv.FormatFloat(metres, 'f', 0, 64) + " m"
	case metres < 10e3:
		return strings.TrimSuffix(strconv.FormatFloat(metres/1000, 'f', 1, 64), ".0") + " km"
	}
	return text.Grouped(int64(math.Round(metres/1000))) + " km"
}

// direction returns the point of the compass of a vector.
func direction(east, north float64) string {
	points := []string{"north", "north-east", "east", "south-east", "south", "south-west", "west", "north-west"}
	turn := math.Atan2(east, north)/(math.Pi/4) + 8
	return points[int(math.Round(turn))%len(points)]
}

// rounded rounds a coordinate to a tenth.
func rounded(n float64) float64 { return math.Round(n*10) / 10 }
