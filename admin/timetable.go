package admin

import (
	"time"

	"github.com/belfryhq/belfry/internal/printer"
)

const (
	// timetableJobs and timetableFirings are how many jobs that wait, and firings of all schedules, a
	// timetable has at most; firingsEach is how many firings it has of one schedule.
	timetableJobs    = 500
	timetableFirings = 500
	firingsEach      = 100
	// timetableLead is how long before a time that is to come a lane is followed: what is due then may
	// still run.
	timetableLead = 24 * time.Hour
	// timetableSpan is the longest time that a timetable is of, and timetableUsual the usual one.
	timetableSpan  = 31 * 24 * time.Hour
	timetableUsual = 24 * time.Hour
)

// timetableInput is the input of `timetable`.
type timetableInput struct {
	From *Instant `flag:"from" label:"TIME" help:"what is due from this time on (default: now, with what is due already)"`
	For  *age     `flag:"for" label:"DURATION" help:"so long, 1m to 31d (default 24h)" allowed:"1m to 31d, with the unit, as 7d, 36h or 1h30m"`
	Lane string   `flag:"lane" label:"LANE" values:"lanes list" help:"only this lane, and schedules whose lane is known when they fire"`
	Free *span    `flag:"free" label:"DURATION" help:"also find the next time of this length in which --lane is free"`
}

func (in timetableInput) check(_ Operation, now time.Time) error {
	var bad InvalidError
	if in.For != nil && time.Duration(*in.For) > timetableSpan {
		bad.add("for", "%s is too long; allowed values: 1m to 31d", in.For)
	}
	if in.Free != nil && in.Lane == "" {
		bad.add("lane", "is needed with --free: it is free in a lane")
	}
	if in.Free != nil && time.Duration(*in.Free) > in.length() {
		bad.add("free", "%s is longer than the time that is looked at, %s; allowed values: above 0s and up to that, and --for makes that longer", time.Duration(*in.Free), age(in.length()))
	}
	if from := in.From.at(now); from != nil && !from.Add(in.length()).After(now) {
		bad.add("from", "the time that is looked at is over; allowed values: times later than %s ago", age(in.length()))
	}
	return bad.orNil()
}

func (in timetableInput) length() time.Duration {
	if in.For == nil {
		return timetableUsual
	}
	return time.Duration(*in.For)
}

// Timetable is all that will run in a time, as far as it is known.
type Timetable struct {
	// AsOf is when it was looked, by the database's clock.
	AsOf  time.Time `json:"as_of"`
	From  time.Time `json:"from"`
	Until time.Time `json:"until"`
	// Halted says that everything is halted: nothing starts until that is lifted.
	Halted  bool             `json:"halted"`
	Entries []TimetableEntry `json:"entries"` // by when they are due
	Lanes   []TimetableLane  `json:"lanes"`   // of the entries, by name
	Cuts    []TimetableCut   `json:"cuts"`    // what is not among the entries; none: nothing
	Free    *FreeSlot        `json:"free"`    // nil: nobody asked
}

// TimetableEntry is a job that runs or waits, or one firing of a schedule.
type TimetableEntry struct {
	At       time.Time `json:"at"`   // when it is due
	Lane     string    `json:"lane"` // "": what the schedule's query says when it fires
	Job      *int64    `json:"job_id"`
	Schedule string    `json:"schedule"` // "": it is a job
	Types    []string  `json:"types"`    // of a schedule several: a group, whose jobs run one after the other
	Category string    `json:"category"`
	Title    string    `json:"title"`
	Priority int       `json:"priority"`
	// ExpectedMS is how long it is expected to take; nil: nothing of its kind was finished yet.
	ExpectedMS *int64 `json:"expected_ms"`
	// StartsAt and EndsAt are when it is expected to; nil: that is not known, or it is held.
	StartsAt *time.Time `json:"starts_at"`
	EndsAt   *time.Time `json:"ends_at"`
	Running  bool       `json:"running"`
	// WaitsFor is the collision: what runs in its lane when it is due. HandedBackFor is what is more
	// urgent and has it go on later.
	WaitsFor      string `json:"waits_for"`
	HandedBackFor string `json:"handed_back_for"`
	// Held says why it does not start: its schedule or its lane is paused, what its schedule fires
	// waits for approval, or belfry is halted.
	Held string `json:"held"`
}

// Label is what an entry is called: "job 17", "schedule digest".
func (e TimetableEntry) Label() string {
	if e.Job != nil {
		return "job " + printer.Int(*e.Job)
	}
	return "schedule " + e.Schedule
}

// Collides reports whether another entry of its lane is expected to be in its way.
func (e TimetableEntry) Collides() bool { return e.WaitsFor != "" || e.HandedBackFor != "" }

// TimetableLane is how much a lane is expected to be taken.
type TimetableLane struct {
	Lane   string     `json:"lane"`
	Paused bool       `json:"paused"`
	Load   []HourLoad `json:"load"` // hours in which it is not taken are left out
	// CompleteUntil is how far its entries are known; nil: to the end.
	CompleteUntil *time.Time `json:"complete_until"`
}

// HourLoad is for how long a lane is expected to be taken in an hour.
type HourLoad struct {
	At      time.Time `json:"at"` // when the hour begins, in UTC
	BusyMS  int64     `json:"busy_ms"`
	Unknown int       `json:"unknown"` // entries that start in it and take nobody knows how long
}

// TimetableCut is what was left out because there is too much of it.
type TimetableCut struct {
	Of    string    `json:"of"`    // "jobs", "jobs of paused lanes", "firings", "schedule tick"
	Shown int       `json:"shown"` // how many there are among the entries
	Until time.Time `json:"until"` // what is due from then on is missing
}

// FreeSlot is the next time in which a lane is free.
type FreeSlot struct {
	Lane     string     `json:"lane"`
	LengthMS int64      `json:"length_ms"`
	At       *time.Time `json:"at"`      // nil: none was found
	Certain  bool       `json:"certain"` // as far as expectations go
	Why      string     `json:"why"`     // why there is none, or what makes it uncertain
}

func timetableOperation() Operation {
	return Define(Operation{
		Name: "timetable", Rows: "entries", Short: "Show what will run and when, where it collides, and when a lane is free", Role: Viewer,
		Long: `Show everything that will run on one time axis: jobs that run or wait, and what schedules
will fire. How long each is expected to take is the median of the last five jobs of its
type, category and lane, or of whichever lane where its own has none. A lane runs one job
at a time, the most urgent that is due: which entries wait for which, when each is expected
to start, and for how long each lane is taken in each hour follow from that.

What is expected is no promise: load, audiences and runners decide. A job of a kind that
was never finished is counted as taking no time. A schedule with a query says its lane and
its jobs when it fires. Paused schedules are shown once, when they would fire next. Jobs
that wait for approval are not shown: nobody knows when they will run.

A time that is to come begins with what is expected to run then still: lanes are followed
from a day before on, unless that is more than it can show.

It shows up to 500 jobs, as many of paused lanes, 500 firings, and 100 firings of one schedule, and says what it
has left out. --free finds the next time in which a lane is free for so long, and says what
makes it uncertain.`,
		Example: `  belfry timetable
  belfry timetable --for 7d --lane night
  belfry timetable --lane default --free 30m
  belfry timetable --from "2026-11-20 08:00" --for 4h --json`,
	}, timetableOf, timetableText)
}
