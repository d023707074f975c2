package schedule

import "time"

const (
	// maxFirings is the maximum number of occurrences per firing of a schedule.
	maxFirings = 100
	// maxCounted is the maximum number of missed occurrences that one tick counts; a larger skip takes several ticks.
	maxCounted = 10_000
)

// rules are the settings that decide about due occurrences.
type rules struct {
	missed       Policy
	missedAfter  time.Duration
	expiresAfter time.Duration // 0 means never
}

// decision is the treatment of the due occurrences of one schedule, in this order.
type decision struct {
	expired int         // dropped, because their jobs would be EXPIRED at once
	live    time.Time   // the first occurrence after the expired ones
	missed  int         // number of following occurrences dropped by policy
	next    time.Time   // the first occurrence after the missed ones
	fire    []time.Time // occurrences from next on, at most maxFirings
}

// decide examines the occurrences from due, which is one of them, up to now.
func decide(t recurrence, due, now time.Time, r rules) decision {
	d := decision{next: due}
	if r.expiresAfter > 0 {
		d.expired = d.drop(t, now.Add(1-r.expiresAfter), maxCounted)
	}
	d.live = d.next
	cut := now.Add(-r.missedAfter) // earlier occurrences are missed
	if first := onTime(t, cut, now); d.before(cut) {
		switch {
		case r.missed == Skip, r.missed == Once && first:
			d.missed = d.drop(t, cut, maxCounted-d.expired)
		case r.missed == Once:
			d.missed = d.drop(t, last(t, d.next, cut), maxCounted-d.expired)
		}
	}
	if d.expired+d.missed >= maxCounted {
		return d // the next tick continues
	}
	for o := d.next; !o.IsZero() && !o.After(now) && len(d.fire) < maxFirings; o = t.next(o) {
		d.fire = append(d.fire, o)
	}
	return d
}

// before reports whether the next occurrence comes before an instant.
func (d *decision) before(at time.Time) bool { return !d.next.IsZero() && d.next.Before(at) }

// drop moves next to the first occurrence not before until and returns how many it
// skipped, at most limit.
func (d *decision) drop(t recurrence, until time.Time, limit int) (n int) {
	for ; n < limit && d.before(until); n++ {
		d.next = t.next(d.next)
	}
	return n
}

// onTime reports whether there is an occurrence in [cut, now].
func onTime(t recurrence, cut, now time.Time) bool {
	first := t.next(cut.Add(-1))
	return !first.IsZero() && !first.After(now)
}

// last returns the last occurrence in [from, cut), from being one, by looking back
// over ever longer windows.
func last(t recurrence, from, cut time.Time) time.Time {
	for window := time.Minute; ; window *= 4 {
		o, start := from, cut.Add(-window)
		if whole := window > maxEvery*horizon || !start.After(from); !whole {
			o = t.next(start.Add(-1))
		}
		if o.IsZero() || !o.Before(cut) {
			continue
		}
		for following := t.next(o); !following.IsZero() && following.Before(cut); following = t.next(o) {
			o = following
		}
		return o
	}
}
