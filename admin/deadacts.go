package admin

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/outbox"
)

// DeadReport is what came of a redrive or a discard, or would come of it.
type DeadReport struct {
	DryRun bool `json:"dry_run"`
	outbox.DeadDone

	// Counts says of a dry run what would be changed or left, by job, medium and reason;
	// AsOf when it was looked: what dies later is not in them.
	Counts []outbox.DeadCount `json:"counts,omitempty"`
	AsOf   *time.Time         `json:"as_of,omitempty"`
}

func (r *DeadReport) account() account { return account{n: r.Changed, noun: "message", none: r.DryRun} }

// deadActInput is the input of an act on dead letters.
type deadActInput struct {
	deadFilter
	All    bool   `flag:"all" help:"every dead letter there is"`
	DryRun bool   `flag:"dry-run" help:"only count, by job, medium and reason"`
	Expect *int64 `flag:"expect" label:"N" help:"change nothing unless exactly so many messages would be changed" min:"0"`
	Act
}

type redriveInput struct {
	deadActInput
	SameMedium bool `flag:"same-medium" help:"go on with the medium that each died at, not with the first"`
}

// deadAct is redrive or discard.
type deadAct struct {
	name, done string // discard, discarded
	do         func(context.Context, *pgxpool.Pool, outbox.DeadFilter, outbox.DeadOptions) (outbox.DeadDone, error)
	recalled   bool // whether it changes those of recalled jobs too
}

func deadActs() []Operation {
	redrive := deadAct{name: "redrive", done: "redriven", do: outbox.Redrive}
	discard := deadAct{name: "discard", done: "discarded", do: outbox.Discard, recalled: true}
	return []Operation{
		Define(redrive.operation("Return every dead letter that matches to the queue",
			`Return every dead letter that matches to the queue: it is due at once, begins with the
first medium of its route, and may be tried as often as a new one. With --same-medium it
begins with the medium that it died at. It is the same message: a provider that knows
its idempotency key does not deliver it twice.

Left are letters of jobs that were recalled after they died, and of ABORTED jobs that
retention deletes. Those of other ABORTED jobs are redriven and held until these are
resumed.`), func(ctx context.Context, env *Env, in redriveInput) (*DeadReport, error) {
			return redrive.run(ctx, env, in.deadActInput, outbox.DeadOptions{SameMedium: in.SameMedium})
		}, func(p *printer.Page, _ redriveInput, out *DeadReport) { redrive.text(p, out) }),
		Define(discard.operation("Cancel every dead letter that matches, permanently",
			`Cancel every dead letter that matches, permanently: it is listed no more, cannot be
redriven, and audits count it as discarded. Left are letters of ABORTED jobs that
retention deletes.`), func(ctx context.Context, env *Env, in deadActInput) (*DeadReport, error) {
			return discard.run(ctx, env, in, outbox.DeadOptions{})
		}, func(p *printer.Page, _ deadActInput, out *DeadReport) { discard.text(p, out) }),
	}
}

func (a deadAct) operation(short, long string) Operation {
	name := "dead-letters " + a.name
	return Operation{
		Name: name, Short: short, Role: Operator, Changes: true, Deadline: -1, Usage: "{FILTER... | --all}", Events: "the dead letters' events",
		Long: long + `

It goes in bounded steps. Interrupted, it leaves what it did done; repeating it goes on.
What dies after it has begun is left. --dry-run only counts, and says as of when; given
to --until, that time leaves what died since, and --expect refuses another number.

` + deadHelp(),
		Example: "  belfry " + name + ` --job 17 --dead-reason exhausted --reason "provider was down"` +
			"\n  belfry " + name + " --medium sms --since 2h --dry-run" +
			"\n  belfry " + name + " --all",
	}
}

// run counts or acts. Nothing that died after it looked at the clock is taken.
func (a deadAct) run(ctx context.Context, env *Env, in deadActInput, o outbox.DeadOptions) (*DeadReport, error) {
	if in.All == in.given() {
		return nil, invalid("", "dead-letters %s takes either a filter (--job, --medium, --dead-reason, --since, --until, --channel, --external-id) or --all", a.name)
	}
	filter, err := in.find(ctx, env)
	if err != nil {
		return nil, err
	}
	asOf, err := env.Jobs.Now(ctx)
	if err != nil {
		return nil, err
	}
	if filter.Until == nil || filter.Until.After(asOf) {
		filter.Until = &asOf
	}
	if in.DryRun || in.Expect != nil {
		plan, err := a.plan(ctx, env, filter, asOf)
		if err != nil || in.DryRun && in.Expect == nil {
			return plan, err
		}
		if plan.Changed != *in.Expect {
			err = invalid("expect", "%s would be %s as of %s, not %s; nothing was changed", printer.Counted(plan.Changed, "message"), a.done, asOf.Format(time.RFC3339Nano), printer.Grouped(*in.Expect))
		}
		if in.DryRun {
			return plan, err
		}
		if err != nil {
			return nil, err
		}
	}
	o.Act = in.by(env)
	o.Observe = func(d outbox.DeadDone) {
		env.progress("%s so far: %s", a.done, printer.Counted(d.Changed, "message"))
	}
	done, err := a.do(ctx, env.DB, filter, o)
	if err = deadProblem(err); err != nil && done == (outbox.DeadDone{}) {
		return nil, err
	}
	return &DeadReport{DeadDone: done}, err
}

// plan says what the act would do.
func (a deadAct) plan(ctx context.Context, env *Env, filter outbox.DeadFilter, asOf time.Time) (*DeadReport, error) {
	counts, err := outbox.DeadCounts(ctx, env.DB, filter)
	if err != nil {
		return nil, deadProblem(err)
	}
	plan := &DeadReport{DryRun: true, Counts: counts, AsOf: &asOf}
	for i := range counts {
		c := &counts[i]
		if a.recalled {
			c.Held, c.Recalled = 0, 0
		}
		plan.Looked += c.Letters
		plan.Retention += c.Retention
		plan.Recalled += c.Recalled
		plan.Held += c.Held
		plan.Changed += c.Letters - c.Retention - c.Recalled
	}
	return plan, nil
}

func (a deadAct) text(p *printer.Page, out *DeadReport) {
	if !out.DryRun {
		p.Printf("%s\n", deadLine(a.done, out.DeadDone))
		return
	}
	if len(out.Counts) > 0 {
		t := printer.NewTable(">JOB", "MEDIUM", "REASON", ">LETTERS", ">LEFT")
		for _, c := range out.Counts {
			of := printer.Int(c.JobID)
			if c.JobID == 0 {
				of = "activities"
			}
			t.Add(of, c.Medium, string(c.Reason), printer.Grouped(c.Letters), printer.Grouped(c.Retention+c.Recalled))
		}
		p.Table(t)
	}
	p.Printf("%s\n", deadLine("would be "+a.done, out.DeadDone))
	p.Note("--until %s --expect %d has this and nothing else %s", out.AsOf.Format(time.RFC3339Nano), out.Changed, a.done)
}

// deadLine is one line about what an act did.
func deadLine(what string, d outbox.DeadDone) string {
	line := what + ": " + printer.Counted(d.Changed, "message")
	if d.Held > 0 {
		line += fmt.Sprintf(", %s of them held until their job is resumed", printer.Grouped(d.Held))
	}
	var left []string
	if d.Recalled > 0 {
		left = append(left, printer.Grouped(d.Recalled)+" of jobs that were recalled")
	}
	if d.Retention > 0 {
		left = append(left, printer.Grouped(d.Retention)+" that retention deletes")
	}
	if len(left) > 0 {
		line += "; left: " + strings.Join(left, ", ")
	}
	return line
}
