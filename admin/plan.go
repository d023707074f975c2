package admin

import (
	"context"
	"slices"
	"time"

	"github.com/belfryhq/belfry/internal/printer"
)

// Plan is what an act would do, as of a moment. Nothing is done.
type Plan struct {
	// Selection says in words what the act is about: "jobs 17, 18", "dead letters by sms".
	Selection string `json:"selection"`
	// AsOf is when it was looked, by the database's clock: what is younger is not counted.
	AsOf time.Time `json:"as_of"`
	// Count is what --expect compares.
	Count int64 `json:"count"`
	// Version is that of the one thing that it is about, where the act has to hold to it.
	Version *int64 `json:"version,omitempty"`
	// Outcomes are what becomes of what: each with how many, and what to know about it.
	Outcomes []Outcome `json:"outcomes"`
}

// Idle reports whether the act has nothing to do: neither anything that is counted, nor anything
// beside it, as the ids in a carrier where no message is QUEUED.
func (p *Plan) Idle() bool {
	return p.Count == 0 && !slices.ContainsFunc(p.Outcomes, func(o Outcome) bool { return o.Outcome != "left" && (o.Count > 0 || o.Unknown) })
}

// Outcome is a part of a plan.
type Outcome struct {
	Of      string `json:"of"`      // "job 17 (push)", "messages"
	Outcome string `json:"outcome"` // "aborted", "erased", "left"
	Count   int64  `json:"count"`
	AtMost  int64  `json:"at_most,omitempty"` // what Count may be less than if it is as low; 0: it is what it is
	Unknown bool   `json:"unknown,omitempty"` // how many cannot be told yet
	Detail  string `json:"detail,omitempty"`  // such as the overlaps, as text
}

// planChoice are the parameters of an act that changes more than one thing.
type planChoice struct {
	DryRun bool   `flag:"dry-run" help:"only say what would be done"`
	Expect *int64 `flag:"expect" label:"N" help:"change nothing unless exactly so many would be changed, as --dry-run counts them" min:"0"`
}

// datedChoice is planChoice where what is younger than the plan can be left.
type datedChoice struct {
	planChoice
	AsOf *past `flag:"as-of" label:"TIME" help:"leave what is younger than this time, which --dry-run says"`
}

func (c planChoice) plans() bool { return c.DryRun }

// Plans reports whether an input asks only what an act would do: nothing is changed, and nobody is
// interested once who asks has gone.
func Plans(in any) bool {
	plan, is := in.(interface{ plans() bool })
	return is && plan.plans()
}

// looks reports whether a plan has to be made first.
func (c planChoice) looks() bool { return c.DryRun || c.Expect != nil }

// moment is what things may not be younger than: now, by the database's clock, unless an
// earlier time is given.
func (c datedChoice) moment(ctx context.Context, env *Env) (time.Time, error) {
	now, err := env.Jobs.Now(ctx)
	if err != nil || c.AsOf == nil {
		return now, err
	}
	given := *c.AsOf.at(env)
	if given.After(now) {
		return given, invalid("as_of", "%s is still to come; allowed values: times up to now, as --dry-run says one", given.Format(time.RFC3339Nano))
	}
	return given, nil
}

// agrees refuses another count than the one that was expected.
func (c planChoice) agrees(p *Plan, noun, done string) error {
	if c.Expect == nil || p.Count == *c.Expect {
		return nil
	}
	return unexpected(p.Count, *c.Expect, noun, done, p.AsOf)
}

// unexpected is the error of a count that was not expected.
func unexpected(would, expected int64, noun, done string, asOf time.Time) error {
	return invalid("expect", "%s would be %s as of %s, not %s; nothing was changed", printer.Counted(would, noun), done, asOf.Format(time.RFC3339Nano), printer.Grouped(expected))
}

// text tells a plan.
func (p *Plan) text(page *printer.Page, noun, done string) {
	p.told(page, noun, done)
	p.note(page)
}

func (p *Plan) note(page *printer.Page) {
	page.Note("as of %s; --expect %d does this and refuses another count", p.AsOf.Format(time.RFC3339Nano), p.Count)
}

// datedText tells a plan of a datedChoice.
func (p *Plan) datedText(page *printer.Page, noun, done string) {
	p.told(page, noun, done)
	page.Note("--as-of %s --expect %d does this, leaves what is younger and refuses another count", p.AsOf.Format(time.RFC3339Nano), p.Count)
}

func (p *Plan) told(page *printer.Page, noun, done string) {
	t := printer.NewTable("OF", "OUTCOME", ">COUNT", "DETAIL")
	for _, o := range p.Outcomes {
		count := atMostText(o.Count, o.AtMost)
		if o.Unknown {
			count = "?"
		}
		t.Add(o.Of, o.Outcome, count, printer.OneLine(o.Detail, 300))
	}
	if !t.Empty() {
		page.Table(t)
	}
	page.Printf("%s: would be %s: %s\n", p.Selection, done, printer.Counted(p.Count, noun))
}
