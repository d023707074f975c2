package operation

import (
	"errors"
	"slices"
	"time"

	"github.com/belfryhq/belfry/internal/text"
)

// Plan is the effect of an act as of a time. Nothing is changed.
type Plan struct {
	// Selection describes the objects of the act: "jobs 17, 18", "dead letters by sms".
	Selection string `json:"selection"`
	// AsOf is the time of the plan, by the database's clock. Newer objects are not counted.
	AsOf time.Time `json:"as_of"`
	// Count is the number of objects that the act would change.
	Count int64 `json:"count"`
	// Version is the version of the one object of the act, if the act requires it.
	Version *int64 `json:"version,omitempty"`
	// Outcomes lists each effect with its count.
	Outcomes []Outcome `json:"outcomes"`
	// Token executes exactly this plan, as the parameter plan of the same request.
	Token string `json:"token"`
	// Content is a hash of the file that the request streams, in hexadecimal; empty without one.
	Content string `json:"content,omitempty"`
}

// Idle reports whether the act would change nothing, including objects that are not counted, such as ids in a
// carrier of messages that are not QUEUED.
func (p *Plan) Idle() bool {
	return p.Count == 0 && !slices.ContainsFunc(p.Outcomes, func(o Outcome) bool { return o.Outcome != "left" && (o.Count > 0 || o.Unknown) })
}

// Outcome is one effect of a plan.
type Outcome struct {
	Of      string `json:"of"`      // "job 17 (push)", "messages"
	Outcome string `json:"outcome"` // "aborted", "erased", "left"
	Count   int64  `json:"count"`
	AtMost  int64  `json:"at_most,omitempty" doc:"if present, the count may be any number from 0 to it, because viewers and authors see no small counts; absent: count is exact"`
	Unknown bool   `json:"unknown,omitempty"` // the count is not known yet
	Detail  string `json:"detail,omitempty"`  // such as the overlaps
}

// Text renders a plan.
func (p *Plan) Text(page *text.Doc, noun, done string) {
	p.Table(page, noun, done)
	p.Note(page)
}

// Note writes how to execute the plan.
func (p *Plan) Note(page *text.Doc) {
	page.Note("as of %s; --plan %s does exactly this", p.AsOf.Format(time.RFC3339Nano), p.Token)
}

// Table writes the outcomes of a plan.
func (p *Plan) Table(page *text.Doc, noun, done string) {
	t := text.NewTable("OF", "OUTCOME", ">COUNT", "DETAIL")
	for _, o := range p.Outcomes {
		count := AtMostText(o.Count, o.AtMost)
		if o.Unknown {
			count = "?"
		}
		t.Add(o.Of, text.Status(o.Outcome), count, text.OneLine(o.Detail, 300))
	}
	if !t.Empty() {
		page.Table(t)
	}
	page.Line("%s: would be %s: %s", p.Selection, done, text.Counted(p.Count, noun))
}

// ErrPlanned prevents that a plan is enqueued.
var ErrPlanned = errors.New("the request was for a plan only")

// NamedJobs is the number of jobs that a plan lists separately.
const NamedJobs = 20
