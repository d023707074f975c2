package operation

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/text"
)

// Instant is a moment as a person says it: absolute, or so long from now. The zero value
// is no moment.
type Instant struct {
	moment  time.Time
	ahead   time.Duration
	fromNow bool
}

// At is the moment, in UTC. Now is the process's; the database compares the result with its
// own clock.
func (i Instant) At(now time.Time) time.Time {
	if i.fromNow {
		return now.Add(i.ahead).UTC()
	}
	return i.moment
}

// UnmarshalText reads RFC 3339, +DURATION from now, or a date and time in the local zone.
func (i *Instant) UnmarshalText(text []byte) (err error) {
	*i, err = ParseInstant(string(text), time.Local)
	return err
}

// MarshalText writes it so that it reads the same in every time zone.
func (i Instant) MarshalText() ([]byte, error) {
	if i.fromNow {
		return []byte("+" + i.ahead.String()), nil
	}
	return i.moment.AppendFormat(nil, time.RFC3339Nano), nil
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
			return Instant{moment: t.UTC()}, nil
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
		return Instant{moment: firstOf(t).UTC()}, nil
	}
	return Instant{}, &NotAllowedError{`RFC 3339 as 2026-11-20T08:50:00+09:00, +10m from now, or "2026-11-20 08:50" in local time`}
}

// firstOf is the first of the two moments at which clocks show t, if they are put back then, as
// schedules take it.
func firstOf(t time.Time) time.Time {
	start, _ := t.ZoneBounds()
	if start.IsZero() {
		return t
	}
	_, now := t.Zone()
	_, before := start.Add(-1).Zone()
	if first := t.Add(time.Duration(now-before) * time.Second); first.Before(start) && before > now {
		return first
	}
	return t
}

// Given returns the moment, or nil if i is nil.
func (i *Instant) Given(now time.Time) *time.Time {
	if i == nil {
		return nil
	}
	t := i.At(now)
	return &t
}

// Span is a duration that is longer than nothing.
type Span time.Duration

// UnmarshalText reads one.
func (s *Span) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	if err != nil || d <= 0 {
		return &NotAllowedError{"durations above 0s with their unit, as 30s, 5m or 1h30m"}
	}
	*s = Span(d)
	return nil
}

// MarshalText writes a duration.
func (s Span) MarshalText() ([]byte, error) { return []byte(time.Duration(s).String()), nil }

// Age is a span of a minute to a hundred years.
type Age time.Duration

// UnmarshalText reads a duration, also in days.
func (a *Age) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	if days, ok := strings.CutSuffix(string(text), "d"); ok {
		var n int
		n, err = strconv.Atoi(days)
		d = time.Duration(min(n, 1_000_000)) * 24 * time.Hour
	}
	if err != nil || text[0] == '+' || d < time.Minute || d > 36_500*24*time.Hour {
		return &NotAllowedError{"1m to 36500d, with the unit, as 90d, 36h or 1h30m"}
	}
	*a = Age(d)
	return nil
}

// MarshalText writes a duration.
func (a Age) MarshalText() ([]byte, error) { return []byte(time.Duration(a).String()), nil }

// String is the age for people: days, if it has no hours.
func (a Age) String() string {
	if d := time.Duration(a); d%(24*time.Hour) == 0 {
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	}
	return text.Short(time.Duration(a))
}

// Past is a moment that is no matter of the future: an Instant, or how long ago it was.
type Past struct{ Instant }

// UnmarshalText reads either.
func (p *Past) UnmarshalText(text []byte) error {
	var ago Age
	if ago.UnmarshalText(text) == nil {
		p.Instant = Instant{ahead: -time.Duration(ago), fromNow: true}
		return nil
	}
	i, err := ParseInstant(string(text), time.Local)
	if err != nil || i.fromNow {
		return &NotAllowedError{`RFC 3339 as 2026-11-20T08:50:00+09:00, "2026-11-20 08:50" in local time, or the time since then, as 90m, 2h or 7d`}
	}
	p.Instant = i
	return nil
}

// MarshalText writes either.
func (p Past) MarshalText() ([]byte, error) {
	if p.fromNow {
		return Age(-p.ahead).MarshalText()
	}
	return p.Instant.MarshalText()
}

// Before returns the moment, or nil if p is nil.
func (p *Past) Before(env *Env) *time.Time {
	if p == nil {
		return nil
	}
	t := p.At(env.Time())
	return &t
}

// SecondsSpan is what seconds was made of.
func SecondsSpan(s *float64) time.Duration {
	if s == nil {
		return -1
	}
	return time.Duration(*s * float64(time.Second))
}

// Known returns a rate, or nil if it is not known yet.
func Known(rate float64, known bool) *float64 {
	if !known {
		return nil
	}
	return &rate
}
