package admin

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/job/schedule"
)

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
				At: at, Lane: lane, Schedule: s.Name, Types: s.Template.Types, Category: s.Template.Category, Title: s.Template.Title, Priority: s.Template.Priority,
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
