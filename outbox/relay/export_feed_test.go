package relay

import (
	"time"

	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/compose"
)

// Turns lists from which of a lane's jobs a feed claims in n turns that take so long
// each: claims from those of flowing find as much as they may, from the others, which
// have run out before, nothing.
func Turns(r *Relay, list []outbox.Candidate, flowing map[int64]bool, took time.Duration, n int) (ids []int64) {
	f := &feed{relay: r, probed: make(map[string]bool), lanes: []string{list[0].Lane}}
	for _, c := range list {
		w := &work{Candidate: c}
		if !flowing[c.JobID] {
			w.empty = 1
		}
		f.order = append(f.order, w)
	}
	for now := time.Now(); len(ids) < n; now = now.Add(took) {
		w, _ := f.next(now)
		if w == nil {
			continue
		}
		ids = append(ids, w.JobID)
		if !flowing[w.JobID] {
			w.empty++
			w.ready = now.Add(f.atLeast())
		}
	}
	return ids
}

// Absences says how long the last of n messages waits for a sender that is not there, and
// one that comes later, and an activity.
func Absences(n int, later time.Duration) (last, next, activity time.Duration) {
	var a absent
	now := time.Now()
	for range n {
		last = a.pause(false, now)
	}
	return last, a.pause(false, now.Add(later)), a.pause(true, now)
}

// Waited lists what a relay's first line lets go that n bulk messages joined so long ago.
func Waited(r *Relay, n int, d time.Duration, draining bool) []outbox.Settlement {
	r.draining.Store(draining)
	l, now := r.lines[0], time.Now()
	list := make([]*compose.Composed, n)
	for i := range list {
		list[i] = &compose.Composed{Claimed: outbox.Claimed{Key: outbox.Key{JobID: 1, ChannelID: int64(i + 1)}}}
	}
	l.join(list, now)
	l.clear(now.Add(d))
	put, _, _ := r.books.next()
	l.activities, l.bulk = nil, nil
	return put
}
