package main

import (
	"strings"

	"github.com/belfryhq/belfry/internal/cities"
)

// findCity looks a city up by NAME or NAME,COUNTRY, the largest of its name
// first.
func findCity(text string) (cities.City, error) {
	name, country, _ := strings.Cut(text, ",")
	return cities.Find(strings.TrimSpace(name), strings.ToUpper(strings.TrimSpace(country)))
}
