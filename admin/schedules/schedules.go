package schedules

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/job/schedule"
)

type scheduleRef struct {
	Name string `arg:"NAME" values:"schedules list"`
}

func (r scheduleRef) Resource() operation.Resource {
	return operation.Resource{Subject: job.SubjectSchedule, Name: r.Name, Show: text.Command("schedules show", r.Name),
		NotFound: func(context.Context, *operation.Env) error {
			return scheduleProblem(fmt.Errorf("schedule %s: %w", r.Name, schedule.ErrNotFound))
		}}
}

type scheduleAct struct {
	scheduleRef
	operation.VersionFlag
	operation.Act
}

type scheduleNext struct {
	scheduleRef
	Count int `flag:"count" label:"N" help:"number of occurrences, 1 to 1000 (default 5)" min:"1" max:"1000" default:"5"`
}

// NextOccurrence is an upcoming occurrence of a schedule.
type NextOccurrence struct {
	At       time.Time `json:"at"`        // UTC
	Local    string    `json:"local"`     // in the schedule's time zone
	TimeZone string    `json:"time_zone"` // of the schedule
	InMS     int64     `json:"in_ms"`     // from now, by the database's clock
	Paused   bool      `json:"paused"`    // the schedule is paused
}

// Occurrence is a manual firing.
type Occurrence struct {
	Schedule string  `json:"schedule"`
	Jobs     []int64 `json:"jobs"`
}

// Affected returns the number of jobs.
func (o Occurrence) Affected(string) operation.Affected {
	return operation.Affected{N: int64(len(o.Jobs)), Noun: "job"}
}

// RemovedSchedule names a schedule that was removed.
type RemovedSchedule struct {
	Schedule string `json:"schedule"`
}

const scheduleEvents = "the schedule's events"

func scheduleOperations() []operation.Operation {
	return []operation.Operation{
		operation.Define(operation.Operation{Name: "schedules list", Suggests: "name template.title", Short: "List schedules by name",
			Role: operation.Viewer},
			func(ctx context.Context, env *operation.Env, _ operation.None) (operation.List[schedule.Schedule], error) {
				list, err := schedule.NewStore(env.DB).List(ctx)
				return operation.List[schedule.Schedule]{Items: list}, err
			}, schedulesText),
		operation.Define(operation.Operation{
			Name: "schedules show", Short: "Show one schedule: its definition and state", Role: operation.Viewer,
			Example: "  belfry schedules show digest",
		}, func(ctx context.Context, env *operation.Env, in scheduleRef) (schedule.Schedule, error) {
			s, err := schedule.NewStore(env.DB).Get(ctx, in.Name)
			return s, scheduleProblem(err)
		}, scheduleText),
		operation.Define(operation.Operation{
			Name: "schedules next", Short: "Show when a schedule fires next", Role: operation.Viewer,
			Long: `Show the upcoming occurrences of a schedule, in its own time zone and in UTC. They begin
at the time of the database's clock and ignore a pause.`,
			Example: "  belfry schedules next digest --count 20",
		}, nextOccurrences, nextOccurrencesText),
		schedulePreviewOperation(),
		operation.Define(operation.Operation{
			Name: "schedules run", Short: "Fire a schedule once more, now", Role: operation.Operator, Changes: true, Events: scheduleEvents,
			Long: `Fire a schedule once more, now, even if it is paused. Its next occurrence does not change.
The output is the ids of the jobs, one per line.`,
			Example: `  belfry schedules run digest --reason "the query was wrong at nine"`,
		}, func(ctx context.Context, env *operation.Env, in scheduleAct) (Occurrence, error) {
			jobs, err := schedule.NewStore(env.DB).RunNow(ctx, in.Name, operation.ActBy(env, in))
			if err != nil {
				return Occurrence{}, scheduleProblem(err)
			}
			return Occurrence{in.Name, jobs}, nil
		}, func(p *text.Doc, _ scheduleAct, out Occurrence) {
			for _, id := range out.Jobs {
				p.Line("%s", text.Ref("job", id))
			}
			p.Note("schedule %s fired: %s", text.Ref("schedule", out.Schedule), JobList(out.Jobs))
		}),
		operation.Define(operation.Operation{
			Name: "schedules remove", Short: "Remove a schedule, not its jobs", Role: operation.Operator, Changes: true, Events: scheduleEvents,
			Long: `Remove a schedule, but not its jobs. If the configuration of a daemon defines it, remove
it there first: the daemon stores it again when it starts or reloads.`,
			Example: "  belfry schedules remove digest",
		}, func(ctx context.Context, env *operation.Env, in scheduleAct) (RemovedSchedule, error) {
			if err := schedule.NewStore(env.DB).Remove(ctx, in.Name, operation.ActBy(env, in)); err != nil {
				return RemovedSchedule{}, scheduleProblem(err)
			}
			return RemovedSchedule{in.Name}, nil
		}, func(p *text.Doc, _ scheduleAct, out RemovedSchedule) { p.Note("schedule %s removed", out.Schedule) }),
		turnSchedule("pause", "Pause a schedule: its occurrences are skipped until it is resumed",
			"Pause a schedule. Its occurrences during the pause are dropped. `belfry schedules run`\nfires a paused schedule, too.",
			(*schedule.Store).Pause),
		turnSchedule("resume", "Resume a paused schedule", "Resume a paused schedule with its next occurrence.", (*schedule.Store).Resume),
		scheduleAddOperation(),
		operation.Timeline{
			Noun: "schedules", Values: "schedules list", Subject: job.SubjectSchedule, Label: "NAME",
			Short:   "Show the events of schedules, newest first",
			Example: "  belfry schedules events\n  belfry schedules events digest --json", None: "no schedule has events yet",
		}.Events(),
	}
}

func turnSchedule(verb, short, long string,
	do func(*schedule.Store, context.Context, string, job.Act) (schedule.Schedule, error)) operation.Operation {
	return operation.Define(operation.Operation{
		Name: "schedules " + verb, Short: short, Long: long, Role: operation.Operator, Changes: true, Events: scheduleEvents,
		Example: "  belfry schedules " + verb + ` digest --reason "holidays"`,
	}, func(ctx context.Context, env *operation.Env, in scheduleAct) (schedule.Schedule, error) {
		s, err := do(schedule.NewStore(env.DB), ctx, in.Name, operation.ActBy(env, in))
		return s, scheduleProblem(err)
	}, func(p *text.Doc, _ scheduleAct, s schedule.Schedule) {
		if s.PausedAt != nil {
			p.Line("schedule %s is paused since %s by %s; %s", text.Ref("schedule", s.Name), *s.PausedAt, s.PausedBy, resumeCommand(s.Name))
			return
		}
		p.Line("schedule %s is active; %s", text.Ref("schedule", s.Name), nextCommand(s.Name))
	})
}

func nextCommand(name string) text.CommandCell {
	return text.Command("schedules next", name).To("show its next occurrences")
}

func resumeCommand(name string) text.CommandCell {
	return text.Command("schedules resume", name).To("resume it")
}

// scheduleProblem adds the next step to an error, and classifies invalid input.
func scheduleProblem(err error) error {
	if errors.Is(err, schedule.ErrNotFound) {
		return operation.Advise(err, "`belfry schedules list` lists the schedules")
	}
	return operation.Refused(err, nil)
}

func schedulesText(p *text.Doc, _ operation.None, out operation.List[schedule.Schedule]) {
	if len(out.Items) == 0 {
		p.Line("no schedules yet; define them under %s in the configuration, or in the database; %s", text.Code("schedules"),
			text.Command("schedules add").Usage(
				`NAME --cron '0 9 * * *' --type inbox --category popular_content --title "Today" --everyone`).To("add one"))
		return
	}
	t := text.NewTable("NAME", "WHEN", "STATE", "NEXT", "LAST", "JOBS", ">FIRED", ">SKIPPED", "FROM")
	for _, s := range out.Items {
		t.Add(text.Ref("schedule", s.Name), recurrence(s.Definition), scheduleState(s), text.Or(s.NextAt, "-"), text.Or(s.LastAt, "-"),
			someJobs(s.LastJobs), s.Fired, s.Skipped, string(s.Source))
	}
	p.Table(t)
}

// recurrence renders the cron expression or the interval of a schedule.
func recurrence(d schedule.Definition) string {
	if d.Cron == "" {
		return "every " + d.Every
	}
	return d.Cron + " " + d.TimeZone
}

// scheduleState returns active, paused or failing.
func scheduleState(s schedule.Schedule) text.StatusCell {
	switch {
	case s.PausedAt != nil:
		return text.Status("paused")
	case s.LastError != "":
		return text.Status("failing")
	}
	return text.Status("active")
}

// someJobs lists the first jobs in a cell.
func someJobs(list []int64) text.Line {
	const most = 5
	switch {
	case len(list) == 0:
		return text.Sprintf("-")
	case len(list) > most:
		return text.Sprintf("%s,… %d in all", text.Join(jobRefs(list[:most]), ","), len(list))
	}
	return text.Join(jobRefs(list), ",")
}

func jobRefs(ids []int64) []text.RefCell {
	refs := make([]text.RefCell, len(ids))
	for i, id := range ids {
		refs[i] = text.Ref("job", id)
	}
	return refs
}

func scheduleText(p *text.Doc, _ scheduleRef, s schedule.Schedule) {
	p.Field("schedule", "%s, from %s", s.Name,
		map[schedule.Source]string{schedule.FromConfig: "the configuration", schedule.FromDatabase: "the database"}[s.Source])
	if s.PausedAt != nil {
		p.Field("state", "%s since %s by %s: %s; %s", scheduleState(s), *s.PausedAt, s.PausedBy, text.OrNone(s.PauseReason),
			resumeCommand(s.Name))
	} else {
		p.Field("state", "%s", scheduleState(s))
	}
	p.Field("when", "%s", recurrence(s.Definition))
	p.Field("next", "%s", text.Or(s.NextAt, "not computed yet"))
	p.Field("missed", "%s, later than %s is missed", s.Missed, s.After)
	if template, err := json.Marshal(s.Template); err == nil { // it was JSON in the database
		p.Field("template", "%s", template)
	}
	if s.Query != "" {
		p.Field("query", "%s", s.Query)
		p.Field("query runs", "for up to %s, as %s", s.QueryTimeout, cmp.Or(s.QueryRole, "the daemon's role"))
	}
	p.Field("last", "%s, fired %s, jobs %s", text.Or(s.LastAt, "none"), text.Or(s.LastFiredAt, "never"), someJobs(s.LastJobs))
	p.Field("in all", "%s fired, %s skipped", text.Counted(s.Fired, "occurrence"), text.Grouped(s.Skipped))
	if s.LastError != "" {
		p.Field("last error", "%s", s.LastError)
		p.Field("failures", "%d since the last firing, retried %s", s.Failures, text.Or(s.RetryAt, "with the next occurrence"))
	}
}

func nextOccurrences(ctx context.Context, env *operation.Env, in scheduleNext) (page operation.List[NextOccurrence], err error) {
	s, err := schedule.NewStore(env.DB).Get(ctx, in.Name)
	if err != nil {
		return page, scheduleProblem(err)
	}
	now, err := env.Jobs.Now(ctx)
	if err != nil {
		return page, err
	}
	times, err := s.Next(now, in.Count)
	if err != nil {
		return page, fmt.Errorf("schedule %s: %w", s.Name, err)
	}
	zone, err := time.LoadLocation(s.TimeZone)
	if err != nil {
		return page, fmt.Errorf("schedule %s: time_zone: %w", s.Name, err)
	}
	for _, at := range times {
		page.Items = append(page.Items, NextOccurrence{
			at.UTC(), at.In(zone).Format("Mon 2006-01-02 15:04:05 -07:00"), s.TimeZone, at.Sub(now).Milliseconds(), s.PausedAt != nil,
		})
	}
	return page, nil
}

func nextOccurrencesText(p *text.Doc, in scheduleNext, out operation.List[NextOccurrence]) {
	if len(out.Items) == 0 {
		p.Line("schedule %s has no occurrence in the next nine years", text.Ref("schedule", in.Name))
		return
	}
	if out.Items[0].Paused {
		p.Note("it is paused; %s", resumeCommand(in.Name))
	}
	t := text.NewTable(out.Items[0].TimeZone, "UTC", "IN")
	for _, one := range out.Items {
		t.Add(one.Local, one.At.Format("2006-01-02 15:04:05"), time.Duration(one.InMS)*time.Millisecond)
	}
	p.Table(t)
}

// JobList names the jobs that a schedule enqueued.
func JobList(ids []int64) text.Line {
	switch len(ids) {
	case 0:
		return text.Sprintf("no job, because its query returned no rows")
	case 1:
		return text.Sprintf("job %s", text.Ref("job", ids[0]))
	}
	return text.Sprintf("jobs %s", text.Join(jobRefs(ids), ", "))
}
