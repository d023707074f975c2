package live

import (
	"slices"
	"strconv"
	"time"
)

// maxOthers is the number of unfinished jobs that are followed although they do not run, as in belfry.inbox_walks.
const maxOthers = 100

// walk is the progress of a job that writes notifications.
type walk struct {
	cursor  string
	running bool
	walked  bool
	active  time.Time // the last poll in which it ran or advanced, in the database's clock
}

// advance is a part of a job's walk that clients do not know of. Without exact bounds any channel may be in it.
type advance struct {
	arrival  int64
	from, to int64 // greater than from, at most to
	exact    bool
}

// progress is a row of belfry.inbox_walks.
type progress struct {
	Arrival   int64
	Cursor    string
	Running   bool
	Walked    bool
	ByChannel bool
}

// walks tracks jobs by their arrival.
type walks struct {
	known map[int64]walk
	fresh map[int64]bool // arrivals of new jobs, before their first poll
}

// followed returns the jobs to poll by their arrival: new ones, those that ran, and the newest other unfinished ones,
// which may be over when they are polled next.
func (w *walks) followed() []int64 {
	list, others := []int64{}, []int64{}
	for arrival := range w.fresh {
		list = append(list, arrival)
	}
	for arrival, k := range w.known {
		switch {
		case k.running:
			list = append(list, arrival)
		case !k.walked:
			others = append(others, arrival)
		}
	}
	slices.Sort(others)
	return append(list, others[max(0, len(others)-maxOthers):]...)
}

// running reports whether a job ran in the last poll, or is new.
func (w *walks) running() bool {
	for _, k := range w.known {
		if k.running {
			return true
		}
	}
	return len(w.fresh) > 0
}

// baseline records jobs whose rows clients read by themselves.
func (w *walks) baseline(rows []progress, now time.Time) {
	w.known, w.fresh = make(map[int64]walk, len(rows)), make(map[int64]bool)
	for _, r := range rows {
		w.known[r.Arrival] = walk{r.Cursor, r.Running, r.Walked, now}
	}
}

// add records the result of a poll and returns the parts that were walked since the last one.
func (w *walks) add(rows []progress, now time.Time) (list []advance) {
	returned := make(map[int64]bool, len(rows))
	for _, r := range rows {
		returned[r.Arrival] = true
		was, known := w.known[r.Arrival]
		is := walk{r.Cursor, r.Running, r.Walked, was.active}
		// A job that is not known, not new and does not run has not advanced: it is one more unfinished one.
		moved := r.Cursor != "" && (known && was.cursor != r.Cursor || !known && (w.fresh[r.Arrival] || r.Running))
		if moved {
			list = append(list, advanceOf(r, was.cursor))
		}
		if moved || r.Running {
			is.active = now
		}
		w.known[r.Arrival] = is
	}
	clear(w.fresh)
	for arrival, k := range w.known {
		if k.running && !returned[arrival] {
			delete(w.known, arrival) // as the job was
		}
		if !returned[arrival] && now.Sub(k.active) > maxAge+slack {
			delete(w.known, arrival)
		}
	}
	return list
}

// advanceOf returns the part of a walk between two cursors.
func advanceOf(r progress, from string) advance {
	a := advance{arrival: r.Arrival}
	to, err := strconv.ParseInt(r.Cursor, 10, 64)
	if err != nil || !r.ByChannel {
		return a
	}
	a.from, a.to, a.exact = -1<<63, to, true
	if n, err := strconv.ParseInt(from, 10, 64); err == nil {
		a.from = n
	}
	return a
}

// late returns the jobs up to an arrival that may have written notifications since.
func (w *walks) late(arrival int64, since time.Time) []int64 {
	list := []int64{}
	for n, k := range w.known {
		if n <= arrival && !k.active.Before(since.Add(-slack)) {
			list = append(list, n)
		}
	}
	for n := range w.fresh {
		if n <= arrival {
			list = append(list, n)
		}
	}
	return list
}
