package cities

import (
	"bytes"
	"cmp"
	"compress/gzip"
	_ "embed"
	"encoding/csv"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/runes"
	"golang.org/x/text/transform"
	"golang.org/x/text/unicode/norm"
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

// errNoCity reports that Find knows no such place. The text suggests others.
var errNoCity = errors.New("no such city")

// atlas is the embedded places, most populous first, and the running sum of
// their population, to draw one in proportion to it.
type atlas struct {
	cities []City
	folded []string // names without case and diacritics
	upTo   []int64  // population of the cities up to and including this one
}

// world decodes the embedded file once, when it is first asked for. The file is
// part of the binary: a mistake in it is a programming error.
//
//nolint:gochecknoglobals // decodes an embedded file once and is never written
var world = sync.OnceValue(func() *atlas {
	z, err := gzip.NewReader(bytes.NewReader(citiesFile))
	if err != nil {
		panic(fmt.Errorf("cities: cities.csv.gz: %w", err))
	}
	records, err := csv.NewReader(z).ReadAll()
	if err != nil {
		panic(fmt.Errorf("cities: cities.csv.gz: %w", err))
	}
	a := &atlas{}
	var total int64
	for _, r := range records[1:] {
		population, err1 := strconv.ParseInt(r[2], 10, 64)
		lat, err2 := strconv.ParseFloat(r[3], 64)
		lon, err3 := strconv.ParseFloat(r[4], 64)
		if err := errors.Join(err1, err2, err3); err != nil {
			panic(fmt.Errorf("cities: cities.csv.gz: %w", err))
		}
		total += population
		a.cities = append(a.cities, City{Name: r[0], Country: r[1], Population: population, Latitude: lat, Longitude: lon})
		a.folded = append(a.folded, fold(r[0]))
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

// plainSpelling is of letters that have no decomposition but a customary plain spelling.
//
//nolint:gochecknoglobals // is never written
var plainSpelling = strings.NewReplacer("ø", "o", "ł", "l", "đ", "d", "ð", "d", "ı", "i", "ß", "ss", "æ", "ae", "œ", "oe", "þ", "th")

// fold removes case, diacritics and everything but letters and digits: "São
// Paulo" and "sao-paulo" fold to the same.
func fold(name string) string {
	ascii := true
	plain := strings.Map(func(r rune) rune {
		switch {
		case r >= utf8.RuneSelf:
			ascii = false
		case 'A' <= r && r <= 'Z':
			return r - 'A' + 'a'
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9':
			return r
		}
		return -1
	}, name)
	if ascii { // as most are: all names of the atlas take 30 ms instead of 101
		return plain
	}
	t := transform.Chain(norm.NFKD, runes.Remove(runes.Predicate(func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})))
	folded, _, err := transform.String(t, name)
	if err != nil {
		folded = name
	}
	return plainSpelling.Replace(strings.ToLower(folded))
}

// Find returns the most populous place of that name, without regard to case
// and diacritics, in the country if one is given (ISO 3166-1 alpha-2). The error
// is errNoCity and suggests near names. It touches no database.
func Find(name, country string) (City, error) {
	a, want := world(), fold(name)
	country = strings.ToUpper(strings.TrimSpace(country))
	var elsewhere []City
	for i, folded := range a.folded {
		if folded != want || want == "" {
			continue
		}
		if c := a.cities[i]; country == "" || c.Country == country {
			return c, nil
		}
		elsewhere = append(elsewhere, a.cities[i])
	}
	if len(elsewhere) == 0 {
		elsewhere = a.near(want, country)
	}
	in := ""
	if country != "" {
		in = " in " + country
	}
	hint := ""
	if len(elsewhere) > 0 {
		names := make([]string, 0, 3)
		for _, c := range elsewhere[:min(3, len(elsewhere))] {
			names = append(names, c.Name+" ("+c.Country+")")
		}
		hint = "; near names: " + strings.Join(names, ", ")
	}
	return City{}, fmt.Errorf("%w: %s%s%s", errNoCity, strconv.Quote(clip(name)), in, hint)
}

// Largest returns the names of the n most populous places, each with its country, as Find takes
// them once they are cut at the comma: "Seoul,KR". It touches no database.
func Largest(n int) []string {
	a := world()
	names, seen := make([]string, 0, n), make(map[string]bool, n)
	for i := 0; i < len(a.cities) && len(names) < n; i++ {
		c := a.cities[i]
		if key := a.folded[i] + "," + c.Country; !seen[key] && !strings.Contains(c.Name, ",") {
			seen[key] = true
			names = append(names, c.Name+","+c.Country)
		}
	}
	return names
}

// near returns the cities whose names begin with the wanted one or differ from
// it by few letters, nearest and then most populous first.
func (a *atlas) near(want, country string) []City {
	if want == "" {
		return nil
	}
	type candidate struct{ index, apart int }
	var found []candidate
	tolerance := max(1, len([]rune(want))/3)
	for i, folded := range a.folded {
		if country != "" && a.cities[i].Country != country {
			continue
		}
		if apart := editDistance(want, folded, tolerance); apart <= tolerance {
			found = append(found, candidate{i, apart})
		} else if len(want) >= 3 && strings.HasPrefix(folded, want) {
			found = append(found, candidate{i, tolerance + 1})
		}
	}
	slices.SortStableFunc(found, func(x, y candidate) int { return cmp.Compare(x.apart, y.apart) })
	cities := make([]City, 0, len(found))
	for _, c := range found {
		cities = append(cities, a.cities[c.index])
	}
	return cities
}

// editDistance is Levenshtein's, in letters; above limit it may be any number
// above limit.
func editDistance(a, b string, limit int) int {
	x, y := []rune(a), []rune(b)
	if d := len(x) - len(y); d > limit || -d > limit {
		return limit + 1
	}
	row := make([]int, len(y)+1)
	for j := range row {
		row[j] = j
	}
	for i, letter := range x {
		diagonal := row[0]
		row[0] = i + 1
		for j, other := range y {
			cost := diagonal
			if letter != other {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(y)]
}

// clip keeps a name that somebody gave at a length that can be printed.
func clip(name string) string {
	if letters := []rune(name); len(letters) > 60 {
		return string(letters[:60]) + "…"
	}
	return name
}
