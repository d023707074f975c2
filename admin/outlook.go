package admin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/job"
)

// outlookAfter is how long after it is due a job's lane is followed.
const outlookAfter = 24 * time.Hour

// collisionsNamed is how many entries of its lane an outlook names.
const collisionsNamed = 5

// laneOutlook is what the jobs of a request are expected to meet in their lane.
type laneOutlook struct {
	Lane string    `json:"lane"`
	At   time.Time `json:"at"` // when they are due
	// ExpectedMS is how long they are expected to take; nil: nothing of their kind was finished yet.
	ExpectedMS *int64     `json:"expected_ms"`
	StartsAt   *time.Time `json:"starts_at"` // nil: they are held
	Held       string     `json:"held"`
	// CollidesWith is what they wait for, and what waits for them, the first few of it.
	CollidesWith []string `json:"collides_with"`
	Collisions   int      `json:"collisions"` // of all
	// FreeAt is when the lane is free next for as long as they take; nil: they do not collide, or
	// there is no such time within a day, or none is known.
	FreeAt *time.Time `json:"free_at"`
	// Unknown says what kept it from being looked at; "": nothing.
	Unknown string `json:"unknown"`
}

// text says it in a sentence; "": there is nothing to say.
func (o laneOutlook) text(times printer.Times) string {
	switch {
	case o.Unknown != "":
		return "what else runs in lane " + o.Lane + " is unknown: " + o.Unknown
	case o.Held != "":
		return "held: " + o.Held
	case o.Collisions == 0:
		return ""
	}
	text := "collides in lane " + o.Lane + " with " + strings.Join(o.CollidesWith, ", ")
	if n := o.Collisions - len(o.CollidesWith); n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	if o.StartsAt != nil {
		text += ": starts " + times.Clock(*o.StartsAt)
	}
	if o.FreeAt != nil && o.ExpectedMS != nil {
		text += "; the lane is free for " + printer.Short(time.Duration(*o.ExpectedMS)*time.Millisecond) + " from " + times.Clock(*o.FreeAt)
	}
	return text
}

// outlooks are those of requests that are not there yet, which are called by these names. Whatever
// keeps it from being looked at, as a right that is missing, keeps nobody from a request.
func outlooks(ctx context.Context, env *Env, asked []job.Request, names []string) []laneOutlook {
	list := make([]laneOutlook, len(asked))
	for i, r := range asked {
		list[i] = laneOutlook{Lane: cmp.Or(r.Spec.Lane, "default"), CollidesWith: []string{}}
		if r.Spec.ScheduleAt != nil {
			list[i].At = *r.Spec.ScheduleAt
		}
	}
	if err := lookOut(ctx, env, asked, names, list); err != nil {
		for i := range list {
			list[i].Unknown = printer.OneLine(env.told(err).Error(), 200)
		}
	}
	return list
}

func lookOut(ctx context.Context, env *Env, asked []job.Request, names []string, list []laneOutlook) error {
	ctx, cancel := context.WithTimeout(ctx, DefaultDeadline)
	defer cancel()
	now, err := env.Jobs.Now(ctx)
	if err != nil {
		return err
	}
	m := newTimetable(env, now, timetableInput{})
	m.own = make([]*planned, len(asked))
	first, last, lanes := time.Time{}, now, make(map[string]bool)
	for i, r := range asked {
		o := &list[i]
		o.At, lanes[o.Lane] = later(o.At, now).UTC(), true
		if first.IsZero() || o.At.Before(first) {
			first = o.At
		}
		last = later(last, o.At)
		m.own[i] = &planned{name: names[i], TimetableEntry: &TimetableEntry{At: o.At, Lane: o.Lane, Types: r.Types, Category: r.Spec.Category, Priority: r.Spec.Priority}}
	}
	m.between(first, last.Add(outlookAfter))
	if len(lanes) == 1 {
		m.lane = list[0].Lane
	}
	if err := m.gather(ctx); err != nil {
		return err
	}
	free := make([]*time.Time, len(asked))
	for i, p := range m.own {
		until, cut := m.complete(p.Lane)
		if !cut {
			until = m.Until
		}
		if p.known && p.left > 0 {
			free[i], _ = m.without(p).free(p.At, until, p.left)
		}
	}
	m.play()
	for i, p := range m.own {
		list[i].found(m, p, free[i])
	}
	return nil
}

// found fills in what came of an entry of one's own.
func (o *laneOutlook) found(m *timetableMaker, own *planned, free *time.Time) {
	o.ExpectedMS, o.StartsAt, o.Held = own.ExpectedMS, own.StartsAt, own.Held
	for _, name := range []string{own.WaitsFor, own.HandedBackFor} {
		if name != "" {
			o.CollidesWith = append(o.CollidesWith, name)
		}
	}
	for _, e := range m.entries {
		if e.WaitsFor == own.Label() || e.HandedBackFor == own.Label() {
			o.CollidesWith = append(o.CollidesWith, e.Label())
		}
	}
	slices.Sort(o.CollidesWith)
	o.CollidesWith = slices.Compact(o.CollidesWith)
	o.Collisions = len(o.CollidesWith)
	o.CollidesWith = o.CollidesWith[:min(o.Collisions, collisionsNamed)]
	if o.Collisions > 0 {
		o.FreeAt = free
	}
}

// without plays an entry's lane as it is without that.
func (m *timetableMaker) without(own *planned) *laneForecast {
	l := &laneForecast{now: m.begin}
	copied := func(p *planned) *planned {
		c, e := *p, *p.TimetableEntry
		c.TimetableEntry = &e
		return &c
	}
	if p := m.running[own.Lane]; p != nil {
		l.running = copied(p)
	}
	for _, p := range m.entries {
		if p != own && p.Lane == own.Lane && p.Held == "" {
			l.coming = append(l.coming, copied(p))
		}
	}
	l.run()
	return l
}
