package delivery

import (
	"context"
	"fmt"
	"time"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/outbox/retention"
)

// pruneInput is the input of `prune`.
type pruneInput struct {
	OlderThan *operation.Age `flag:"older-than" label:"AGE" help:"delete rows older than this, such as 90d or 36h, instead of the configured retention; rows that a cap counts stay"`
	operation.PlanFlags
	operation.Act
}

// PruneReport counts the rows that were deleted, or would be.
type PruneReport struct {
	Plan *operation.Plan `json:"plan,omitempty"` // set if nothing was changed
	retention.Pruned
	// KeepsAll reports that retention deletes nothing but samples.
	KeepsAll bool `json:"keeps_all"`
}

// Affected returns the number of rows.
func (r *PruneReport) Affected(string) operation.Affected {
	return operation.Affected{N: r.Rows(), Noun: "row", Plan: r.Plan}
}

func pruneOperation() operation.Operation {
	return operation.Define(operation.Operation{
		Name: "prune", Short: "Delete rows older than their retention", Role: operation.Admin, Changes: true, Deadline: -1,
		Events: "the events of retention",
		Long: `Delete notifications of jobs that ended longer ago than retention allows, messages that
were sent, died or were cancelled longer ago, then jobs of which nothing is left with
their events, old events of lanes, schedules and retention, and old samples, in bounded steps.
Jobs that wait or run, and messages that are not delivered, stay, and those of a
category with a cap for as long as the cap looks back. A daemon does the same every
retention.interval; any number of them at once does no harm. Interrupted, it leaves
deleted what it deleted; repeating it goes on.

--dry-run counts the rows. With the token of that plan (--plan) ages are counted back from
the time of the plan, so that no row is deleted that was too young then. Notifications are counted
by the sums of their jobs; those of job types of your own are not, and are deleted.`,
		Example: `  belfry prune --dry-run
  belfry prune
  belfry prune --older-than 90d --reason "disk is full"`,
	}, runPrune, func(p *text.Doc, _ pruneInput, out *PruneReport) {
		if out.KeepsAll {
			p.Note("retention keeps everything but samples permanently: set retention.notifications, messages, jobs or events, or use %s",
				text.Code("--older-than 90d"))
		}
		if out.Plan != nil {
			out.Plan.Text(p, "row", "deleted")
			return
		}
		p.Line("%s", prunedLine("deleted", out.Pruned))
	})
}

func runPrune(ctx context.Context, env *operation.Env, in pruneInput) (*PruneReport, error) {
	r, words := env.Retention, "rows older than their retention"
	if in.OlderThan != nil {
		old := time.Duration(*in.OlderThan)
		r.Notifications, r.Messages, r.Jobs, r.Events, r.Samples = old, old, old, old, old
		words = "rows older than " + in.OlderThan.String()
	}
	asOf, err := in.Moment(ctx, env)
	if err != nil {
		return nil, err
	}
	if in.Counts() {
		would, err := retention.Prune(ctx, env.DB, r, retention.Options{DryRun: true, AsOf: &asOf})
		if err != nil {
			return nil, err
		}
		plan := prunePlan(would, words, asOf)
		if in.DryRun {
			return &PruneReport{plan, would, r.Off()}, nil
		}
		if err := in.Agrees(plan, "row", "deleted"); err != nil {
			return nil, err
		}
	}
	pruned, err := retention.Prune(ctx, env.DB, r, retention.Options{AsOf: &asOf, Act: in.By(env), Observe: func(p retention.Pruned) {
		env.Progressf("%s", prunedLine("so far", p))
	}})
	return &PruneReport{nil, pruned, r.Off()}, err
}

func prunePlan(would retention.Pruned, words string, asOf time.Time) *operation.Plan {
	p := &operation.Plan{Selection: words, AsOf: asOf, Count: would.Rows(), Outcomes: []operation.Outcome{}}
	for _, o := range []operation.Outcome{
		{Of: "notifications", Count: would.Notifications}, {Of: "messages", Count: would.Messages},
		{Of: "jobs", Count: would.Jobs}, {Of: "events", Count: would.Events}, {Of: "samples", Count: would.Samples},
	} {
		if o.Outcome = "deleted"; o.Count > 0 {
			p.Outcomes = append(p.Outcomes, o)
		}
	}
	return p
}

func prunedLine(what string, p retention.Pruned) string {
	return fmt.Sprintf("%s: %s, %s, %s, %s, %s", what, text.Counted(p.Notifications, "notification"),
		text.Counted(p.Messages, "message"), text.Counted(p.Jobs, "job"), text.Counted(p.Events, "event"), text.Counted(p.Samples, "sample"))
}
