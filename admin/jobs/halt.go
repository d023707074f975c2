package jobs

import (
	"context"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// haltInput is the input of `halt` and `unhalt`.
type haltInput struct{ operation.Act }

// haltResult is the halt after `halt` or `unhalt`.
type haltResult struct {
	job.Halt
	Changed bool `json:"changed"` // by this operation
	// Locked names the jobs whose rows are locked by other sessions, and the sessions. Each session may
	// still commit rows of its job.
	Locked string `json:"locked"`
}

// Affected counts the jobs that the halt stopped. It counts none if nothing was changed.
func (h haltResult) Affected(string) operation.Affected {
	return operation.Affected{Noun: "job", Since: h.At,
		Event: operation.EventKind{Subject: operation.SubjectInstallation, Kind: "lifted"}, Halted: h.Changed}
}

const haltEvents = "belfry.events"

func endHalt() text.CommandCell { return text.Command("unhalt").To("end the halt") }

func haltOperations() []operation.Operation {
	return []operation.Operation{
		operation.Define(operation.Operation{
			Name: "halt", Short: "Stop all jobs and deliveries immediately", Role: operation.Operator, Changes: true, Stops: true, StopsAll: true,
			Events: haltEvents,
			Long: `Stop all work, in every process of this database. When the command has returned, no further
row of a job is committed, and no further message is handed to a provider, including
activities. Jobs that were running are PENDING, with their cursors. No job starts and no
schedule fires until ` + "`belfry unhalt`" + `. New jobs, activities and changes are accepted, and wait.
Processes keep running, and log the halt. A session that locks the row of a job delays the
halt for at most 2 seconds; the command names it, and it may still commit rows of this job.`,
			SQL:     `SELECT * FROM belfry.halt('ann', 'wrong link');`,
			Example: `  belfry halt --reason "wrong link"`,
		}, func(ctx context.Context, env *operation.Env, in haltInput) (h haltResult, err error) {
			h.Halt, h.Changed, err = env.Jobs.Halt(ctx, in.By(env))
			if err == nil {
				h.Locked = env.Jobs.Holders(ctx)
			}
			return h, operation.Refused(err, nil)
		}, func(d *text.Doc, _ haltInput, h haltResult) {
			if !h.Changed {
				d.Line("%s; nothing was changed", operation.HaltLine(h.Halt))
				return
			}
			d.Line("halted: no more rows are written and no more messages sent; %s", endHalt())
			if h.Locked != "" {
				d.Note("rows are locked: %s; such a session may still commit the rows that it has written", h.Locked)
			}
		}),
		operation.Define(operation.Operation{
			Name: "unhalt", Short: "Resume all jobs and deliveries after a halt", Role: operation.Operator, Changes: true, Stops: true,
			StopsAll: true,
			Events:   haltEvents,
			Long: `End a halt: jobs continue from their cursors, messages are sent, and schedules fire,
without a restart of any process. A schedule handles missed occurrences by its policy
(` + "`belfry schedules show NAME`" + `). A job that did not start before its expires_at is EXPIRED.`,
			SQL:     `SELECT * FROM belfry.unhalt('ann', 'corrected');`,
			Example: `  belfry unhalt --reason "the link is corrected"`,
		}, func(ctx context.Context, env *operation.Env, in haltInput) (h haltResult, err error) {
			h.Changed, err = env.Jobs.Unhalt(ctx, in.By(env))
			return h, operation.Refused(err, nil)
		}, func(d *text.Doc, _ haltInput, h haltResult) {
			if !h.Changed {
				d.Line("belfry was not halted; nothing was changed")
				return
			}
			d.Line("the halt has ended: jobs, deliveries and schedules continue")
		}),
	}
}
