package text

import (
	"strconv"
	"time"
)

// Times is how instants are shown. The zero value shows local time.
type Times struct {
	// Zone is the zone; nil: the machine's.
	Zone *time.Location
	// Relative shows how far an instant is from now instead: 3m ago, in 2h.
	Relative bool
	// Now is the clock for that, a process's; nil: the machine's.
	Now func() time.Time
}

// Clock renders an instant to the second, with its zone, as psql does and as --at reads it; or how
// far it is from now.
func (s Times) Clock(t time.Time) string {
	switch {
	case s.Relative && s.Now != nil:
		return fromNow(t.Sub(s.Now()))
	case s.Relative:
		return fromNow(time.Until(t))
	case s.Zone != nil:
		return t.In(s.Zone).Format(clockLayout)
	}
	return LocalClock(t)
}

// TimeOfDay renders an instant of today: as Clock does, without the date and the zone.
func (s Times) TimeOfDay(t time.Time) string {
	switch {
	case s.Relative:
		return s.Clock(t)
	case s.Zone != nil:
		return t.In(s.Zone).Format(time.TimeOnly)
	}
	return t.Local().Format(time.TimeOnly)
}

const clockLayout = "2006-01-02 15:04:05-07:00"

// LocalClock renders an instant in local time, for a text that is on no [Page]: an error, a question.
func LocalClock(t time.Time) string { return t.Local().Format(clockLayout) }

// fromNow renders how far something is ahead, or how long ago it was if d is negative.
func fromNow(d time.Duration) string {
	switch {
	case d >= time.Second:
		return "in " + rough(d)
	case d <= -time.Second:
		return rough(-d) + " ago"
	}
	return "now"
}

// rough is a span in the one unit that has it at two or more, rounded down: 90s, 3m, 47h, 12d.
func rough(d time.Duration) string {
	const day = 24 * time.Hour
	for _, u := range []struct {
		of   time.Duration
		name string
	}{{day, "d"}, {time.Hour, "h"}, {time.Minute, "m"}} {
		if d >= 2*u.of {
			return strconv.FormatInt(int64(d/u.of), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(d/time.Second), 10) + "s"
}
