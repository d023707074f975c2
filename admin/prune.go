package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/outbox"
)

// pruneInput is the input of `prune`.
type pruneInput struct {
	DryRun    bool `flag:"dry-run" help:"only count what would be deleted"`
	OlderThan *age `flag:"older-than" label:"AGE" help:"delete everything older than this, as 90d or 36h, whatever retention says; what a cap counts stays"`
	Act
}

// PruneReport is what was deleted, or would be.
type PruneReport struct {
	DryRun bool `json:"dry_run"`
	outbox.Pruned
	// KeepsAll tells that retention deletes nothing.
	KeepsAll bool `json:"keeps_all"`
}

func (r *PruneReport) account() account {
	return account{n: r.Notifications + r.Messages + r.Jobs + r.Events, noun: "row", none: r.DryRun}
}

func pruneOperation() Operation {
	return Define(Operation{
		Name: "prune", Short: "Delete what is older than its retention", Role: Admin, Changes: true, Deadline: -1, Events: "the events of retention",
		Long: `Delete notifications of jobs that ended longer ago than retention allows, messages that
were sent, died or were cancelled longer ago, then jobs of which nothing is left with
their events, and old events of lanes, schedules and retention, in bounded steps.
Jobs that wait or run, and messages that are not delivered, stay, and those of a
category with a cap for as long as the cap looks back. A daemon does the same every
retention.interval; any number of them at once does no harm. Interrupted, it leaves
deleted what it deleted; repeating it goes on.`,
		Example: `  belfry prune --dry-run
  belfry prune
  belfry prune --older-than 90d --reason "disk is full"`,
	}, func(ctx context.Context, env *Env, in pruneInput) (*PruneReport, error) {
		r := env.Retention
		if in.OlderThan != nil {
			old := time.Duration(*in.OlderThan)
			r.Notifications, r.Messages, r.Jobs, r.Events = old, old, old, old
		}
		pruned, err := outbox.Prune(ctx, env.DB, r, outbox.PruneOptions{DryRun: in.DryRun, Act: in.by(env), Observe: func(p outbox.Pruned) {
			env.progress("%s", prunedLine("so far", p))
		}})
		return &PruneReport{in.DryRun, pruned, r.Off()}, err
	}, func(p *printer.Page, _ pruneInput, out *PruneReport) {
		if out.KeepsAll {
			p.Note("retention keeps everything permanently: set retention.notifications, messages, jobs or events, or say --older-than 90d")
		}
		what := "deleted"
		if out.DryRun {
			what = "would delete"
		}
		p.Printf("%s\n", prunedLine(what, out.Pruned))
	})
}

func prunedLine(what string, p outbox.Pruned) string {
	return fmt.Sprintf("%s: %s, %s, %s, %s", what, printer.Counted(p.Notifications, "notification"), printer.Counted(p.Messages, "message"), printer.Counted(p.Jobs, "job"), printer.Counted(p.Events, "event"))
}
