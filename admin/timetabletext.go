package admin

import (
	"cmp"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/printer"
)

// Note says what is to be known of an entry: when it starts and what it waits for, or why it does not.
func (e TimetableEntry) Note(times printer.Times) string {
	var parts []string
	switch {
	case e.Held != "":
		return "held: " + e.Held
	case e.Running:
		parts = append(parts, "runs")
	case e.Lane == "":
		return "its query says when it fires how many jobs it makes, and in which lane"
	case e.WaitsFor != "" && e.StartsAt != nil:
		parts = append(parts, "collides with "+e.WaitsFor+": starts "+times.Clock(*e.StartsAt))
	}
	if e.HandedBackFor != "" {
		parts = append(parts, "is handed back for "+e.HandedBackFor+", which is more urgent")
	}
	if e.EndsAt != nil && (e.Running || e.Collides()) {
		parts = append(parts, "ends "+times.Clock(*e.EndsAt))
	}
	return strings.Join(parts, "; ")
}

// Expected says how long an entry is expected to take.
func (e TimetableEntry) Expected() string {
	if e.ExpectedMS == nil {
		return "unknown"
	}
	return printer.Short(time.Duration(*e.ExpectedMS) * time.Millisecond)
}

// What says what an entry is.
func (e TimetableEntry) What() string {
	types := strings.Join(e.Types, ", ")
	return e.Label() + " (" + cmp.Or(types, "?") + ")" + strings.TrimRight(": "+e.Title, ": ")
}

// Text says what was left out.
func (c TimetableCut) Text(times printer.Times) string {
	switch c.Of {
	case cutOfPaused:
		return "more than " + printer.Counted(int64(c.Shown), "job") + " of paused lanes in this time: those from " + times.Clock(c.Until) + " on are left out"
	case "jobs", "firings":
		return "more than " + printer.Counted(int64(c.Shown), strings.TrimSuffix(c.Of, "s")) + " in this time: those from " + times.Clock(c.Until) + " on are left out, and what they are in the way of"
	}
	return c.Of + " fires more often than " + printer.Counted(int64(c.Shown), "time") + " in this time: what it fires from " + times.Clock(c.Until) + " on is left out"
}

// Text says when a lane is free.
func (f FreeSlot) Text(times printer.Times) string {
	length := printer.Short(time.Duration(f.LengthMS) * time.Millisecond)
	switch {
	case f.At == nil:
		return "no free time of " + length + " was found in lane " + f.Lane + ": " + f.Why
	case !f.Certain:
		return "lane " + f.Lane + " may be free for " + length + " from " + times.Clock(*f.At) + ": " + f.Why
	}
	return "lane " + f.Lane + " is expected to be free for " + length + " from " + times.Clock(*f.At)
}

// Sum says how many entries there are, and how many of them collide.
func (t *Timetable) Sum(times printer.Times) string {
	var jobs, firings, collide, unknown int64
	for _, e := range t.Entries {
		if e.Job != nil {
			jobs++
		} else {
			firings++
		}
		if e.Collides() {
			collide++
		}
		if e.ExpectedMS == nil && e.Held == "" {
			unknown++
		}
	}
	text := printer.Counted(jobs, "job") + " and " + printer.Counted(firings, "firing") + " until " + times.Clock(t.Until)
	switch {
	case collide == 1:
		text += "; 1 collides with another"
	case collide > 1:
		text += "; " + printer.Grouped(collide) + " collide with others"
	default:
		text += "; none collides"
	}
	if unknown > 0 {
		text += "; how long " + printer.Grouped(unknown) + " of them take is unknown"
	}
	return text
}

func timetableText(p *printer.Page, in timetableInput, out *Timetable) {
	if out.Halted {
		p.Note("belfry is halted: nothing starts until `belfry go`")
	}
	if len(out.Entries) == 0 {
		p.Printf("nothing is due until %s; `belfry enqueue --at TIME …` plans a job, `belfry schedules add` a schedule\n", p.Clock(out.Until))
	} else {
		t := printer.NewTable("WHEN", "LANE", "WHAT", ">EXPECTED", "NOTE")
		for _, e := range out.Entries {
			t.Add(p.Clock(e.At), cmp.Or(e.Lane, "?"), printer.OneLine(e.What(), 60), e.Expected(), e.Note(p.Times))
		}
		p.Table(t)
		p.Printf("%s\n", out.Sum(p.Times))
		loadText(p, out)
	}
	if out.Free != nil {
		p.Printf("%s\n", out.Free.Text(p.Times))
	}
	for _, c := range out.Cuts {
		p.Note("%s", c.Text(p.Times))
	}
	if len(out.Cuts) > 0 {
		p.Note("--lane, --from and a shorter --for show less of more")
	}
	switch {
	case len(out.Entries) == 0 || in.Free != nil:
	case in.Lane == "":
		p.Note("`belfry timetable --lane LANE --free 30m` finds when a lane is free; `belfry jobs set ID schedule_at=TIME` moves a job")
	default:
		p.Note("`belfry timetable --lane %s --free 30m` finds when it is free; `belfry jobs set ID schedule_at=TIME` moves a job", in.Lane)
	}
}

// loadText tells for how long lanes are taken in which hours.
func loadText(p *printer.Page, out *Timetable) {
	t := printer.NewTable("HOUR", "LANE", ">TAKEN", "LOAD")
	for _, l := range out.Lanes {
		for _, h := range l.Load {
			t.Add(p.Clock(h.At), l.Lane, h.Text(), printer.Bar(h.BusyMS, time.Hour.Milliseconds(), 20))
		}
	}
	if t.Empty() {
		return
	}
	p.Printf("\nload per hour:\n")
	p.Table(t)
}

// Text says for how long a lane is taken; a + stands for what takes nobody knows how long.
func (h HourLoad) Text() string {
	text := printer.Short(time.Duration(h.BusyMS) * time.Millisecond)
	if h.Unknown > 0 {
		text += "+"
	}
	return text
}
