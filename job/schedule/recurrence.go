package schedule

import (
	"fmt"
	"math/bits"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// interval is the grid anchor + k × every, k ≥ 1, in elapsed time.
type interval struct {
	anchor time.Time // whole seconds
	every  time.Duration
}

func (i interval) next(after time.Time) time.Time {
	// In seconds: the difference of two years far apart does not fit a Duration.
	seconds, step := after.Unix()-i.anchor.Unix(), int64(i.every/time.Second)
	k := seconds / step
	if seconds < 0 {
		k = 0
	}
	return time.Unix(i.anchor.Unix()+(k+1)*step, 0).UTC()
}

// crontab is a cron expression in a time zone. The fields are bit sets made by
// robfig/cron; when they come true around a change of the clocks is decided here.
type crontab struct {
	spec     *cron.SpecSchedule
	zone     *time.Location
	realTime bool // the hour field contains *: see the package comment
}

// starBit is robfig/cron's mark of a field that restricts nothing.
const starBit = 1 << 63

// horizon bounds the search for an occurrence, in years: 29 February is up to
// eight years away.
const horizon = 9

func parseCron(text string, zone *time.Location) (*crontab, error) {
	plain := plainCron(text)
	if !cronShape().MatchString(plain) || len(text) > 200 {
		return nil, fmt.Errorf("%q is not a cron expression; allowed values: %s", text, cronWants)
	}
	fields := strings.Fields(plain)
	if len(fields) == 5 {
		if err := checkSteps(fields); err != nil {
			return nil, fmt.Errorf("%q is not a cron expression: %w; allowed values: %s", text, err, cronWants)
		}
		fields[4] = plainDays(fields[4])
	}
	parsed, err := cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor).Parse(
		strings.Join(fields, " "))
	if err != nil {
		return nil, fmt.Errorf("%q is not a cron expression: %w; allowed values: %s", text, err, cronWants)
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok { // @every, which the shape leaves out
		return nil, fmt.Errorf("%q is not a cron expression; allowed values: %s", text, cronWants)
	}
	c := &crontab{spec: spec, zone: zone, realTime: plain == "@hourly"}
	if len(fields) == 5 {
		c.realTime = strings.Contains(fields[1], "*")
	}
	if c.wall(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return nil, fmt.Errorf("%q never comes: no such day of the month; allowed values: %s", text, cronWants)
	}
	return c, nil
}

func (c *crontab) next(after time.Time) time.Time {
	if c.realTime {
		return c.nextReal(after)
	}
	return c.nextWall(after)
}

// A wall time is local time, stored as if it were UTC.

// nextWall goes through the matching wall times in order. The instants at which a
// clock shows them first never go back, so the first one above after is the answer:
// all wall times up to the one at after came at or before it.
func (c *crontab) nextWall(after time.Time) time.Time {
	_, offset := after.In(c.zone).Zone()
	w := after.Add(time.Duration(offset) * time.Second).UTC().Truncate(time.Minute)
	for {
		if w = c.wall(w.Add(time.Minute)); w.IsZero() {
			return time.Time{}
		}
		if t := c.first(w); t.After(after) {
			return t
		}
	}
}

// nextReal goes through the stretches of time in which the zone's offset is the same.
func (c *crontab) nextReal(after time.Time) time.Time {
	limit := after.AddDate(horizon, 0, 0)
	for from := after.Add(1); from.Before(limit); {
		local := from.In(c.zone)
		_, seconds := local.Zone()
		offset := time.Duration(seconds) * time.Second
		_, end := stretch(local)
		w := from.Add(offset).UTC()
		if up := w.Truncate(time.Minute); up.Before(w) {
			w = up.Add(time.Minute)
		}
		if w = c.wall(w); w.IsZero() {
			return time.Time{}
		}
		if t := w.Add(-offset); end.IsZero() || t.Before(end) {
			return t
		}
		from = end
	}
	return time.Time{}
}

// stretch returns the bounds of the time around local in which the zone's offset is the same. A zero bound is none.
// On 31 December of a leap year, Go's own end is the beginning of that day: time.tzset counts 365 days for each year.
// The offset remains until the year ends.
func stretch(local time.Time) (start, end time.Time) {
	start, end = local.ZoneBounds()
	for !end.IsZero() && !end.After(local) {
		end = end.Add(24 * time.Hour)
	}
	return start, end
}

// first returns the first instant at which a clock in the zone shows w, or the first
// instant after the gap that leaves w out.
func (c *crontab) first(w time.Time) time.Time {
	// No zone is more than 26 hours from UTC: the stretch that this begins in is over
	// before w or is the first that can show it.
	for at := w.Add(-26 * time.Hour); ; {
		local := at.In(c.zone)
		_, seconds := local.Zone()
		start, end := stretch(local)
		t := w.Add(-time.Duration(seconds) * time.Second)
		switch {
		case !end.IsZero() && !t.Before(end):
			at = end
		case !start.IsZero() && t.Before(start):
			return start.UTC()
		default:
			return t
		}
	}
}

// wall returns the first matching wall time at or after w, which is a whole minute, or
// the zero time when there is none within the horizon.
func (c *crontab) wall(w time.Time) time.Time {
	limit := w.AddDate(horizon, 0, 0)
	for w.Before(limit) {
		y, m, d := w.Date()
		switch {
		case c.spec.Month&(1<<uint(m)) == 0:
			w = time.Date(y, m+1, 1, 0, 0, 0, 0, time.UTC)
		case !c.day(w):
			w = time.Date(y, m, d+1, 0, 0, 0, 0, time.UTC)
		default:
			hour, ok := atLeast(c.spec.Hour, w.Hour())
			switch {
			case !ok:
				w = time.Date(y, m, d+1, 0, 0, 0, 0, time.UTC)
				continue
			case hour > w.Hour():
				w = time.Date(y, m, d, hour, 0, 0, 0, time.UTC)
			}
			minute, ok := atLeast(c.spec.Minute, w.Minute())
			if ok {
				return time.Date(y, m, d, hour, minute, 0, 0, time.UTC)
			}
			w = time.Date(y, m, d, hour+1, 0, 0, 0, time.UTC)
		}
	}
	return time.Time{}
}

// day applies cron's rule of the two day fields.
func (c *crontab) day(w time.Time) bool {
	dom, dow := c.spec.Dom&(1<<uint(w.Day())) != 0, c.spec.Dow&(1<<uint(w.Weekday())) != 0
	if c.spec.Dom&starBit != 0 || c.spec.Dow&starBit != 0 {
		return dom && dow
	}
	return dom || dow
}

// atLeast returns the lowest member of set that is not below n.
func atLeast(set uint64, n int) (int, bool) {
	set &^= starBit
	set &= ^uint64(0) << uint(n)
	if set == 0 {
		return 0, false
	}
	return bits.TrailingZeros64(set), true
}
