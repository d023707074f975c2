package jobs

import (
	"context"
	"fmt"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// laneAct is the input of an act on a lane.
type laneAct struct {
	Lane string `arg:"LANE" values:"lanes list"`
	operation.VersionFlag
	operation.Act
}

func (in laneAct) Resource() operation.Resource {
	return operation.Resource{Subject: job.SubjectLane, Name: in.Lane, Show: "lanes list"}
}

func laneOperations() []operation.Operation {
	act := func(o operation.Operation, do func(*job.Store, context.Context, string, job.Act) (job.Lane, error)) operation.Operation {
		o.Events, o.Role, o.Changes, o.Stops = "the lane's events", operation.Operator, true, true
		o.Example = "  belfry " + o.Name + ` night --reason "wrong data"`
		return operation.Define(o, func(ctx context.Context, env *operation.Env, in laneAct) (job.Lane, error) {
			lane, err := do(env.Jobs, ctx, in.Lane, operation.ActBy(env, in))
			return lane, operation.Refused(err, map[string]string{"lane": "lane", "name": "lane"})
		}, func(p *text.Doc, _ laneAct, l job.Lane) { p.Printf("%s\n", laneLine(p.Times, l)) })
	}
	return []operation.Operation{
		operation.Define(operation.Operation{
			Name: "lanes list", Offers: "name pause_reason", Short: "List the lanes with jobs that wait or run, and those that were ever paused", Role: operation.Viewer,
		}, func(ctx context.Context, env *operation.Env, _ operation.None) (operation.List[job.Lane], error) {
			list, err := env.Jobs.Lanes(ctx)
			return operation.List[job.Lane]{Items: list}, err
		}, lanesText),
		act(operation.Operation{
			Name: "lanes pause", Short: "Stop a lane: no job of it is run until it is resumed",
			Long: `Stop a lane: no job of it is claimed, and the one that runs is handed back, with
its cursor, after the chunk in progress. Jobs may still be enqueued. A lane that is
paused already stays as it is.`,
			SQL: `SELECT * FROM belfry.pause_lane('night', 'ann', 'wrong data');`,
		}, (*job.Store).PauseLane),
		act(operation.Operation{
			Name: "lanes resume", Short: "Open a paused lane",
			Long: `Open a paused lane: its due jobs are run, each from its cursor. A lane that is
open already stays as it is.`,
			SQL: `SELECT * FROM belfry.resume_lane('night', 'ann', 'fixed');`,
		}, (*job.Store).ResumeLane),
		operation.Timeline{
			Noun: "lanes", Values: "lanes list", Subject: job.SubjectLane, Label: "LANE", Short: "Show when lanes were paused and opened, newest first",
			Example: "  belfry lanes events\n  belfry lanes events night --json", None: "no lane was ever paused",
		}.Events(),
	}
}

func lanesText(p *text.Doc, _ operation.None, out operation.List[job.Lane]) {
	if len(out.Items) == 0 {
		p.Printf("no lane has a job that waits or runs, and none was ever paused; a job names its lane with\n  belfry enqueue --lane NAME …\n")
		return
	}
	t := text.NewTable("LANE", "STATE", ">RUNNING", ">DUE", ">LATER", "PAUSED", "BY", "REASON")
	for _, l := range out.Items {
		running := "-"
		if l.Running != nil {
			running = "job " + text.Int(*l.Running)
		}
		t.Add(l.Name, openOrPaused(l.PausedAt != nil), running, text.Bounded(l.Due, job.LaneCounts), text.Bounded(l.Later, job.LaneCounts), p.ClockOr(l.PausedAt, ""), l.PausedBy, text.OneLine(l.PauseReason, 80))
	}
	p.Table(t)
}

func openOrPaused(paused bool) string {
	if paused {
		return "paused"
	}
	return "open"
}

// laneLine is one line about a lane.
func laneLine(times text.Times, l job.Lane) string {
	waits := text.CountedTo(l.Due, job.LaneCounts, "job") + " due, " + text.Bounded(l.Later, job.LaneCounts) + " later"
	if l.PausedAt == nil {
		return fmt.Sprintf("lane %s is open; %s", l.Name, waits)
	}
	line := fmt.Sprintf("lane %s is paused since %s by %s; %s", l.Name, times.Clock(*l.PausedAt), l.PausedBy, waits)
	if l.Running != nil {
		line += fmt.Sprintf("; job %d is handed back after the chunk in progress", *l.Running)
	}
	return line + fmt.Sprintf("; `belfry lanes resume %s` opens it", l.Name)
}
