package operation

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/text"
)

// Instant is a point in time, absolute or relative to now. The zero value is none.
type Instant struct {
	moment  time.Time
	ahead   time.Duration
	fromNow bool
}

// At returns the instant in UTC. now is the process's time; the database compares the result with its own
// clock.
func (i Instant) At(now time.Time) time.Time {
	if i.fromNow {
		return now.Add(i.ahead).UTC()
	}
	return i.moment
}

// UnmarshalText parses RFC 3339, +DURATION from now, or a date and time in the local zone.
func (i *Instant) UnmarshalText(text []byte) (err error) {
	*i, err = ParseInstant(string(text), time.Local)
	return err
}

// MarshalText renders the instant in a form that is the same in every time zone.
func (i Instant) MarshalText() ([]byte, error) {
	if i.fromNow {
		return []byte("+" + i.ahead.String()), nil
	}
	return i.moment.AppendFormat(nil, time.RFC3339Nano), nil
}

// zonedLayouts are the layouts of a time with its zone. Tables show the second one.
func zonedLayouts() []string { return []string{time.RFC3339Nano, "2006-01-02 15:04:05Z07:00"} }

// localLayouts are the layouts of a time without a zone.
func localLayouts() []string {
	return []string{"2006-01-02 15:04", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02T15:04:05"}
}

// ParseInstant parses an Instant. zone applies to a time without a zone.
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
		if t.Format(layout) != text { // an hour that a change to summer time skips
			return Instant{}, fmt.Errorf("%s does not exist in the time zone %s", text, zone)
		}
		return Instant{moment: firstOf(t).UTC()}, nil
	}
	return Instant{}, &NotAllowedError{`RFC 3339 as 2026-11-20T08:50:00+09:00, +10m from now, or "2026-11-20 08:50" in local time`}
}

// firstOf returns the first of two instants at which clocks show t, if they are put back then. Schedules do
// the same.
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

// Given returns the instant, or nil if i is nil.
func (i *Instant) Given(now time.Time) *time.Time {
	if i == nil {
		return nil
	}
	t := i.At(now)
	return &t
}

// Span is a positive duration.
type Span time.Duration

// UnmarshalText parses a duration.
func (s *Span) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	if err != nil || d <= 0 {
		return &NotAllowedError{"durations above 0s with their unit, such as 30s, 5m or 1h30m"}
	}
	*s = Span(d)
	return nil
}

// MarshalText renders the duration.
func (s Span) MarshalText() ([]byte, error) { return []byte(time.Duration(s).String()), nil }

// Age is a span of a minute to a hundred years.
type Age time.Duration

// UnmarshalText parses a duration, which may be in days.
func (a *Age) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	if days, ok := strings.CutSuffix(string(text), "d"); ok {
		var n int
		n, err = strconv.Atoi(days)
		d = time.Duration(min(n, 1_000_000)) * 24 * time.Hour
	}
	if err != nil || text[0] == '+' || d < time.Minute || d > 36_500*24*time.Hour {
		return &NotAllowedError{"1m to 36500d, with the unit, such as 90d, 36h or 1h30m"}
	}
	*a = Age(d)
	return nil
}

// MarshalText renders the duration.
func (a Age) MarshalText() ([]byte, error) { return []byte(time.Duration(a).String()), nil }

// String renders the age in days, or as a duration if it is no multiple of a day.
func (a Age) String() string {
	if d := time.Duration(a); d%(24*time.Hour) == 0 {
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	}
	return text.Short(time.Duration(a))
}

// Past is an instant that is not in the future: an Instant, or an age.
type Past struct{ Instant }

// UnmarshalText parses either form.
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

// MarshalText renders the form that was parsed.
func (p Past) MarshalText() ([]byte, error) {
	if p.fromNow {
		return Age(-p.ahead).MarshalText()
	}
	return p.Instant.MarshalText()
}

// Before returns the instant, or nil if p is nil.
func (p *Past) Before(env *Env) *time.Time {
	if p == nil {
		return nil
	}
	t := p.At(env.Time())
	return &t
}

// SecondsSpan returns seconds as a duration.
func SecondsSpan(s *float64) time.Duration {
	if s == nil {
		return -1
	}
	return time.Duration(*s * float64(time.Second))
}

// Known returns a rate, or nil if it is unknown.
func Known(rate float64, known bool) *float64 {
	if !known {
		return nil
	}
	return &rate
}
