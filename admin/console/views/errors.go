package views

import (
	"cmp"
	"context"
	"html/template"
	"maps"
	"net/url"
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/console/draw"
	"github.com/belfryhq/belfry/admin/console/parts"
	"github.com/belfryhq/belfry/admin/console/words"
	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/outbox"
)

// Errors are the errors of messages that failed.
type Errors struct {
	Hidden  bool         // the caller may not read them
	Periods []parts.Link // of the time of the failure
	Since   bool         // a period is selected
	List    []ErrorGroup
	Plan    *LettersPlan // of an act on a group; nil without one
	Done    *Outcome
	Note    string
	All     string // the page of the operation
	Fault   template.HTML
}

// ErrorGroup is an error with its messages.
type ErrorGroup struct {
	Text, About, Count, Jobs string
	First, Last              template.HTML // First is empty if it is Last
	Share                    string        // of the most frequent error, for a bar
	Letters, Example         string        // addresses
	Actions                  []parts.Link
}

// LettersPlan is the plan of an act on failed messages, with its form.
type LettersPlan struct {
	*Form

	Title, Button, Cancel string
	Error, About          string // of the group
	Effects               []string
	Danger, Idle          bool
	Fault                 template.HTML
}

// PlanParam is the parameter of the page with the verb of the act on failed messages whose plan it shows. A plan counts
// all selected messages.
const PlanParam = "_plan"

const (
	lettersPlace = "failed messages"
	// errorsTimeout limits the query of the errors.
	errorsTimeout = 5 * time.Second
)

// FrequentErrors returns the three most frequent errors since a time ago, or none if the caller may not read them.
func FrequentErrors(ctx context.Context, r Request, since string) (groups []ErrorGroup, err error) {
	if r.Link(ErrorsOperation, nil) == "" {
		return nil, nil
	}
	list, err := readErrors(ctx, r, url.Values{"since": {since}, "limit": {"3"}})
	for _, e := range list.Errors {
		groups = append(groups, newErrorGroup(r, e, list))
	}
	return groups, err
}

func readErrors(ctx context.Context, r Request, filter url.Values) (delivery.DeadErrorList, error) {
	out, err := r.Query(ctx, ErrorsOperation, filter)
	list, _ := out.(delivery.DeadErrorList)
	return list, err
}

// newErrors reads the errors. Their query is limited, and the page is shown without them if it fails.
func newErrors(ctx context.Context, r Request) (g Errors) {
	since := r.Values.Get("since")
	filter := url.Values{"limit": {"20"}}
	if g.Since = since != ""; g.Since {
		filter.Set("since", since)
	}
	if g.All = r.Link(ErrorsOperation, parts.Without(filter, "limit")); g.All == "" {
		return Errors{Hidden: true}
	}
	for _, p := range []struct{ since, name string }{{"", "Any time"}, {"1h", "Last hour"}, {"24h", "Last 24 hours"}, {"7d", "Last 7 days"}} {
		at := url.Values{}
		if p.since != "" {
			at.Set("since", p.since)
		}
		g.Periods = append(g.Periods, parts.Link{Name: p.name, Link: r.Link(SendersOperation, at) + "#errors", Here: p.since == since})
	}
	g.Done = r.Outcome.At(lettersPlace)
	brief, cancel := context.WithTimeout(ctx, errorsTimeout)
	defer cancel()
	list, err := readErrors(brief, r, filter)
	if err != nil {
		g.Fault = r.fault(err)
		return g
	}
	for _, e := range list.Errors {
		g.List = append(g.List, newErrorGroup(r, e, list))
	}
	if left := list.Kinds - int64(len(list.Errors)); left > 0 {
		g.Note = text.Counted(left, "more error") + " with fewer messages. "
	}
	if !list.Complete {
		g.Note += "Counted among the newest " + text.Counted(list.Looked, "failed message") + "; older ones may add to these."
	}
	g.Plan = newLettersPlan(ctx, r)
	for i, e := range list.Errors {
		if g.Plan != nil && e.ID == r.Values.Get("error") {
			g.Plan.Error, g.Plan.About = g.List[i].Text, g.List[i].About
		}
	}
	return g
}

// newErrorGroup returns an error with the acts on its messages.
func newErrorGroup(r Request, e delivery.DeadError, list delivery.DeadErrorList) ErrorGroup {
	reason := outbox.WhyText(outbox.ReasonDead, e.Reason)
	g := ErrorGroup{Text: text.OneLine(e.Error, 200), Count: text.Counted(e.Letters, "message"),
		Last: words.When(r.Zone, e.LastAt), Share: draw.Portion(float64(e.Letters), float64(list.Errors[0].Letters))}
	if e.LastAt.After(e.FirstAt) {
		g.First = words.When(r.Zone, e.FirstAt)
	}
	about := []string{cmp.Or(text.OneLine(e.Sender, 80), e.Medium)}
	if e.Code != "" {
		about[0] = strings.TrimPrefix(about[0]+", code "+text.OneLine(e.Code, 40), ", ")
	}
	if g.Text == "" {
		g.Text = words.Sentence(reason)
	} else {
		about = append(about, reason)
	}
	g.About = strings.TrimPrefix(strings.Join(about, " · "), " · ")
	if e.Jobs > 0 {
		g.Jobs = "in " + text.Counted(e.Jobs, "job")
	}
	of := url.Values{"dead_reason": {string(e.Reason)}, "error": {e.ID}}
	if e.Medium != "" {
		of.Set("medium", e.Medium)
	}
	if s := list.Filter.Since; s != nil {
		of.Set("since", s.UTC().Format(time.RFC3339Nano))
	}
	g.Letters = r.Link(LettersOperation, of)
	g.Example = r.Link("dead-letters show", url.Values{"job": {text.Int(e.ExampleJobID)}, "channel": {text.Int(e.ExampleChannelID)}})
	for _, act := range []struct{ verb, name string }{{"redrive", "Send again…"}, {"discard", "Discard…"}} {
		if r.Link("dead-letters "+act.verb, nil) != "" {
			with := maps.Clone(of)
			with.Set(PlanParam, act.verb)
			g.Actions = append(g.Actions, parts.Link{Name: act.name, Link: r.Link(SendersOperation, with) + "#plan"})
		}
	}
	return g
}

// newLettersPlan returns the plan that the address requests: the effect of the act, and its form, bound to the plan.
func newLettersPlan(ctx context.Context, r Request) *LettersPlan {
	verb := r.Values.Get(PlanParam)
	name := "dead-letters " + verb
	if verb != "redrive" && verb != "discard" || r.Link(name, nil) == "" {
		return nil
	}
	filter := make(url.Values)
	for _, one := range []string{"error", "dead_reason", "medium", "since"} {
		if v := r.Values.Get(one); v != "" {
			filter.Set(one, v)
		}
	}
	p := &LettersPlan{Cancel: r.Link(SendersOperation, nil) + "#errors", Danger: verb == "discard"}
	asked := maps.Clone(filter)
	asked.Set("dry_run", "on")
	out, err := r.Query(ctx, name, asked)
	report, _ := out.(*delivery.DeadReport)
	if err != nil || report == nil || report.Plan == nil {
		p.Fault = r.fault(err)
		return p
	}
	filter.Set("plan", report.Plan.Token)
	p.Form = r.Form(name, lettersPlace, filter)
	p.back(r.Link(SendersOperation, nil)) // without the plan
	p.Action += "#errors"
	p.describe(verb, report.DeadDone)
	return p
}

// describe sets the words of a plan.
func (p *LettersPlan) describe(verb string, d delivery.DeadDone) {
	messages := text.Counted(d.Changed, "message")
	p.Idle = d.Changed == 0
	if verb == "redrive" {
		p.Title, p.Button = "Send "+messages+" again?", "Send "+messages+" again"
		if now := d.Changed - d.Held; now > 0 {
			p.Effects = append(p.Effects, "Due at once, from the first medium of the route: "+text.Counted(now, "message")+".")
		}
		if d.Held > 0 {
			p.Effects = append(p.Effects, "Once their stopped job is resumed: "+text.Counted(d.Held, "message")+".")
		}
	} else {
		p.Title, p.Button = "Discard "+messages+"?", "Discard "+messages
		p.Effects = append(p.Effects, "Discarded messages are cancelled permanently and cannot be sent again.")
	}
	if d.Recalled > 0 {
		p.Effects = append(p.Effects, "Left, because their job was recalled: "+text.Counted(d.Recalled, "message")+".")
	}
	if d.Retention > 0 {
		p.Effects = append(p.Effects, "Left, because their rows are being deleted: "+text.Counted(d.Retention, "message")+".")
	}
}
