package admin

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/job/schedule"
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

// cutOfPaused is what a cut is of that leaves out jobs of lanes that are paused.
const cutOfPaused = "jobs of paused lanes"

// everyLane stands for all of them where one is named; no lane is called so.
const everyLane = "*"

// timetableMaker gathers what a timetable has.
type timetableMaker struct {
	*Timetable

	env     *Env
	lane    string
	begin   time.Time // when lanes are followed from: now, or before From
	running map[string]*planned
	entries []*planned // without those that run
	own     []*planned // what is not there yet
	paused  map[string]bool
	cut     map[string]time.Time // from when on not all of a lane is known; everyLane: of any

	forecast *laneForecast // of the lane; nil: of none
}

func timetableOf(ctx context.Context, env *Env, in timetableInput) (*Timetable, error) {
	now, err := env.Jobs.Now(ctx)
	if err != nil {
		return nil, err
	}
	m := newTimetable(env, now, in)
	if err := m.gather(ctx); err != nil {
		return nil, err
	}
	m.play()
	if in.Free != nil {
		m.Free = m.free(in.Lane, time.Duration(*in.Free))
	}
	return m.Timetable, nil
}

func newTimetable(env *Env, now time.Time, in timetableInput) *timetableMaker {
	from := now
	if at := in.From.at(env.now()); at != nil {
		from = *at
	}
	m := &timetableMaker{
		Timetable: &Timetable{AsOf: now, Entries: []TimetableEntry{}, Lanes: []TimetableLane{}, Cuts: []TimetableCut{}},
		env:       env, lane: in.Lane, running: make(map[string]*planned), paused: make(map[string]bool), cut: make(map[string]time.Time),
	}
	m.between(from, from.Add(in.length()))
	return m
}

// between says of what time it is.
func (m *timetableMaker) between(from, until time.Time) {
	m.From, m.Until, m.begin = from, until, m.AsOf
	if from.Sub(m.AsOf) > timetableLead {
		m.begin = from.Add(-timetableLead)
	}
}

// current reports whether lanes are followed from now on: what runs, and what is due already, belongs
// to it then.
func (m *timetableMaker) current() bool { return !m.begin.After(m.AsOf) }

// gather reads jobs, schedules, lanes and how long things take.
func (m *timetableMaker) gather(ctx context.Context) error {
	halt, err := m.env.Jobs.Halted(ctx)
	if err != nil {
		return err
	}
	m.Halted = halt.At != nil
	paused, err := m.env.Jobs.PausedLanes(ctx)
	if err != nil {
		return err
	}
	for _, name := range paused {
		m.paused[name] = true
	}
	if m.current() {
		if err := m.gatherRunning(ctx); err != nil {
			return err
		}
	}
	if err := m.gatherJobs(ctx); err != nil {
		return err
	}
	if err := m.gatherFirings(ctx); err != nil {
		return err
	}
	m.entries = append(m.entries, m.own...)
	return m.expect(ctx)
}

func (m *timetableMaker) gatherRunning(ctx context.Context) error {
	jobs, err := m.env.Jobs.List(ctx, job.Filter{Statuses: []job.Status{job.Running}, Lane: m.lane, Limit: timetableJobs})
	for _, j := range jobs {
		e := &TimetableEntry{At: j.ScheduleAt, Lane: j.Lane, Job: &j.ID, Types: []string{j.Type}, Category: j.Category, Title: j.Title, Priority: j.Priority, Running: true}
		if j.StartedAt != nil {
			e.StartsAt = moment(*j.StartedAt)
		}
		m.running[j.Lane] = &planned{TimetableEntry: e}
	}
	return err
}

// gatherJobs reads the jobs of the time that is looked at, and those before it that may still run
// then, if they are not too many: of lanes that are paused apart, so that what is held there leaves
// room for what will run.
func (m *timetableMaker) gatherJobs(ctx context.Context) error {
	for _, paused := range []bool{false, true} {
		if err := m.gatherJobsOf(ctx, paused); err != nil {
			return err
		}
	}
	return nil
}

func (m *timetableMaker) gatherJobsOf(ctx context.Context, paused bool) error {
	since := &m.From
	if m.From.After(m.AsOf) {
		first := &m.begin
		if m.current() {
			first = nil
		}
		lead, err := m.env.Jobs.Upcoming(ctx, m.lane, paused, first, m.From, timetableJobs+1)
		if err != nil {
			return err
		}
		if len(lead) <= timetableJobs {
			m.addJobs(lead)
		}
	} else {
		since = nil
	}
	jobs, err := m.env.Jobs.Upcoming(ctx, m.lane, paused, since, m.Until, timetableJobs+1)
	if err != nil {
		return err
	}
	if len(jobs) > timetableJobs {
		beyond := jobs[timetableJobs].ScheduleAt
		jobs = jobs[:timetableJobs]
		if paused {
			m.Cuts = append(m.Cuts, TimetableCut{cutOfPaused, timetableJobs, beyond.UTC()})
			for lane := range m.paused {
				m.cut[lane] = beyond.UTC()
			}
		} else {
			m.leaveOut("jobs", everyLane, timetableJobs, beyond)
		}
	}
	m.addJobs(jobs)
	return nil
}

func (m *timetableMaker) addJobs(jobs []job.Upcoming) {
	for _, j := range jobs {
		m.entries = append(m.entries, &planned{TimetableEntry: &TimetableEntry{
			At: j.ScheduleAt, Lane: j.Lane, Job: &j.ID, Types: []string{j.Type}, Category: j.Category, Title: j.Title, Priority: j.Priority,
		}})
	}
}

// leaveOut says what is missing from a moment on.
func (m *timetableMaker) leaveOut(of, lane string, shown int, from time.Time) {
	m.Cuts = append(m.Cuts, TimetableCut{of, shown, from.UTC()})
	if was, is := m.cut[lane]; !is || from.Before(was) {
		m.cut[lane] = from.UTC()
	}
}

func (m *timetableMaker) gatherFirings(ctx context.Context) error {
	list, err := schedule.NewStore(m.env.DB).List(ctx)
	if err != nil {
		return err
	}
	var firings []*planned
	for _, s := range list {
		lane := cmp.Or(s.Template.Lane, "default")
		if s.Query != "" {
			lane = ""
		}
		if m.lane != "" && lane != "" && lane != m.lane {
			continue
		}
		times, rest := m.firings(s, m.From, m.Until)
		if rest != nil && s.PausedAt == nil {
			m.leaveOut("schedule "+s.Name, lane, len(times), *rest)
		}
		if m.From.After(m.begin) && s.PausedAt == nil {
			if before, more := m.firings(s, m.begin, m.From); more == nil {
				times = append(before, times...)
			}
		}
		for _, at := range times {
			e := &TimetableEntry{
				At: at, Lane: lane, Schedule: s.Name, Types: orEmpty(s.Template.Types), Category: s.Template.Category, Title: s.Template.Title, Priority: s.Template.Priority,
			}
			switch {
			case s.PausedAt != nil:
				e.Held = "the schedule is paused"
			case s.Template.NeedsApproval && s.Query == "":
				e.Held = "what it fires waits for approval"
			}
			firings = append(firings, &planned{TimetableEntry: e})
		}
	}
	slices.SortStableFunc(firings, func(a, b *planned) int { return a.At.Compare(b.At) })
	if len(firings) > timetableFirings {
		m.leaveOut("firings", everyLane, timetableFirings, firings[timetableFirings].At)
		firings = firings[:timetableFirings]
	}
	m.entries = append(m.entries, firings...)
	return nil
}

// complete is how far a lane's entries are known, if that is not to the end.
func (m *timetableMaker) complete(lane string) (until time.Time, cut bool) {
	for _, name := range []string{lane, everyLane} {
		if at, is := m.cut[name]; is && (!cut || at.Before(until)) {
			until, cut = at, true
		}
	}
	return until, cut
}

// firings are when a schedule fires between two moments, and when it does next after those; nil: no
// more in that time. What is due already fires now. Of one that is paused it is the next time alone.
// What cannot be told of a schedule, it says itself: `schedules show` does.
func (m *timetableMaker) firings(s schedule.Schedule, from, until time.Time) (times []time.Time, rest *time.Time) {
	most, after := firingsEach, later(from, m.AsOf).Add(-time.Nanosecond)
	if s.PausedAt != nil {
		most = 1
	}
	if s.NextAt != nil && s.NextAt.Before(until) && (!from.After(m.AsOf) || s.NextAt.After(after)) {
		times, after = append(times, *s.NextAt), later(*s.NextAt, after)
	}
	if s.NextAt != nil && !s.NextAt.Before(until) { // it was moved
		return nil, nil
	}
	for step := 8; ; step *= 2 {
		more, err := s.Next(after, step)
		if err != nil {
			return times, nil
		}
		for _, at := range more {
			switch {
			case !at.Before(until):
				return times, nil
			case len(times) == most:
				return times, &at
			}
			times, after = append(times, at), at
		}
		if len(more) < step {
			return times, nil
		}
	}
}

// expect says of every entry how long it is expected to take.
func (m *timetableMaker) expect(ctx context.Context) error {
	asked := make(map[job.Kind]bool)
	of := func(p *planned, do func(job.Kind)) {
		for _, t := range p.Types {
			do(job.Kind{Type: t, Category: p.Category, Lane: p.Lane})
		}
	}
	all := slices.Clone(m.entries)
	for _, p := range m.running {
		all = append(all, p)
	}
	var kinds []job.Kind
	for _, p := range all {
		of(p, func(k job.Kind) {
			if k.Lane != "" && !asked[k] {
				asked[k], kinds = true, append(kinds, k)
			}
		})
	}
	took, err := m.env.Jobs.Durations(ctx, kinds)
	if err != nil {
		return err
	}
	for _, p := range all {
		p.known = p.Lane != "" && len(p.Types) > 0
		of(p, func(k job.Kind) {
			d, known := took[k]
			p.left += d
			p.known = p.known && known
		})
		if !p.known {
			p.left = 0
			continue
		}
		ms := p.left.Milliseconds()
		p.ExpectedMS = &ms
		if p.StartsAt != nil {
			p.left = max(0, p.StartsAt.Add(p.left).Sub(m.AsOf))
		}
	}
	return nil
}

// play says what becomes of the entries, lane by lane, and puts them into one order.
func (m *timetableMaker) play() {
	lanes := make(map[string]*laneForecast)
	in := func(lane string) *laneForecast {
		if lanes[lane] == nil {
			lanes[lane] = &laneForecast{now: m.begin}
		}
		return lanes[lane]
	}
	for lane, p := range m.running {
		in(lane).running = p
		m.entries = append(m.entries, p)
	}
	for _, p := range m.entries {
		switch {
		case p.Running || p.Held != "":
		case m.Halted:
			p.Held = "belfry is halted"
		case p.Lane == "":
		case m.paused[p.Lane]:
			p.Held = "lane " + p.Lane + " is paused"
		default:
			in(p.Lane).coming = append(in(p.Lane).coming, p)
		}
		if p.Lane != "" {
			in(p.Lane)
		}
	}
	if m.lane != "" {
		in(m.lane)
	}
	for name, l := range lanes {
		l.run()
		one := TimetableLane{Lane: name, Paused: m.paused[name], Load: l.load(m.From, m.Until)}
		if until, is := m.complete(name); is {
			one.CompleteUntil = &until
		}
		m.Lanes = append(m.Lanes, one)
	}
	slices.SortFunc(m.Lanes, func(a, b TimetableLane) int { return strings.Compare(a.Lane, b.Lane) })
	slices.SortStableFunc(m.entries, func(a, b *planned) int {
		return cmp.Or(a.At.Compare(b.At), strings.Compare(a.Lane, b.Lane), strings.Compare(a.Label(), b.Label()))
	})
	for _, p := range m.entries {
		if !p.over(m.From) {
			m.Entries = append(m.Entries, *p.TimetableEntry)
		}
	}
	m.forecast = lanes[m.lane]
}

// free finds the next time of a length in which the lane is free.
func (m *timetableMaker) free(lane string, length time.Duration) *FreeSlot {
	slot := &FreeSlot{Lane: lane, LengthMS: length.Milliseconds()}
	until, cut := m.complete(lane)
	if !cut {
		until = m.Until
	}
	var after *planned
	slot.At, after = m.forecast.free(later(m.From, m.AsOf), until, length)
	var why []string
	switch {
	case slot.At == nil && cut:
		why = append(why, "it is not free for so long before the list is cut")
	case slot.At == nil:
		why = append(why, "it is not free for so long in this time; --for looks further")
	}
	if after != nil && slot.At != nil {
		why = append(why, "nobody knows how long "+after.Label()+" before it takes")
	}
	for _, e := range m.Entries {
		if slot.At != nil && e.Lane == "" && e.Held == "" && e.At.Before(slot.At.Add(length)) {
			why = append(why, "schedule "+e.Schedule+" says its lane when it fires")
			break
		}
	}
	switch {
	case m.Halted:
		why = append(why, "belfry is halted, and what is held starts when that is lifted")
	case m.paused[lane]:
		why = append(why, "the lane is paused, and what is held starts when it is resumed")
	}
	slot.Certain, slot.Why = slot.At != nil && len(why) == 0, strings.Join(why, "; ")
	return slot
}
