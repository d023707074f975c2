package main

import (
	"strings"

	"github.com/belfryhq/belfry/channels"
)

// findCity looks a city up by NAME or NAME,COUNTRY, the largest of its name
// first.
func findCity(text string) (channels.City, error) {
	name, country, _ := strings.Cut(text, ",")
	return channels.FindCity(strings.TrimSpace(name), strings.ToUpper(strings.TrimSpace(country)))
}
