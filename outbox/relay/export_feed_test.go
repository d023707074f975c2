package relay

import (
	"time"

	"github.com/belfryhq/belfry/outbox"
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
