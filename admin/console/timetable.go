package console

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/internal/printer"
)

// timetableOf shows what will run.
const timetableOf = "timetable"

const (
	axisLanes = 60 // as many lanes are drawn
	axisCells = 96 // and so many times of a load, at most
	axisTicks = 6
)

// axis is a timetable as a drawing: a row for each lane, in which a time is at the same part of the
// width. Places and widths are in percent of it, so that a narrow page has all of it.
type axis struct {
	About string
	Ticks []tick
	Lanes []axisLane
	Rest  string // of lanes that are not drawn; "": all are
	Hours string // of what time a cell of the load is
}

// tick is a time that is named.
type tick struct{ X, Text, Anchor string }

// axisLane is a row.
type axisLane struct {
	Name, Link string
	Paused     *status // nil: it is open
	Bars       []axisBar
	Cells      []loadCell
	Free       *axisBar // what --free has found; nil: nothing
	Cut        string
	Ticks      []tick
}

// axisBar is an entry. One whose duration is not known has no width, and a diamond instead; one that
// collides has a triangle where it is due, and a line to where it starts.
type axisBar struct {
	Class, Title, X, Width string
	Unknown, Collides      bool
	Due                    string
}

// loadCell is how much of a time a lane is taken.
type loadCell struct {
	X, Width, Title string
	Level           int // 1 to 4
}

// draw puts the drawing of a timetable before what is told of it, and the sum before both.
func (t *told) draw(at *admin.Timetable) {
	a := t.c.axisOf(at)
	if a == nil {
		return
	}
	sum := slices.IndexFunc(t.Blocks, func(b block) bool { return b.Lines != nil })
	first := t.Blocks[sum]
	t.Blocks = slices.Concat([]block{first, {Axis: a}}, slices.Delete(t.Blocks, sum, sum+1))
}

// axisOf draws a timetable; nil: there is nothing to draw.
func (c *Console) axisOf(t *admin.Timetable) *axis {
	if len(t.Entries) == 0 || !t.Until.After(t.From) {
		return nil
	}
	d := drawing{Console: c, t: t, times: printer.Times{Zone: c.zone}, of: make(map[string]*axisLane)}
	a := &axis{Ticks: d.ticks(), About: "What runs when, from " + d.times.Clock(t.From) + ": " + c.unmarked(t.Sum(d.times)) + ". The tables below have the same."}
	lanes := t.Lanes
	if len(lanes) > axisLanes {
		a.Rest = fmt.Sprintf("%d more lanes are in the table only.", len(lanes)-axisLanes)
		lanes = lanes[:axisLanes]
	}
	a.Lanes = make([]axisLane, 0, len(lanes)+1)
	for _, l := range lanes {
		a.Lanes = append(a.Lanes, d.lane(l))
		d.of[l.Lane] = &a.Lanes[len(a.Lanes)-1]
	}
	for _, e := range t.Entries {
		if e.Lane == "" && d.of[""] == nil {
			a.Lanes = append(a.Lanes, axisLane{Name: "known when it fires", Ticks: a.Ticks})
			d.of[""] = &a.Lanes[len(a.Lanes)-1]
		}
		if l := d.of[e.Lane]; l != nil {
			l.Bars = append(l.Bars, d.bar(e))
		}
	}
	if f := t.Free; f != nil && f.At != nil && d.of[f.Lane] != nil {
		until := f.At.Add(time.Duration(f.LengthMS) * time.Millisecond)
		d.of[f.Lane].Free = &axisBar{Class: "free", Title: c.unmarked(f.Text(d.times)), X: d.x(*f.At), Width: d.width(*f.At, until)}
	}
	a.Hours = "an hour"
	if n := d.cellHours(); n > 1 {
		a.Hours = fmt.Sprintf("%d hours", n)
	}
	return a
}

// drawing places what a timetable has.
type drawing struct {
	*Console

	t     *admin.Timetable
	times printer.Times
	of    map[string]*axisLane
}

// part is at which part of the width a time is, in percent.
func (d drawing) part(at time.Time) float64 {
	return min(100, max(0, 100*float64(at.Sub(d.t.From))/float64(d.t.Until.Sub(d.t.From))))
}

// share is a part of the width in percent, as an attribute has it.
func share(n float64) string {
	return strconv.FormatFloat(math.Round(n*1000)/1000, 'f', -1, 64) + "%"
}

func (d drawing) x(at time.Time) string { return share(d.part(at)) }

// thinnest is a part of the width that can be seen.
const thinnest = 0.25

// width is that of a time, wide enough to be seen.
func (d drawing) width(from, until time.Time) string {
	return share(max(thinnest, d.part(until)-d.part(from)))
}

// local is a time in the zone of whoever asks.
func (d drawing) local(at time.Time) time.Time {
	if d.zone != nil {
		return at.In(d.zone)
	}
	return at.Local()
}

// ticks are at whole hours or days of that zone, a few of them.
func (d drawing) ticks() []tick {
	span := d.t.Until.Sub(d.t.From)
	const day = 24 * time.Hour
	step := 7 * day
	for _, s := range []time.Duration{10 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 3 * time.Hour, 4 * time.Hour, 6 * time.Hour, 12 * time.Hour, day, 2 * day, 3 * day, 4 * day, 6 * day} {
		if span <= axisTicks*s {
			step = s
			break
		}
	}
	from := d.local(d.t.From)
	at := time.Date(from.Year(), from.Month(), from.Day(), 0, 0, 0, 0, from.Location())
	next := func(at time.Time) time.Time {
		if step >= day { // which a change of the clocks makes longer or shorter
			return at.AddDate(0, 0, int(step/day))
		}
		return at.Add(step)
	}
	var list []tick
	for was := (time.Time{}); at.Before(d.t.Until); at = next(at) {
		if at.Before(d.t.From) {
			continue
		}
		text := at.Format("15:04")
		switch {
		case step < time.Minute:
			text = at.Format("15:04:05")
		case step >= day || !was.IsZero() && at.Day() != was.Day():
			text = at.Format("2 Jan")
		}
		x, anchor := d.part(at), "middle"
		if x < 4 {
			anchor = "start"
		} else if x > 95 {
			anchor = "end"
		}
		list, was = append(list, tick{share(x), text, anchor}), at
	}
	return list
}

// lane is a row with its load.
func (d drawing) lane(l admin.TimetableLane) axisLane {
	one := axisLane{Name: l.Lane, Ticks: d.ticks()}
	if jobs, there := d.named(jobsList); there {
		one.Link = d.linkWith(jobs, map[string][]string{"lane": {l.Lane}})
	}
	if l.Paused {
		one.Paused = statusOf("paused", "")
	}
	if l.CompleteUntil != nil && l.CompleteUntil.Before(d.t.Until) {
		one.Cut = d.x(*l.CompleteUntil)
	}
	cell := time.Duration(d.cellHours()) * time.Hour
	busy := make(map[time.Time]*admin.HourLoad)
	var order []time.Time
	for _, h := range l.Load {
		at := h.At.Truncate(cell)
		if busy[at] == nil {
			busy[at] = &admin.HourLoad{At: at}
			order = append(order, at)
		}
		busy[at].BusyMS += h.BusyMS
		busy[at].Unknown += h.Unknown
	}
	for _, at := range order {
		h := busy[at]
		one.Cells = append(one.Cells, loadCell{
			X: d.x(at), Width: d.width(at, at.Add(cell)), Level: level(h.BusyMS, cell),
			Title: l.Lane + ", from " + d.times.Clock(at) + ": taken " + h.Text(),
		})
	}
	return one
}

// level is how much of a time is taken, in quarters; 1: some of it.
func level(busyMS int64, of time.Duration) int {
	return int(min(4, 1+4*busyMS/of.Milliseconds()))
}

// cellHours is how many hours a cell of the load has.
func (d drawing) cellHours() int {
	hours := int(math.Ceil(d.t.Until.Sub(d.t.From).Hours()))
	return max(1, (hours+axisCells-1)/axisCells)
}

// bar is an entry in its row.
func (d drawing) bar(e admin.TimetableEntry) axisBar {
	start := e.At
	if e.StartsAt != nil {
		start = *e.StartsAt
	}
	title := []string{e.What(), "due " + d.times.Clock(e.At), "expected " + e.Expected(), d.unmarked(e.Note(d.times))}
	x := min(d.part(start), 100-thinnest)
	b := axisBar{Class: "due", Title: strings.TrimRight(strings.Join(title, "; "), "; "), X: share(x), Due: d.x(e.At), Unknown: e.ExpectedMS == nil, Collides: e.WaitsFor != ""}
	end := start
	switch {
	case e.EndsAt != nil:
		end = *e.EndsAt
	case e.ExpectedMS != nil:
		end = start.Add(time.Duration(*e.ExpectedMS) * time.Millisecond)
	}
	b.Width = share(max(thinnest, d.part(end)-x))
	switch {
	case e.Held != "":
		b.Class = "held"
	case e.Running:
		b.Class = "runs"
	case e.Collides():
		b.Class = "late"
	}
	return b
}

// aboutEntry is the page of what an entry of a timetable names: "job 17 (push): …".
func (c *Console) aboutEntry(text string) string {
	kind, rest, _ := strings.Cut(text, " ")
	name, _, _ := strings.Cut(rest, " ")
	o, there := c.named(map[string]string{"job": "jobs show", "schedule": "schedules show"}[kind])
	if !there || cmp.Or(name, "?") == "?" {
		return ""
	}
	return c.linkWith(o, map[string][]string{arguments(o)[0].Name: {name}})
}
