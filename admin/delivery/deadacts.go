package delivery

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/text"
)

// DeadReport is the result or the plan of a redrive or a discard.
type DeadReport struct {
	Plan *operation.Plan `json:"plan,omitempty"` // set if nothing was changed; by job, medium and reason
	DeadDone
}

// Affected returns the number of messages.
func (r *DeadReport) Affected(string) operation.Affected {
	return operation.Affected{N: r.Changed, Noun: "message", Plan: r.Plan}
}

// deadActInput is the input of an act on dead letters.
type deadActInput struct {
	deadFilter
	All bool `flag:"all" help:"all dead letters"`
	operation.PlanFlags
	operation.Act
}

type redriveInput struct {
	deadActInput
	SameMedium bool `flag:"same-medium" help:"continue with the medium at which each letter died, not with the first"`
}

// deadAct is redrive or discard.
type lettersAct struct {
	name, done string // discard, discarded
	do         func(context.Context, *pgxpool.Pool, DeadFilter, DeadOptions) (DeadDone, error)
	recalled   bool // whether it also changes letters of recalled jobs
}

func deadActs() []operation.Operation {
	redrive := lettersAct{name: "redrive", done: "redriven", do: Redrive}
	discard := lettersAct{name: "discard", done: "discarded", do: Discard, recalled: true}
	return []operation.Operation{
		operation.Define(redrive.operation("Return every dead letter that matches to the queue",
			`Return every dead letter that matches to the queue: it is due at once, begins with the
first medium of its route, and may be tried as often as a new one. With --same-medium it
begins with the medium that it died at. It is the same message: a provider that knows
its idempotency key does not deliver it twice.

It skips letters of jobs that were recalled after the letter died, and of ABORTED jobs
whose rows retention deletes. Letters of other ABORTED jobs are redriven, and held until
their job is resumed.`), func(ctx context.Context, env *operation.Env, in redriveInput) (*DeadReport, error) {
			return redrive.run(ctx, env, in.deadActInput, DeadOptions{SameMedium: in.SameMedium})
		}, func(p *text.Doc, _ redriveInput, out *DeadReport) { redrive.text(p, out) }),
		operation.Define(discard.operation("Cancel every dead letter that matches, permanently",
			`Cancel every dead letter that matches, permanently: it is listed no more, cannot be
redriven, and audits count it as discarded. It skips letters of ABORTED jobs whose rows
retention deletes.`), func(ctx context.Context, env *operation.Env, in deadActInput) (*DeadReport, error) {
			return discard.run(ctx, env, in, DeadOptions{})
		}, func(p *text.Doc, _ deadActInput, out *DeadReport) { discard.text(p, out) }),
	}
}

func (a lettersAct) operation(short, long string) operation.Operation {
	name := "dead-letters " + a.name
	return operation.Operation{
		Name: name, Short: short, Role: operation.Operator, Changes: true, Deadline: -1, Usage: "{FILTER... | --all}",
		Events: "the dead letters' events",
		Long: long + `

It goes in bounded steps. Interrupted, it leaves what it did done; repeating it goes on.
Messages that die after it has begun are left. --dry-run only counts, by job, medium and
reason. With the token of that plan (--plan) messages that died since are left, and another
number is refused.

` + deadHelp(),
		Example: "  belfry " + name + ` --job 17 --dead-reason exhausted --reason "provider was down"` +
			"\n  belfry " + name + " --medium sms --since 2h --dry-run" +
			"\n  belfry " + name + " --all",
	}
}

// run counts or acts. It excludes letters that died after it has read the clock.
func (a lettersAct) run(ctx context.Context, env *operation.Env, in deadActInput, o DeadOptions) (*DeadReport, error) {
	if in.All == in.given() {
		return nil, operation.Invalid("",
			"dead-letters %s takes either a filter (--job, --medium, --dead-reason, --since, --until, --channel, --external-id, "+
				"--category, --sender, --error) or --all", a.name)
	}
	filter, err := in.find(ctx, env)
	if err != nil {
		return nil, err
	}
	asOf, err := in.Moment(ctx, env)
	if err != nil {
		return nil, err
	}
	words := in.words(filter)
	if filter.Until == nil || filter.Until.After(asOf) {
		filter.Until = &asOf
	}
	if in.Counts() {
		plan, err := a.plan(ctx, env, filter, words, asOf)
		if err != nil {
			return nil, err
		}
		if in.DryRun {
			return plan, nil
		}
		if err := in.Agrees(plan.Plan, "message", a.done); err != nil {
			return nil, err
		}
	}
	o.Act = in.By(env)
	o.Observe = func(d DeadDone) {
		env.Progressf("%s so far: %s", a.done, text.Counted(d.Changed, "message"))
	}
	done, err := a.do(ctx, env.DB, filter, o)
	if err = deadProblem(err); err != nil && done == (DeadDone{}) {
		return nil, err
	}
	return &DeadReport{DeadDone: done}, err
}

// plan returns the effect of the act. A letter that dies again is younger, so that the act changes
// exactly the counted letters.
func (a lettersAct) plan(ctx context.Context, env *operation.Env, filter DeadFilter, words string, asOf time.Time) (*DeadReport, error) {
	counts, err := DeadCounts(ctx, env.DB, filter)
	if err != nil {
		return nil, deadProblem(err)
	}
	p := &operation.Plan{Selection: words, AsOf: asOf, Outcomes: []operation.Outcome{}}
	report := &DeadReport{Plan: p}
	for _, c := range counts {
		if a.recalled {
			c.Held, c.Recalled = 0, 0
		}
		report.Looked += c.Letters
		report.Retention += c.Retention
		report.Recalled += c.Recalled
		report.Held += c.Held
		changed := c.Letters - c.Retention - c.Recalled
		report.Changed += changed
		of := fmt.Sprintf("job %d", c.JobID)
		switch {
		case c.JobID == 0:
			of = "activities"
		case c.JobID < 0:
			of = fmt.Sprintf("activity %d", c.JobID)
		}
		of += fmt.Sprintf(": %s, %s", c.Medium, c.Reason)
		for _, o := range []operation.Outcome{
			{Of: of, Outcome: a.done, Count: changed - c.Held},
			{Of: of, Outcome: a.done, Count: c.Held, Detail: fmt.Sprintf("held until job %d is resumed", c.JobID)},
			{Of: of, Outcome: "left", Count: c.Recalled, Detail: "the job was recalled"},
			{Of: of, Outcome: "left", Count: c.Retention, Detail: "retention deletes them"},
		} {
			if o.Count > 0 {
				p.Outcomes = append(p.Outcomes, o)
			}
		}
	}
	p.Count = report.Changed
	return report, nil
}

// words describes the filter.
func (in deadActInput) words(f DeadFilter) string {
	text := "dead letters"
	if in.All {
		text = "all dead letters"
	}
	if f.JobID > 0 {
		text += fmt.Sprintf(" of job %d", f.JobID)
	} else if f.JobID < 0 {
		text += fmt.Sprintf(" of activity %d", f.JobID)
	}
	if f.Medium != "" {
		text += " at " + f.Medium
	}
	if f.Category != "" {
		text += " of category " + f.Category
	}
	if f.Sender != "" {
		text += " by sender " + f.Sender
	}
	if f.Error != "" {
		text += " with error " + f.Error
	}
	if f.ChannelID != nil {
		text += fmt.Sprintf(" to channel %d", *f.ChannelID)
	}
	if f.Reason != "" {
		text += " for " + string(f.Reason)
	}
	if f.Since != nil {
		text += " since " + f.Since.Format(time.RFC3339)
	}
	if f.Until != nil {
		text += " until " + f.Until.Format(time.RFC3339)
	}
	return text
}

func (a lettersAct) text(p *text.Doc, out *DeadReport) {
	if out.Plan != nil {
		out.Plan.Text(p, "message", a.done)
		return
	}
	p.Line("%s", deadLine(a.done, out.DeadDone))
}

// deadLine summarizes the effect of an act.
func deadLine(what string, d DeadDone) string {
	line := what + ": " + text.Counted(d.Changed, "message")
	if d.Held > 0 {
		line += fmt.Sprintf(", %s of them held until their job is resumed", text.Grouped(d.Held))
	}
	var left []string
	if d.Recalled > 0 {
		left = append(left, text.Grouped(d.Recalled)+" of jobs that were recalled")
	}
	if d.Retention > 0 {
		left = append(left, text.Grouped(d.Retention)+" that retention deletes")
	}
	if len(left) > 0 {
		line += "; left: " + strings.Join(left, ", ")
	}
	return line
}
