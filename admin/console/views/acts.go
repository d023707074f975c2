package views

import (
	"html/template"
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/console/parts"
	"github.com/belfryhq/belfry/admin/console/words"
	"github.com/belfryhq/belfry/admin/jobs"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// ActDay has the acts of a day, newest first.
type ActDay struct {
	Name string
	Acts []Act
}

// Act is who did what, to which object.
type Act struct {
	When           template.HTML
	Who, Did       string
	ByWho          string // the address of all acts of Who
	Object         parts.Link
	Title          string // of a job, or ""
	Change, Reason string
}

// actKinds are the kinds of acts in words, unless their names are.
var actKinds = map[string]string{
	"enqueued": "requested", job.EventAborted: "stopped", "resume_requested": "resumed", "retry_requested": "retried",
	"retry_skipped_requested": "retried the skipped of", "created": "added", "lifted": "ended the halt of", "redriven": "sent again",
	"fired": "ran", "sent": "sent a message to", "forgotten": "erased", "link": "made a sign-in link for",
}

// actSubjects are the objects of acts in words, unless their names are.
var actSubjects = map[string]string{
	"installation": "everything", "dead_letter": "failed messages", "channel": "person", "attachment": "the source of recipients",
	"transport": "the carrier", "limits": "the limits",
}

func actWord(names map[string]string, name string) string {
	if word, known := names[name]; known {
		return word
	}
	return strings.ReplaceAll(name, "_", " ")
}

// ActKinds returns the filter of the kind of an act.
func ActKinds() parts.Choice {
	c := parts.Choice{Name: "kind", Label: "Act", Options: []parts.Option{{Text: "Any"}}}
	for _, kind := range []string{"enqueued", job.EventApproved, job.EventAborted, "resume_requested", job.EventRecalled, "retry_requested",
		"paused", "resumed", "changed", "created", "removed", "redriven", "discarded", "signed in", "halted", "lifted"} {
		c.Options = append(c.Options, parts.Option{Value: kind, Text: words.Sentence(actWord(actKinds, kind))})
	}
	return c
}

// ActSubjects returns the filter of the object of an act.
func ActSubjects(names []string) parts.Choice {
	c := parts.Choice{Name: "of", Label: "Object", Options: []parts.Option{{Text: "Anything"}}}
	for _, one := range names {
		c.Options = append(c.Options, parts.Option{Value: one, Text: words.Sentence(actWord(actSubjects, one))})
	}
	return c
}

// ActDays groups acts, which are in the order of their times, by day. titles are the titles of jobs by id.
func ActDays(list []job.ControlEvent, titles map[string]string, site parts.Site, now time.Time) (days []ActDay) {
	for _, e := range list {
		name := words.DayOf(site.In(e.At), now)
		if len(days) == 0 || days[len(days)-1].Name != name {
			days = append(days, ActDay{Name: name})
		}
		day := &days[len(days)-1]
		act := describeAct(e, site)
		if e.Subject == job.SubjectJob {
			act.Title = text.OneLine(titles[e.Name], 80)
		}
		day.Acts = append(day.Acts, act)
	}
	return days
}

// describeAct returns an act in words.
func describeAct(e job.ControlEvent, site parts.Site) Act {
	a := Act{When: site.When(e.At), Who: e.Actor, Did: actWord(actKinds, e.Kind), Reason: text.OneLine(e.Reason, 200)}
	if e.Kind == job.EventChanged && e.Subject == job.SubjectJob {
		a.Did = "corrected"
	}
	if e.Name != e.Actor { // else a person who signed in
		a.Object = parts.Link{Name: strings.TrimSpace(actWord(actSubjects, e.Subject) + " " + e.Name)}
	}
	if e.Name != "" && e.Name != e.Actor {
		a.Object.Link = site.Page(e.Subject, e.Name)
	}
	if e.Subject != "installation" && e.Kind != "created" { // which have no more to say
		a.Change = strings.ReplaceAll(text.OneLine(jobs.ChangeOf(e), 200), "_", " ")
	}
	return a
}
