package admin

import (
	"fmt"
	"strings"
	"time"
)

// Instant is a moment as a person says it: absolute, or so long from now. The zero value
// is no moment.
type Instant struct {
	at      time.Time
	ahead   time.Duration
	fromNow bool
}

// At is the moment, in UTC. Now is the process's; the database compares the result with its
// own clock.
func (i Instant) At(now time.Time) time.Time {
	if i.fromNow {
		return now.Add(i.ahead).UTC()
	}
	return i.at
}

// UnmarshalText reads RFC 3339, +DURATION from now, or a date and time in the local zone.
func (i *Instant) UnmarshalText(text []byte) (err error) {
	*i, err = ParseInstant(string(text), time.Local)
	return err
}

// zonedLayouts are the forms of a time with its zone; the second is what tables show.
func zonedLayouts() []string { return []string{time.RFC3339Nano, "2006-01-02 15:04:05Z07:00"} }

// localLayouts are the forms of a time without a zone.
func localLayouts() []string {
	return []string{"2006-01-02 15:04", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02T15:04:05"}
}

// ParseInstant reads an Instant; one without a zone is in the given one.
func ParseInstant(text string, zone *time.Location) (Instant, error) {
	for _, layout := range zonedLayouts() {
		if t, err := time.Parse(layout, text); err == nil {
			return Instant{at: t.UTC()}, nil
		}
	}
	if ahead, ok := strings.CutPrefix(text, "+"); ok {
		if d, err := time.ParseDuration(ahead); err == nil && d >= 0 {
			return Instant{ahead: d, fromNow: true}, nil
		}
	}
	for _, layout := range localLayouts() {
		t, err := time.ParseInLocation(layout, text, zone)
		if err != nil {
			continue
		}
		if t.Format(layout) != text { // an hour that the change of clocks skips
			return Instant{}, fmt.Errorf("%s does not exist in the time zone %s", text, zone)
		}
		return Instant{at: t.UTC()}, nil
	}
	return Instant{}, &notAllowedError{`RFC 3339 as 2026-11-20T08:50:00+09:00, +10m from now, or "2026-11-20 08:50" in local time`}
}
