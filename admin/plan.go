package admin

import (
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
	// Outcomes are what becomes of what: each with how many, and what to know about it.
	Outcomes []Outcome `json:"outcomes"`
}

// Outcome is a part of a plan.
type Outcome struct {
	Of      string `json:"of"`      // "job 17 (push)", "messages"
	Outcome string `json:"outcome"` // "aborted", "erased", "left"
	Count   int64  `json:"count"`
	Detail  string `json:"detail,omitempty"` // forecast and collisions, in words
}

// planChoice are the parameters of an act that changes more than one thing.
type planChoice struct {
	DryRun bool   `flag:"dry-run" help:"only say what would be done"`
	Expect *int64 `flag:"expect" label:"N" help:"change nothing unless exactly so many would be changed, as --dry-run counts them" min:"0"`
}

// looks reports whether a plan has to be made first.
func (c planChoice) looks() bool { return c.DryRun || c.Expect != nil }

// agrees refuses another count than the one that was expected.
func (c planChoice) agrees(p *Plan, noun, done string) error {
	if c.Expect == nil || p.Count == *c.Expect {
		return nil
	}
	return invalid("expect", "%s would be %s as of %s, not %s; nothing was changed", printer.Counted(p.Count, noun), done, p.AsOf.Format(time.RFC3339Nano), printer.Grouped(*c.Expect))
}

// text tells a plan.
func (p *Plan) text(page *printer.Page, noun, done string) {
	t := printer.NewTable("OF", "OUTCOME", ">COUNT", "DETAIL")
	for _, o := range p.Outcomes {
		t.Add(o.Of, o.Outcome, printer.Grouped(o.Count), printer.OneLine(o.Detail, 200))
	}
	if !t.Empty() {
		page.Table(t)
	}
	page.Printf("%s: would be %s: %s\n", p.Selection, done, printer.Counted(p.Count, noun))
	page.Note("as of %s; --expect %d does this and refuses another count", p.AsOf.Format(time.RFC3339Nano), p.Count)
}
