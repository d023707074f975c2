package admin

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/job"
)

const (
	// subjectInstallation is the subject of halts and adoptions.
	subjectInstallation = "installation"
	// aroundEvents is how many events of its lane, its category, the senders and the installation
	// each are looked at for what was done while a job went on, the newest first.
	aroundEvents = 1000
	// actorKinds is how many kinds of acts of one actor are named.
	actorKinds = 6
)

// Incident is what there is to say afterwards of what happened to a job, for whoever was not there.
// It has no texts of people, whoever asks: it is made to be passed on.
type Incident struct {
	AsOf     time.Time          `json:"as_of"` // by the database's clock
	Job      jobReport          `json:"job"`
	Actors   []IncidentActor    `json:"actors"`
	Timeline []job.Event        `json:"timeline"` // oldest first
	Runs     JobRuns            `json:"runs"`
	Around   []job.ControlEvent `json:"around"` // what was done to its lane, its category, senders and the installation meanwhile, oldest first
	// Complete tells that the timeline is. Otherwise the job has more events than are read, and the
	// newest are left out.
	Complete bool `json:"complete"`
	// AroundComplete tells that Around is. Otherwise so much was done to one of these since that
	// the search did not reach back to the job's beginning, and the oldest are left out.
	AroundComplete bool `json:"around_complete"`
}

// IncidentActor is one who had to do with a job: a person, a program or a runner.
type IncidentActor struct {
	Name  string    `json:"name"`
	Acts  int       `json:"acts"`
	Kinds []string  `json:"kinds"` // of the acts, in the order in which they came first
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
}

func incidentOperation() Operation {
	return Define(Operation{
		Name: "jobs incident", Short: "Write down all that happened to a job, to be passed on", Role: Viewer, Rows: "timeline",
		Long: `Write down what happened to a job for whoever was not there: where it stands, what became
of its rows, who acted and how often, its timeline, its runs, what it said before it was
corrected, and what was done around it meanwhile, to its lane, its category, senders and
everything. Bodies, data, external ids, addresses and errors that may quote them are
` + Masked + `, whatever the role. The console saves the same as one file, with its charts.`,
		Example: `  belfry jobs incident 17
  belfry jobs incident 17 --json > incident-17.json`,
	}, jobIncident, incidentText)
}

func jobIncident(ctx context.Context, env *Env, in jobRef) (r Incident, err error) {
	if r.Job, err = showJob(ctx, env, in); err != nil {
		return Incident{}, err
	}
	if r.AsOf, err = env.Jobs.Now(ctx); err != nil {
		return Incident{}, err
	}
	if r.Timeline, r.Complete, err = timelineOf(ctx, env, in.ID); err != nil {
		return Incident{}, err
	}
	r.Runs = runsOf(r.Job.Job, r.Timeline, r.Complete, r.AsOf)
	if r.Around, r.AroundComplete, err = around(ctx, env, r); err != nil {
		return Incident{}, err
	}
	r.Actors = actorsOf(r.Timeline, r.Around)
	shown, is := masked(r).(Incident)
	if !is {
		panic("a masked incident is none")
	}
	return shown, nil
}

// around reads what was done meanwhile to what a job has to do with, and whether that is all.
func around(ctx context.Context, env *Env, r Incident) (list []job.ControlEvent, complete bool, err error) {
	end := r.AsOf
	if n := len(r.Timeline); n > 0 && r.Complete && r.Job.AtRest() {
		end = r.Timeline[n-1].At
	}
	list, complete = []job.ControlEvent{}, true
	for _, of := range []struct{ subject, name string }{
		{job.SubjectLane, r.Job.Lane}, {subjectCategory, r.Job.Category}, {delivery.SubjectSender, ""}, {subjectInstallation, ""},
	} {
		events, err := env.Jobs.ControlEvents(ctx, of.subject, of.name, 0, aroundEvents)
		if err != nil {
			return nil, false, err
		}
		if n := len(events); n == aroundEvents && !events[n-1].At.Before(r.Job.CreatedAt) {
			complete = false
		}
		for _, e := range events {
			if !e.At.Before(r.Job.CreatedAt) && !e.At.After(end) {
				list = append(list, e)
			}
		}
	}
	slices.SortFunc(list, func(a, b job.ControlEvent) int { return cmp.Compare(a.ID, b.ID) })
	return list, complete, nil
}

// actorsOf are who did what is told, in the order in which they came first.
func actorsOf(timeline []job.Event, around []job.ControlEvent) []IncidentActor {
	actors, at := []IncidentActor{}, make(map[string]int)
	did := func(name, kind string, when time.Time) {
		i, known := at[name]
		if !known {
			i, at[name] = len(actors), len(actors)
			actors = append(actors, IncidentActor{Name: name, First: when, Last: when})
		}
		a := &actors[i]
		a.Acts++
		a.First, a.Last = earlier(a.First, when), later(a.Last, when)
		if !slices.Contains(a.Kinds, kind) {
			a.Kinds = append(a.Kinds, kind)
		}
	}
	for _, e := range timeline {
		did(e.Actor, e.Kind, e.At)
	}
	for _, e := range around {
		did(e.Actor, strings.ReplaceAll(e.Subject, "_", " ")+" "+e.Kind, e.At)
	}
	slices.SortStableFunc(actors, func(a, b IncidentActor) int { return a.First.Compare(b.First) })
	return actors
}

func incidentText(p *printer.Page, in jobRef, r Incident) {
	p.Field("as of", "%s", p.Clock(r.AsOf))
	jobText(p, in, r.Job)
	p.Printf("\nwho acted:\n")
	t := printer.NewTable("WHO", ">ACTS", "DID", "FIRST", "LAST")
	for _, a := range r.Actors {
		did := strings.Join(a.Kinds[:min(len(a.Kinds), actorKinds)], ", ")
		if n := len(a.Kinds) - actorKinds; n > 0 {
			did += ", and " + printer.Counted(int64(n), "other kind")
		}
		t.Add(a.Name, printer.Grouped(int64(a.Acts)), did, p.Clock(a.First), p.Clock(a.Last))
	}
	p.Table(t)
	p.Printf("\ntimeline:\n")
	jobEventsText(p, jobTimeline{}, List[job.Event]{Items: r.Timeline})
	if !r.Complete {
		p.Note("these are the first %s events of the job; there are more", printer.Grouped(runEvents))
	}
	p.Printf("\nruns:\n")
	jobRunsText(p, in, r.Runs)
	if len(r.Job.Revisions) > 0 {
		p.Printf("\nwhat it said before:\n")
		revisionsText(p, in, List[job.Revision]{Items: r.Job.Revisions})
	}
	p.Printf("\naround it:\n")
	if len(r.Around) == 0 {
		p.Printf("nothing was done to its lane, its category, senders or everything meanwhile\n")
	} else {
		eventsText(p, eventFilter{}, List[job.ControlEvent]{Items: r.Around})
	}
	if !r.AroundComplete {
		p.Note("more was done around it: the newest %s events of each were looked at, which do not reach back to its beginning", printer.Grouped(aroundEvents))
	}
	p.Note("texts of people are masked here, whoever asks")
}
