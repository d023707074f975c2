package jobs

import (
	"context"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// haltAct is the input of `halt` and `unhalt`.
type haltAct struct{ operation.Act }

// haltState is whether everything is halted after an act.
type haltState struct {
	job.Halt
	Changed bool `json:"changed"` // by this act
	// Locked names the jobs whose rows other sessions keep locked, and the sessions, each of which
	// may still commit what it has written of its job; empty: none.
	Locked string `json:"locked"`
}

// affected counts the jobs that a halt stopped, also when they go on: none if it was so already.
func (h haltState) Affected(string) operation.Affected {
	return operation.Affected{Noun: "job", Since: h.At, Event: operation.EventKind{Subject: operation.SubjectInstallation, Name: "", Kind: "lifted", Lifted: ""}, Halted: h.Changed}
}

const haltEvents = "belfry.events"

var endHalt = text.Command("unhalt").To("end the halt")

func haltOperations() []operation.Operation {
	return []operation.Operation{
		operation.Define(operation.Operation{
			Name: "halt", Short: "Stop generation and delivery of everything at once", Role: operation.Operator, Changes: true, Stops: true, Events: haltEvents,
			Long: `Stop everything, in every process that works on this database. When the command has
returned, no further row of a job is committed, and no message is sent that was not
handed to a provider before, activities too. Jobs that ran are PENDING, with their
cursors. No job starts and no schedule fires until ` + "`belfry unhalt`" + `. Jobs, activities and
acts are accepted, and wait. Processes go on running, and say so. A session that keeps
the row of a job locked delays the halt for 2 seconds at most and is named: what it has
written of this job it may still commit.`,
			SQL:     `SELECT * FROM belfry.halt('ann', 'wrong link');`,
			Example: `  belfry halt --reason "wrong link"`,
		}, func(ctx context.Context, env *operation.Env, in haltAct) (h haltState, err error) {
			h.Halt, h.Changed, err = env.Jobs.Halt(ctx, in.By(env))
			if err == nil {
				h.Locked = env.Jobs.Holders(ctx)
			}
			return h, operation.Refused(err, nil)
		}, func(d *text.Doc, _ haltAct, h haltState) {
			if !h.Changed {
				d.Line("%s; nothing was changed", haltLine(h.Halt))
				return
			}
			d.Line("halted: no more rows are written and no more messages sent; %s", endHalt)
			if h.Locked != "" {
				d.Note("rows are locked: %s; such a session may still commit the rows that it has written", h.Locked)
			}
		}),
		operation.Define(operation.Operation{
			Name: "unhalt", Short: "Lift a halt: jobs and deliveries continue where they were", Role: operation.Operator, Changes: true, Stops: true, Events: haltEvents,
			Long: `End a halt: jobs continue from their cursors, messages are sent, and schedules fire,
without a restart of any process. What became of occurrences that a schedule missed is
for its own policy to say (` + "`belfry schedules show NAME`" + `). A job that did not start before
its expires_at is EXPIRED.`,
			SQL:     `SELECT * FROM belfry.unhalt('ann', 'corrected');`,
			Example: `  belfry unhalt --reason "the link is corrected"`,
		}, func(ctx context.Context, env *operation.Env, in haltAct) (h haltState, err error) {
			h.Changed, err = env.Jobs.Unhalt(ctx, in.By(env))
			return h, operation.Refused(err, nil)
		}, func(d *text.Doc, _ haltAct, h haltState) {
			if !h.Changed {
				d.Line("belfry was not halted; nothing was changed")
				return
			}
			d.Line("the halt has ended: jobs, deliveries and schedules continue")
		}),
	}
}
