package compose

import (
	"sync"
	"time"

	"github.com/belfryhq/belfry/channels"
)

// quietUntil tells whether now lies in quiet hours, and when they end. A clock time that
// the zone's clocks leave out that day is the moment at which they change; of one that
// comes twice, the first begins quiet hours and the second ends them.
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

// instants returns the first and the last instant at which the clocks of a zone show a
// time of a day. Both are the moment of the change when a change leaves it out.
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

// zones are the time zones by name that were asked for. Names come from users' data:
// the memory is bounded, and beyond it each look goes to the zone database.
type zones struct {
	mu    sync.Mutex
	known map[string]*time.Location // nil: there is none
}

// maxZones is more than the names of the IANA database.
const maxZones = 2048

// get returns a zone, or otherwise when there is none of that name.
func (z *zones) get(name string, otherwise *time.Location) *time.Location {
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

// loadZone is time.LoadLocation without its own names for here and nowhere.
func loadZone(name string) (*time.Location, bool) {
	if name == "" || name == "Local" {
		return nil, false
	}
	zone, err := time.LoadLocation(name)
	return zone, err == nil
}
