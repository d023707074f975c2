package admin

import (
	"context"
	"fmt"

	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/job"
)

// laneAct is the input of an act on a lane.
type laneAct struct {
	Lane string `arg:"LANE" values:"lanes list"`
	ifVersion
	Act
}

func (in laneAct) resource() resource {
	return resource{subject: job.SubjectLane, name: in.Lane, show: "lanes list"}
}

func laneOperations() []Operation {
	act := func(o Operation, do func(*job.Store, context.Context, string, job.Act) (job.Lane, error)) Operation {
		o.Events, o.Role, o.Changes, o.Stops = "the lane's events", Operator, true, true
		o.Example = "  belfry " + o.Name + ` night --reason "wrong data"`
		return Define(o, func(ctx context.Context, env *Env, in laneAct) (job.Lane, error) {
			lane, err := do(env.Jobs, ctx, in.Lane, actBy(env, in))
			return lane, refused(err, map[string]string{"lane": "lane", "name": "lane"})
		}, func(p *printer.Page, _ laneAct, l job.Lane) { p.Printf("%s\n", laneLine(p.Times, l)) })
	}
	return []Operation{
		Define(Operation{
			Name: "lanes list", Offers: "name pause_reason", Short: "List the lanes with jobs that wait or run, and those that were ever paused", Role: Viewer,
		}, func(ctx context.Context, env *Env, _ None) (List[job.Lane], error) {
			list, err := env.Jobs.Lanes(ctx)
			return List[job.Lane]{Items: list}, err
		}, lanesText),
		act(Operation{
			Name: "lanes pause", Short: "Stop a lane: no job of it is run until it is resumed",
			Long: `Stop a lane: no job of it is claimed, and the one that runs is handed back, with
its cursor, after the chunk in progress. Jobs may still be enqueued. A lane that is
paused already stays as it is.`,
			SQL: `SELECT * FROM belfry.pause_lane('night', 'ann', 'wrong data');`,
		}, (*job.Store).PauseLane),
		act(Operation{
			Name: "lanes resume", Short: "Open a paused lane",
			Long: `Open a paused lane: its due jobs are run, each from its cursor. A lane that is
open already stays as it is.`,
			SQL: `SELECT * FROM belfry.resume_lane('night', 'ann', 'fixed');`,
		}, (*job.Store).ResumeLane),
		timeline{
			noun: "lanes", values: "lanes list", subject: job.SubjectLane, label: "LANE", short: "Show when lanes were paused and opened, newest first",
			example: "  belfry lanes events\n  belfry lanes events night --json", none: "no lane was ever paused",
		}.events(),
	}
}

func lanesText(p *printer.Page, _ None, out List[job.Lane]) {
	if len(out.Items) == 0 {
		p.Printf("no lane has a job that waits or runs, and none was ever paused; a job names its lane with\n  belfry enqueue --lane NAME …\n")
		return
	}
	t := printer.NewTable("LANE", "STATE", ">RUNNING", ">DUE", ">LATER", "PAUSED", "BY", "REASON")
	for _, l := range out.Items {
		running := "-"
		if l.Running != nil {
			running = "job " + printer.Int(*l.Running)
		}
		t.Add(l.Name, openOrPaused(l.PausedAt != nil), running, printer.Bounded(l.Due, job.LaneCounts), printer.Bounded(l.Later, job.LaneCounts), p.ClockOr(l.PausedAt, ""), l.PausedBy, printer.OneLine(l.PauseReason, 80))
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
func laneLine(times printer.Times, l job.Lane) string {
	waits := printer.CountedTo(l.Due, job.LaneCounts, "job") + " due, " + printer.Bounded(l.Later, job.LaneCounts) + " later"
	if l.PausedAt == nil {
		return fmt.Sprintf("lane %s is open; %s", l.Name, waits)
	}
	line := fmt.Sprintf("lane %s is paused since %s by %s; %s", l.Name, times.Clock(*l.PausedAt), l.PausedBy, waits)
	if l.Running != nil {
		line += fmt.Sprintf("; job %d is handed back after the chunk in progress", *l.Running)
	}
	return line + fmt.Sprintf("; `belfry lanes resume %s` opens it", l.Name)
}
