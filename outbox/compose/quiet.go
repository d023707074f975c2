package compose

import (
	"sync"
	"time"

	"github.com/belfryhq/belfry/channels"
)

// quietUntil reports whether now is within quiet hours, and their end. A local time that is skipped
// that day stands for the moment of the clock change. If it occurs twice, quiet hours begin at the
// first and end at the second occurrence.
func quietUntil(now time.Time, h channels.QuietHours, zone *time.Location) (end time.Time, quiet bool) {
	year, month, day := now.In(zone).Date()
	for offset := -1; offset <= 0; offset++ { // over midnight: those that began yesterday
		last := day + offset
		if h.End <= h.Start {
			last++
		}
		begin, _ := instants(year, month, day+offset, h.Start, zone)
		_, end := instants(year, month, last, h.End, zone)
		if !now.Before(begin) && now.Before(end) {
			return end, true
		}
	}
	return time.Time{}, false
}

// instants returns the first and the last instant at which the local time of a zone is a time of day.
// Both are the moment of the clock change if the time is skipped.
func instants(year int, month time.Month, day int, clock time.Duration, zone *time.Location) (first, last time.Time) {
	wall := time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Add(clock) // as if the zone were UTC
	at := func(near time.Time) (time.Time, bool) {
		_, seconds := near.In(zone).Zone()
		t := wall.Add(-time.Duration(seconds) * time.Second).In(zone)
		_, got := t.Zone()
		return t, got == seconds
	}
	before, fits := at(wall.Add(-24 * time.Hour))
	after, fits2 := at(wall.Add(24 * time.Hour))
	switch {
	case fits && fits2: // the same, or a time that comes twice: clocks go back
		return before, after
	case fits:
		return before, before
	case fits2:
		return after, after
	}
	change, _ := before.ZoneBounds()
	return change, change
}

// zones caches time zones by name. Names come from users' data, so the cache is bounded, and so are its names;
// beyond the number of names each call reads the zone database.
type zones struct {
	mu    sync.Mutex
	known map[string]*time.Location // nil if the name is unknown
}

// maxZones is more than the names of the IANA database.
const maxZones = 2048

// get returns the zone of a name, or otherwise if the name is unknown. One that is longer than those of
// belfry.channels is unknown.
func (z *zones) get(name string, otherwise *time.Location) *time.Location {
	if len(name) > channels.LongestTimeZone { // names of zones are ASCII
		return otherwise
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	zone, asked := z.known[name]
	if !asked {
		if found, ok := loadZone(name); ok {
			zone = found
		}
		if len(z.known) < maxZones {
			z.known[name] = zone
		}
	}
	if zone == nil {
		return otherwise
	}
	return zone
}

// loadZone is time.LoadLocation without the names "Local" and "".
func loadZone(name string) (*time.Location, bool) {
	if name == "" || name == "Local" {
		return nil, false
	}
	zone, err := time.LoadLocation(name)
	return zone, err == nil
}
