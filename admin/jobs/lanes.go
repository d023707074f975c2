package jobs

import (
	"context"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// laneInput is the input of `lanes pause` and `lanes resume`.
type laneInput struct {
	Lane string `arg:"LANE" values:"lanes list"`
	operation.VersionFlag
	operation.Act
}

func (in laneInput) Resource() operation.Resource {
	return operation.Resource{Subject: job.SubjectLane, Name: in.Lane, Show: text.Command("lanes list")}
}

func laneOperations() []operation.Operation {
	act := func(o operation.Operation, do func(*job.Store, context.Context, string, job.Act) (job.Lane, error)) operation.Operation {
		o.Events, o.Role, o.Changes, o.Stops = "the lane's events", operation.Operator, true, true
		o.Example = "  belfry " + o.Name + ` night --reason "wrong data"`
		return operation.Define(o, func(ctx context.Context, env *operation.Env, in laneInput) (job.Lane, error) {
			lane, err := do(env.Jobs, ctx, in.Lane, operation.ActBy(env, in))
			return lane, operation.Refused(err, map[string]string{"lane": "lane", "name": "lane"})
		}, func(d *text.Doc, _ laneInput, l job.Lane) { d.Line("%s", laneLine(l)) })
	}
	return []operation.Operation{
		operation.Define(operation.Operation{
			Name: "lanes list", Suggests: "name pause_reason",
			Short: "List the lanes with waiting or running jobs, and all lanes that were ever paused", Role: operation.Viewer,
		}, func(ctx context.Context, env *operation.Env, _ operation.None) (operation.List[job.Lane], error) {
			list, err := env.Jobs.Lanes(ctx)
			return operation.List[job.Lane]{Items: list}, err
		}, lanesText),
		act(operation.Operation{
			Name: "lanes pause", Short: "Pause a lane: its jobs do not run until it is resumed",
			Long: `Pause a lane: no runner claims a job of it, and its running job is handed back with its
cursor after the chunk in progress. Jobs can still be enqueued. A paused lane remains
unchanged.`,
			SQL: `SELECT * FROM belfry.pause_lane('night', 'ann', 'wrong data');`,
		}, (*job.Store).PauseLane),
		act(operation.Operation{
			Name: "lanes resume", Short: "Resume a paused lane",
			Long: `Resume a paused lane: its due jobs run, each from its cursor. An open lane remains
unchanged.`,
			SQL: `SELECT * FROM belfry.resume_lane('night', 'ann', 'fixed');`,
		}, (*job.Store).ResumeLane),
		operation.Timeline{
			Noun: "lanes", Values: "lanes list", Subject: job.SubjectLane, Label: "LANE",
			Short:   "Show when lanes were paused and resumed, newest first",
			Example: "  belfry lanes events\n  belfry lanes events night --json", None: "no lane was ever paused",
		}.Events(),
	}
}

func lanesText(d *text.Doc, _ operation.None, out operation.List[job.Lane]) {
	if len(out.Items) == 0 {
		d.Line("no lane has waiting or running jobs, and none was ever paused; %s",
			text.Command("enqueue").Usage("--lane NAME …").To("enqueue a job in a lane"))
		return
	}
	t := text.NewTable("LANE", "STATE", ">RUNNING", ">DUE", ">LATER", "PAUSED", "BY", "REASON")
	for _, l := range out.Items {
		state := "open"
		if l.PausedAt != nil {
			state = "paused"
		}
		var running any = "-"
		if l.Running != nil {
			running = text.Ref("job", *l.Running).As("job " + text.Int(*l.Running))
		}
		t.Add(text.Ref("lane", l.Name), text.Status(state), running, text.Bounded(l.Due, job.LaneCounts),
			text.Bounded(l.Later, job.LaneCounts), l.PausedAt, l.PausedBy, text.OneLine(l.PauseReason, 80))
	}
	d.Table(t)
}

// laneLine returns the state of a lane, its waiting jobs, and the next step.
func laneLine(l job.Lane) text.Line {
	waits := text.CountedTo(l.Due, job.LaneCounts, "job") + " due, " + text.Bounded(l.Later, job.LaneCounts) + " later"
	if l.PausedAt == nil {
		return text.Sprintf("lane %s is open; %s", text.Ref("lane", l.Name), waits)
	}
	line := text.Sprintf("lane %s is paused since %s by %s; %s", text.Ref("lane", l.Name), l.PausedAt, l.PausedBy, waits)
	if l.Running != nil {
		line = text.Sprintf("%s; job %s is handed back after the chunk in progress", line, text.Ref("job", *l.Running))
	}
	return text.Sprintf("%s; %s", line, text.Command("lanes resume", l.Name).To("resume the lane"))
}
