package schedules

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
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
	return operation.Resource{Subject: job.SubjectSchedule, Name: r.Name, Show: "schedules show " + r.Name, NotFound: func(context.Context, *operation.Env) error {
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
	Count int `flag:"count" label:"N" help:"so many, 1 to 1000 (default 5)" min:"1" max:"1000" default:"5"`
}

// NextOccurrence is one of the next occurrences of a schedule.
type NextOccurrence struct {
	At    time.Time `json:"at"`    // UTC
	Local string    `json:"local"` // in the schedule's time zone
	// TimeZone is the schedule's, InMS how long from now by the database's clock, and Paused
	// that the schedule is paused.
	TimeZone string `json:"time_zone"`
	InMS     int64  `json:"in_ms"`
	Paused   bool   `json:"paused"`
}

// Occurrence is a firing by hand.
type Occurrence struct {
	Schedule string  `json:"schedule"`
	Jobs     []int64 `json:"jobs"`
}

// Affected returns what a receipt counts.
func (o Occurrence) Affected(string) operation.Affected {
	return operation.Affected{N: int64(len(o.Jobs)), Noun: "job"}
}

// RemovedSchedule is what is left of one.
type RemovedSchedule struct {
	Schedule string `json:"schedule"`
}

const scheduleEvents = "the schedule's events"

func scheduleOperations() []operation.Operation {
	return []operation.Operation{
		operation.Define(operation.Operation{Name: "schedules list", Offers: "name template.title", Short: "List schedules by name", Role: operation.Viewer},
			func(ctx context.Context, env *operation.Env, _ operation.None) (operation.List[schedule.Schedule], error) {
				list, err := schedule.NewStore(env.DB).List(ctx)
				return operation.List[schedule.Schedule]{Items: list}, err
			}, schedulesText),
		operation.Define(operation.Operation{
			Name: "schedules show", Short: "Show one schedule: its definition and how it goes", Role: operation.Viewer,
			Example: "  belfry schedules show digest",
		}, func(ctx context.Context, env *operation.Env, in scheduleRef) (schedule.Schedule, error) {
			s, err := schedule.NewStore(env.DB).Get(ctx, in.Name)
			return s, scheduleProblem(err)
		}, scheduleText),
		operation.Define(operation.Operation{
			Name: "schedules next", Short: "Show when a schedule fires next", Role: operation.Viewer,
			Long: `Show when a schedule fires next, in its own time zone and in UTC, after the
database's clock, as if it were not paused.`,
			Example: "  belfry schedules next digest --count 20",
		}, nextOccurrences, nextOccurrencesText),
		schedulePreviewOperation(),
		operation.Define(operation.Operation{
			Name: "schedules run", Short: "Fire a schedule once more, now", Role: operation.Operator, Changes: true, Events: scheduleEvents,
			Long: `Fire a schedule once more, now, though it is paused; its next occurrence stays as it
is. The ids of the jobs are printed, one to a line.`,
			Example: `  belfry schedules run digest --reason "the query was wrong at nine"`,
		}, func(ctx context.Context, env *operation.Env, in scheduleAct) (Occurrence, error) {
			jobs, err := schedule.NewStore(env.DB).RunNow(ctx, in.Name, operation.ActBy(env, in))
			if err != nil {
				return Occurrence{}, scheduleProblem(err)
			}
			return Occurrence{in.Name, jobs}, nil
		}, func(p *text.Doc, _ scheduleAct, out Occurrence) {
			for _, id := range out.Jobs {
				p.Printf("%d\n", id)
			}
			p.Note("schedule %s fired: %s", out.Schedule, JobList(out.Jobs))
		}),
		operation.Define(operation.Operation{
			Name: "schedules remove", Short: "Remove a schedule, not its jobs", Role: operation.Operator, Changes: true, Events: scheduleEvents,
			Long: `Remove a schedule, not its jobs. One that is still in the configuration of a daemon
comes back when that starts or reloads: take it out there first.`,
			Example: "  belfry schedules remove digest",
		}, func(ctx context.Context, env *operation.Env, in scheduleAct) (RemovedSchedule, error) {
			if err := schedule.NewStore(env.DB).Remove(ctx, in.Name, operation.ActBy(env, in)); err != nil {
				return RemovedSchedule{}, scheduleProblem(err)
			}
			return RemovedSchedule{in.Name}, nil
		}, func(p *text.Doc, _ scheduleAct, out RemovedSchedule) { p.Note("schedule %s removed", out.Schedule) }),
		turnSchedule("pause", "Stop a schedule: what falls into a pause is dropped",
			"Stop a schedule. What falls into the pause is dropped; `belfry schedules run` fires\nit by hand all the same.", (*schedule.Store).Pause),
		turnSchedule("resume", "Let a paused schedule go on", "Let a paused schedule go on with its next occurrence.", (*schedule.Store).Resume),
		scheduleAddOperation(),
		operation.Timeline{
			Noun: "schedules", Values: "schedules list", Subject: job.SubjectSchedule, Label: "NAME", Short: "Show what became of schedules, newest first",
			Example: "  belfry schedules events\n  belfry schedules events digest --json", None: "nothing happened to a schedule yet",
		}.Events(),
	}
}

func turnSchedule(verb, short, long string, do func(*schedule.Store, context.Context, string, job.Act) (schedule.Schedule, error)) operation.Operation {
	return operation.Define(operation.Operation{
		Name: "schedules " + verb, Short: short, Long: long, Role: operation.Operator, Changes: true, Events: scheduleEvents,
		Example: "  belfry schedules " + verb + ` digest --reason "holidays"`,
	}, func(ctx context.Context, env *operation.Env, in scheduleAct) (schedule.Schedule, error) {
		s, err := do(schedule.NewStore(env.DB), ctx, in.Name, operation.ActBy(env, in))
		return s, scheduleProblem(err)
	}, func(p *text.Doc, _ scheduleAct, s schedule.Schedule) {
		if s.PausedAt != nil {
			p.Printf("schedule %s is paused since %s by %s; `belfry schedules resume %s` lets it go on\n", s.Name, p.Clock(*s.PausedAt), s.PausedBy, s.Name)
			return
		}
		p.Printf("schedule %s is active; `belfry schedules next %s` says when it fires\n", s.Name, s.Name)
	})
}

// scheduleProblem says where to look, and makes bad input a matter of the input.
func scheduleProblem(err error) error {
	if errors.Is(err, schedule.ErrNotFound) {
		return operation.Advise(err, "`belfry schedules list` shows what there is")
	}
	return operation.Refused(err, nil)
}

func schedulesText(p *text.Doc, _ operation.None, out operation.List[schedule.Schedule]) {
	if len(out.Items) == 0 {
		p.Printf("no schedules yet; define them under schedules in the configuration, or with\n  belfry schedules add NAME --cron '0 9 * * *' --type inbox --category popular_content --title \"Today\" --everyone\n")
		return
	}
	t := text.NewTable("NAME", "WHEN", "STATE", "NEXT", "LAST", "JOBS", ">FIRED", ">SKIPPED", "FROM")
	for _, s := range out.Items {
		t.Add(s.Name, recurrence(s.Definition), scheduleState(s), p.ClockOr(s.NextAt, "-"), p.ClockOr(s.LastAt, "-"),
			someIDs(s.LastJobs), text.Grouped(s.Fired), text.Grouped(s.Skipped), string(s.Source))
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

// scheduleState is active, paused or failing.
func scheduleState(s schedule.Schedule) string {
	switch {
	case s.PausedAt != nil:
		return "paused"
	case s.LastError != "":
		return "failing"
	}
	return "active"
}

// someIDs lists ids in a cell.
func someIDs(list []int64) string {
	const most = 5
	texts := make([]string, 0, most)
	for i, id := range list {
		if i == most {
			texts = append(texts, fmt.Sprintf("… %d in all", len(list)))
			break
		}
		texts = append(texts, text.Int(id))
	}
	if len(texts) == 0 {
		return "-"
	}
	return strings.Join(texts, ",")
}

func scheduleText(p *text.Doc, _ scheduleRef, s schedule.Schedule) {
	p.Field("schedule", "%s, from %s", s.Name, map[schedule.Source]string{schedule.FromConfig: "the configuration", schedule.FromDatabase: "the database"}[s.Source])
	if s.PausedAt != nil {
		p.Field("state", "paused since %s by %s: %s; `belfry schedules resume %s`", p.Clock(*s.PausedAt), s.PausedBy, text.OrNone(s.PauseReason), s.Name)
	} else {
		p.Field("state", "%s", scheduleState(s))
	}
	p.Field("when", "%s", recurrence(s.Definition))
	p.Field("next", "%s", p.ClockOr(s.NextAt, "when it is looked at next"))
	p.Field("missed", "%s, later than %s is missed", s.Missed, s.After)
	if template, err := json.Marshal(s.Template); err == nil { // it was JSON in the database
		p.Field("template", "%s", template)
	}
	if s.Query != "" {
		p.Field("query", "%s", s.Query)
		p.Field("query runs", "for up to %s, as %s", s.QueryTimeout, cmp.Or(s.QueryRole, "the daemon's role"))
	}
	p.Field("last", "%s, fired %s, jobs %s", p.ClockOr(s.LastAt, "none"), p.ClockOr(s.LastFiredAt, "never"), someIDs(s.LastJobs))
	p.Field("in all", "%s fired, %s skipped", text.Counted(s.Fired, "occurrence"), text.Grouped(s.Skipped))
	if s.LastError != "" {
		p.Field("last error", "%s", s.LastError)
		p.Field("failures", "%d since the last firing, tried again %s", s.Failures, p.ClockOr(s.RetryAt, "with the next occurrence"))
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
		p.Printf("schedule %s has no occurrence in the next nine years\n", in.Name)
		return
	}
	if out.Items[0].Paused {
		p.Note("it is paused: `belfry schedules resume %s`", in.Name)
	}
	t := text.NewTable(out.Items[0].TimeZone, "UTC", "IN")
	for _, one := range out.Items {
		t.Add(one.Local, one.At.Format("2006-01-02 15:04:05"), text.Short(time.Duration(one.InMS)*time.Millisecond))
	}
	p.Table(t)
}

// JobList names the jobs that a schedule enqueued.
func JobList(ids []int64) string {
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = text.Int(id)
	}
	switch len(ids) {
	case 0:
		return "no job, its query has no rows"
	case 1:
		return "job " + names[0]
	}
	return "jobs " + strings.Join(names, ", ")
}
