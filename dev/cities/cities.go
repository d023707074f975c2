package cities

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/csv"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
)

// citiesFile is from GeoNames under CC BY 4.0; see CITIES.md.
//
//go:embed cities.csv.gz
var citiesFile []byte

// City is a place with at least 15,000 inhabitants.
type City struct {
	Name       string  `json:"name"`
	Country    string  `json:"country"` // ISO 3166-1 alpha-2, upper case
	Population int64   `json:"population"`
	Latitude   float64 `json:"latitude"`
	Longitude  float64 `json:"longitude"`
}

// atlas has the embedded places, most populous first, and the running sum of their population, which
// weights random draws.
type atlas struct {
	cities []City
	upTo   []int64 // population of the cities up to and including this one
}

// world decodes the embedded file on first use. An invalid file is a programming error.
//
//nolint:gochecknoglobals // decodes an embedded file once and is never written
var world = sync.OnceValue(func() *atlas {
	must := func(err error) {
		if err != nil {
			panic(fmt.Errorf("cities: cities.csv.gz: %w", err))
		}
	}
	z, err := gzip.NewReader(bytes.NewReader(citiesFile))
	must(err)
	records, err := csv.NewReader(z).ReadAll()
	must(err)
	a := &atlas{}
	var total int64
	for _, r := range records[1:] {
		population, err1 := strconv.ParseInt(r[2], 10, 64)
		lat, err2 := strconv.ParseFloat(r[3], 64)
		lon, err3 := strconv.ParseFloat(r[4], 64)
		must(errors.Join(err1, err2, err3))
		total += population
		a.cities = append(a.cities, City{Name: r[0], Country: r[1], Population: population, Latitude: lat, Longitude: lon})
		a.upTo = append(a.upTo, total)
	}
	return a
})

// at returns the city of the person with the given number, 0 to people()-1.
func (a *atlas) at(person int64) City {
	i, found := slices.BinarySearch(a.upTo, person)
	if found {
		i++
	}
	return a.cities[i]
}

func (a *atlas) people() int64 {
	return a.upTo[len(a.upTo)-1]
}
