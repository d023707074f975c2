package draft

import (
	"time"

	"github.com/belfryhq/belfry/admin/jobs"
	"github.com/belfryhq/belfry/admin/upcoming"
	"github.com/belfryhq/belfry/job"
)

// gap is the length of a time between jobs of a lane that counts as free, and the assumed length of a job of unknown
// length.
const gap = 10 * time.Minute

// NextFree estimates when a lane has no job for a while, in full minutes. Entries are in the order of their times.
func NextFree(lane string, running []jobs.WatchedJob, entries []upcoming.Entry, now time.Time) time.Time {
	free := now
	until := func(t time.Time) {
		if t.After(free) {
			free = t
		}
	}
	for _, w := range running {
		switch {
		case w.Lane != lane || w.Status != job.Running:
		case w.SecondsLeft != nil:
			until(now.Add(time.Duration(*w.SecondsLeft * float64(time.Second))))
		default:
			until(now.Add(gap))
		}
	}
	for _, e := range entries {
		if e.Lane != lane {
			continue
		}
		if e.At.After(free.Add(gap)) {
			break
		}
		took := gap
		if e.ExpectedMS != nil {
			took = time.Duration(*e.ExpectedMS) * time.Millisecond
		}
		until(e.At)
		free = free.Add(took)
	}
	if free.Equal(now) {
		return now
	}
	return free.Add(time.Minute - time.Nanosecond).Truncate(time.Minute)
}
