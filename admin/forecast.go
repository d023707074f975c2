package admin

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// planned is one entry of a timetable in its lane, as far as it is known when it is due and how long
// it takes.
type planned struct {
	*TimetableEntry

	name  string        // of what is not there yet; "": it is
	left  time.Duration // of its walk; 0 where that is not known
	known bool
}

// Label is what it is called.
func (p *planned) Label() string { return cmp.Or(p.name, p.TimetableEntry.Label()) }

// urgency orders what is due as a runner does. What is no job yet will have a higher id.
func (p *planned) urgency(other *planned) int {
	id := func(p *planned) int64 {
		if p.Job == nil {
			return math.MaxInt64
		}
		return *p.Job
	}
	return cmp.Or(cmp.Compare(other.Priority, p.Priority), p.At.Compare(other.At), cmp.Compare(id(p), id(other)))
}

// over reports whether an entry is expected to be over before a moment. What is held is not.
func (p *planned) over(from time.Time) bool {
	switch {
	case p.Running:
		return p.EndsAt != nil && p.EndsAt.Before(from)
	case !p.At.Before(from):
		return false
	case p.EndsAt != nil:
		return !p.EndsAt.After(from) && (p.StartsAt == nil || p.StartsAt.Before(from)) // what takes no time is shown when it starts
	}
	return p.Lane == "" || p.StartsAt != nil && p.StartsAt.Before(from)
}

// stretch is a time in which a lane is taken, or, without a length, the start of what takes it for a
// time that nobody knows.
type stretch struct {
	from, until time.Time
	by          *planned
}

// laneForecast is what is expected of one lane.
type laneForecast struct {
	now     time.Time
	running *planned   // nil: none
	coming  []*planned // by when they are due

	ready []*planned
	taken []stretch // in their order
}

// run plays the lane as runners do: one at a time, the most urgent of what is due, and one that runs
// is handed back for one that is more urgent. It says of each entry when it is expected to start and
// to end, and what it waits for.
func (l *laneForecast) run() {
	slices.SortStableFunc(l.coming, func(a, b *planned) int { return cmp.Or(a.At.Compare(b.At), a.urgency(b)) })
	t, current := l.now, l.running
	var handedBack *planned
	for {
		if current == nil {
			l.admit(t)
			if current = l.pick(); current == nil && len(l.coming) == 0 {
				return
			}
			if current == nil {
				t = l.coming[0].At
				continue
			}
			if handedBack != nil {
				handedBack.HandedBackFor, handedBack = current.Label(), nil
			}
			l.begin(current, t)
		}
		end := t.Add(current.left)
		if len(l.coming) > 0 && l.coming[0].At.Before(end) {
			next := l.coming[0]
			l.coming, l.ready = l.coming[1:], append(l.ready, next)
			l.take(t, later(t, next.At), current)
			current.left, t = end.Sub(later(t, next.At)), later(t, next.At)
			if next.Priority > current.Priority {
				l.ready = append(l.ready, current)
				handedBack, current = current, nil
			} else if next.WaitsFor == "" {
				next.WaitsFor = current.Label()
			}
			continue
		}
		l.take(t, end, current)
		if current.known {
			current.EndsAt = moment(end)
		}
		t, current = end, nil
	}
}

// admit moves what is due to what may begin.
func (l *laneForecast) admit(t time.Time) {
	for len(l.coming) > 0 && !l.coming[0].At.After(t) {
		l.ready, l.coming = append(l.ready, l.coming[0]), l.coming[1:]
	}
}

// pick takes the most urgent of what may begin; nil: nothing may.
func (l *laneForecast) pick() *planned {
	best := -1
	for i, one := range l.ready {
		if best < 0 || one.urgency(l.ready[best]) < 0 {
			best = i
		}
	}
	if best < 0 {
		return nil
	}
	picked := l.ready[best]
	l.ready = slices.Delete(l.ready, best, best+1)
	return picked
}

// begin says that an entry begins, and that the others wait for it.
func (l *laneForecast) begin(current *planned, t time.Time) {
	if current.StartsAt == nil {
		current.StartsAt = moment(t)
	}
	for _, other := range l.ready {
		if other.WaitsFor == "" && other.StartsAt == nil && current.left > 0 {
			other.WaitsFor = current.Label()
		}
	}
}

func (l *laneForecast) take(from, until time.Time, by *planned) {
	if until.After(from) || !by.known {
		l.taken = append(l.taken, stretch{from, until, by})
	}
}

// load is how long the lane is taken in each hour of a time, hours in which it is not left out.
func (l *laneForecast) load(from, until time.Time) []HourLoad {
	busy := make(map[time.Time]*HourLoad)
	at := func(t time.Time) *HourLoad {
		hour := t.Truncate(time.Hour)
		if busy[hour] == nil {
			busy[hour] = &HourLoad{At: hour}
		}
		return busy[hour]
	}
	for _, s := range l.taken {
		if !s.by.known && !s.from.Before(from) && s.from.Before(until) {
			at(s.from).Unknown++
		}
		end := earlier(s.until, until)
		for t := later(s.from, from); t.Before(end); {
			next := earlier(t.Truncate(time.Hour).Add(time.Hour), end)
			at(t).BusyMS += next.Sub(t).Milliseconds()
			t = next
		}
	}
	hours := make([]HourLoad, 0, len(busy))
	for _, h := range busy {
		hours = append(hours, *h)
	}
	slices.SortFunc(hours, func(a, b HourLoad) int { return a.At.Compare(b.At) })
	return hours
}

// free is the next time of a length in which the lane is not taken, from a moment on and until
// another; nil: there is none. after is what comes before it and takes a time that nobody knows.
func (l *laneForecast) free(from, until time.Time, length time.Duration) (at *time.Time, after *planned) {
	t := from
	for _, s := range l.taken {
		if earlier(s.from, until).Sub(t) >= length {
			return moment(t), after
		}
		t = later(t, s.until)
		if !s.by.known {
			after = s.by
		}
	}
	if until.Sub(t) >= length {
		return moment(t), after
	}
	return nil, after
}

func moment(t time.Time) *time.Time {
	t = t.UTC()
	return &t
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
