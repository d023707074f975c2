// Package agenda arranges pending jobs and occurrences of schedules as a calendar: by day and lane, with a drawing
// of each day.
package agenda

import (
	"cmp"
	"fmt"
	"html/template"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/console/draw"
	"github.com/belfryhq/belfry/admin/console/parts"
	"github.com/belfryhq/belfry/admin/console/words"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/admin/upcoming"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job/schedule"
)

// Day has the entries of a day by lane. Overdue entries are in a group of their own, without a drawing.
type Day struct {
	Name  string
	Lanes []Lane
	Only  *Lane  // the lane, if there is one
	Drawn bool   // the day has several starts
	Now   string // the position of now in the drawing; "" on other days

	due bool // the entries are overdue
}

// Lane has the entries of a lane. An empty name means that a query decides.
type Lane struct {
	Name, About string
	Words       string       // the name in a heading
	Resume      []parts.Link // the act that ends its pause
	Entries     []Entry
	Blocks      []Block
}

// Block is an entry in the drawing of a day. X and Width are percentages.
type Block struct{ X, Width, Tone, About string }

// Entry is a pending job, or the occurrences of a schedule on a day.
type Entry struct {
	Clock, Title, Link string
	Repeats, About     string
	When               template.HTML
	Held, Overlaps     string
	Actions            []parts.Link

	schedule string
	times    []time.Time
	overlaps []overlap
}

// overlap is another entry that is expected to run at the same time as an occurrence.
type overlap struct {
	at   time.Time // of the occurrence
	name string
}

// Schedule is a schedule as a row of a table.
type Schedule struct {
	Title, About, Link, Repeats string
	Status                      words.Status
	Next, Last                  template.HTML
	Actions                     []parts.Link
}

// timesNamed is the number of occurrences of a schedule on a day that are named.
const timesNamed = 3

// shortest is the shortest width of a block.
const shortest = 6 * time.Minute

// Key names the tones of blocks.
func Key() []draw.Series {
	return []draw.Series{{Name: "job", Tone: "done"}, {Name: "schedule", Tone: "wait"}, {Name: "overlaps another", Tone: "s3"},
		{Name: "held", Tone: "idle"}}
}

// Ranges returns the filter of the time.
func Ranges() parts.Choice {
	return parts.Choice{Name: "until", Label: "Range", Options: []parts.Option{{Text: "Next 7 days"}, {Value: "+24h", Text: "Next 24 hours"},
		{Value: "+744h", Text: "Next 31 days"}, {Value: "+8784h", Text: "Next year"}}}
}

// Held returns the filter of held jobs.
func Held() parts.Choice {
	return parts.Choice{Name: "skip_held", Label: "Held jobs", Options: []parts.Option{{Text: "Shown"}, {Value: "on", Text: "Hidden"}}}
}

// DayOf returns the name of the day of an entry for a heading. due reports that the entry is overdue, on any day.
func DayOf(at, now time.Time) (name string, due bool) {
	if at.Before(now) {
		return "Due", true
	}
	return words.DayOf(at, now), false
}

// Days groups entries, which are in the order of their times, by day and lane. paused are the paused lanes.
func Days(entries []upcoming.Entry, schedules []schedule.Schedule, paused []string, site parts.Site, now time.Time) (days []Day) {
	overlaps := overlapsOf(entries)
	for n, e := range entries {
		at := site.In(e.At)
		name, due := DayOf(at, now)
		if len(days) == 0 || days[len(days)-1].Name != name {
			days = append(days, Day{Name: name, due: due})
			if !due && words.IsToday(at, now) {
				days[len(days)-1].Now, _ = place(site.In(now), 0)
			}
		}
		day := &days[len(days)-1]
		i := slices.IndexFunc(day.Lanes, func(l Lane) bool { return l.Name == e.Lane })
		if i < 0 {
			i, day.Lanes = len(day.Lanes), append(day.Lanes, Lane{Name: e.Lane, Words: "Lane " + cmp.Or(e.Lane, "by a query")})
			if slices.Contains(paused, e.Lane) {
				day.Lanes[i].Resume = site.Action("lanes resume", "Resume the lane…", url.Values{"lane": {e.Lane}})
			}
		}
		one := entryOf(e, schedules, site)
		for _, name := range overlaps[n] {
			one.overlaps = append(one.overlaps, overlap{at, name})
		}
		day.Lanes[i].add(one, at, e.ExpectedMS)
	}
	for n := range days {
		d := &days[n]
		for i := range d.Lanes {
			d.Lanes[i].describe()
		}
		d.Drawn = !d.due && (len(d.Lanes) > 1 || len(d.Lanes[0].Blocks) > 1)
		if len(d.Lanes) == 1 {
			d.Only = &d.Lanes[0]
		}
	}
	return days
}

// overlapsOf returns the names of the entries that each entry overlaps. An entry itself names only earlier ones.
func overlapsOf(entries []upcoming.Entry) [][]string {
	all := make([][]string, len(entries))
	for i, e := range entries {
		for _, name := range e.Overlaps {
			all[i] = append(all[i], name)
			for j := i - 1; j >= 0 && name != e.Name; j-- {
				if entries[j].Name == name && entries[j].Lane == e.Lane {
					all[j] = append(all[j], e.Name)
					break
				}
			}
		}
	}
	return all
}

// add adds an entry, or an occurrence to the entry of its schedule.
func (l *Lane) add(one Entry, at time.Time, expected *int64) {
	took := shortest
	if expected != nil {
		took = max(took, time.Duration(*expected)*time.Millisecond)
	}
	b := Block{Tone: "done", About: one.Clock + " " + one.Title}
	b.X, b.Width = place(at, took)
	switch {
	case one.Held != "":
		b.Tone = "idle"
	case len(one.overlaps) > 0:
		b.Tone = "s3"
	case one.schedule != "":
		b.Tone = "wait"
	}
	l.Blocks = append(l.Blocks, b)
	i := slices.IndexFunc(l.Entries, func(other Entry) bool { return one.schedule != "" && other.schedule == one.schedule })
	if i >= 0 {
		first := &l.Entries[i]
		first.times, first.overlaps = append(first.times, at), append(first.overlaps, one.overlaps...)
		return
	}
	one.times = []time.Time{at}
	l.Entries = append(l.Entries, one)
}

// describe counts the entries, and names their overlaps and the occurrences of schedules: a few by their times.
func (l *Lane) describe() {
	for i := range l.Entries {
		e := &l.Entries[i]
		e.describeOverlaps()
		switch n := len(e.times); {
		case n < 2:
		case n <= timesNamed:
			var clocks []string
			for _, at := range e.times[1:] {
				clocks = append(clocks, at.Format("15:04"))
			}
			e.Repeats += "; also at " + strings.Join(clocks, " and ")
		default:
			e.Repeats += fmt.Sprintf(", %d times until %s", n, e.times[n-1].Format("15:04"))
		}
	}
	l.About = text.Counted(int64(len(l.Blocks)), "start")
}

// describeOverlaps names the overlaps, with the times of the occurrences of a schedule.
func (e *Entry) describeOverlaps() {
	var names []string
	for _, o := range e.overlaps {
		if len(e.times) > 1 {
			o.name += " at " + o.at.Format("15:04")
		}
		if !slices.Contains(names, o.name) {
			names = append(names, o.name)
		}
	}
	if len(names) > 0 {
		e.Overlaps = "Overlaps " + operation.SomeNames(names)
	}
}

// entryOf returns an entry.
func entryOf(e upcoming.Entry, schedules []schedule.Schedule, site parts.Site) Entry {
	one := Entry{schedule: e.Schedule, Held: words.Sentence(e.Held), Clock: site.In(e.At).Format("15:04"), Title: cmp.Or(e.Title, e.Schedule),
		When: site.When(e.At), About: words.AboutJob("", strings.Join(e.Types, ", "), e.Category)}
	if e.ExpectedMS != nil {
		one.About += " · takes about " + words.Span(max(time.Duration(*e.ExpectedMS)*time.Millisecond, time.Second))
	}
	if e.JobID != nil {
		id := text.Int(*e.JobID)
		one.Link, one.About = site.Page("job", id), "Job "+id+" · "+one.About
		one.Actions = site.Action("abort", "Stop…", url.Values{"id": {id}})
		return one
	}
	one.Link = site.Page("schedule", e.Schedule)
	if i := slices.IndexFunc(schedules, func(s schedule.Schedule) bool { return s.Name == e.Schedule }); i >= 0 {
		one.Repeats = words.Sentence(words.Repetition(schedules[i].Definition))
		one.Actions = turn(schedules[i], site)
	}
	return one
}

// turn returns the act that pauses or resumes a schedule.
func turn(s schedule.Schedule, site parts.Site) []parts.Link {
	if s.PausedAt != nil {
		return site.Action("schedules resume", "Resume…", url.Values{"name": {s.Name}})
	}
	return site.Action("schedules pause", "Pause…", url.Values{"name": {s.Name}})
}

// Schedules returns the schedules of a lane as rows. The lane "" means all.
func Schedules(list []schedule.Schedule, lane string, site parts.Site) (rows []Schedule) {
	for _, s := range list {
		if lane != "" && s.Query == "" && cmp.Or(s.Template.Lane, "default") != lane {
			continue
		}
		r := Schedule{Title: cmp.Or(s.Template.Title, s.Name), Link: site.Page("schedule", s.Name),
			Repeats: words.Sentence(words.Repetition(s.Definition)),
			About:   words.AboutJob(s.Template.Lane, s.Name, strings.Join(s.Template.Types, ", "), s.Template.Category),
			Status:  words.Status{Word: "Active", Tone: text.Done}}
		if s.Query != "" {
			r.About += " · jobs by a query"
		}
		switch {
		case s.PausedAt != nil:
			r.Status = words.Status{Word: "Paused by " + s.PausedBy, Tone: words.ToneHold}
		case s.LastError != "":
			r.Status = words.Status{Word: "Failing", Tone: text.Bad}
		}
		if s.NextAt != nil && s.PausedAt == nil {
			r.Next = site.When(*s.NextAt)
		}
		if s.LastFiredAt != nil {
			r.Last = site.When(*s.LastFiredAt)
		}
		r.Actions = slices.Concat(turn(s, site), site.Action("schedules run", "Run now…", url.Values{"name": {s.Name}}))
		rows = append(rows, r)
	}
	return rows
}

// place returns the position and the width of a time in the drawing of its day, in percent. A day of a change of
// clocks is an hour shorter or longer.
func place(at time.Time, took time.Duration) (x, width string) {
	start := time.Date(at.Year(), at.Month(), at.Day(), 0, 0, 0, 0, at.Location())
	length := start.AddDate(0, 0, 1).Sub(start).Seconds()
	return draw.Portion(at.Sub(start).Seconds(), length), draw.Portion(took.Seconds(), length)
}
