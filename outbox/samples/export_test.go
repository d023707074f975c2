package samples

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/internal/db"
)

// Statement returns a statement of the package, for tests that explain it.
func Statement(name string) string { return db.QueriesByName(queries)[name] }

// Every shortens the minutes of a Recorder.
func Every(r *Recorder, every time.Duration) *Recorder {
	r.every = every
	return r
}

// Jobs returns the number of jobs that a Recorder counts in the present minute.
func Jobs(r *Recorder) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.present.kinds[Job])
}

// Busiest is the maximum number of subjects of a kind, besides Rest.
const Busiest = busiest

// Written is one statement of a Recorder of NewFake: each row as "kind name rows sent".
type Written struct {
	At      time.Time
	Minutes int
	Rows    []string
}

// NewFake returns a Recorder without a database. answer decides each statement.
func NewFake(answer func(n int) (clock time.Time, unknown bool, err error)) (r *Recorder, written func() []Written) {
	var list []Written
	r = &Recorder{log: zerolog.Nop(), every: time.Minute, present: newMinute(time.Now())}
	r.add = func(_ context.Context, minutes []*minute) (time.Time, bool, error) {
		w := Written{At: time.Now(), Minutes: len(minutes)}
		for _, m := range minutes {
			for kind, subjects := range m.kinds {
				for name, f := range subjects {
					w.Rows = append(w.Rows, fmt.Sprintf("%s %s %d %d", kind, name, f.rows, f.sent))
				}
			}
		}
		slices.Sort(w.Rows)
		list = append(list, w)
		return answer(len(list))
	}
	return r, func() []Written { return list }
}

// P95 returns the percentile of durations.
func P95(of ...time.Duration) int64 {
	var d durations
	for _, took := range of {
		d.add(took)
	}
	return d.p95()
}
