package operation

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// Timeline describes the events of one kind of subject in belfry.events.
type Timeline struct {
	Noun, Subject  string
	Label          string // of the argument that selects one object
	Short, Example string
	None           string // the text of an empty timeline
	Values         string // the tag values of the argument
}

// timelineInput is the input of every timeline. The timeline provides the argument's label.
type timelineInput struct {
	Name   string `arg:"[NAME]"`
	Limit  int    `flag:"limit" label:"N" help:"at most N events, 1 to 1000 (default 100)" min:"1" max:"1000" default:"100"`
	Before int64  `flag:"before" label:"ID" help:"only events before this one, for the next page" min:"1"`
}

// Events returns the operation that lists a timeline, newest first.
func (t Timeline) Events() Operation {
	o := Define(Operation{
		Name: t.Noun + " events", Short: t.Short, Example: t.Example, Role: Viewer,
	}, func(ctx context.Context, env *Env, in timelineInput) (List[job.ControlEvent], error) {
		list, err := env.Jobs.ControlEvents(ctx, t.Subject, in.Name, in.Before, in.Limit+1)
		if err == nil {
			err = env.HideInside(ctx, list)
		}
		return PageOf(list, in.Limit, func(last job.ControlEvent) string { return text.Int(last.ID) }), err
	}, t.text)
	o.params[0].Label, o.params[0].Name, o.params[0].values = t.Label, strings.ToLower(t.Label), t.Values
	return o
}

func (t Timeline) text(p *text.Doc, in timelineInput, out List[job.ControlEvent]) {
	switch {
	case len(out.Items) == 0 && in.Before != 0:
		p.Line("no more events")
		return
	case len(out.Items) == 0 && in.Name != "":
		p.Line("no events of %s", text.OneLine(in.Name, 70))
		return
	case len(out.Items) == 0:
		p.Line("%s", t.None)
		return
	}
	table := text.NewTable("AT", t.Label, "EVENT", "BY", "CHANGE", "REASON")
	for _, e := range out.Items {
		table.Add(e.At, e.Name, e.Kind, e.Actor, text.OneLine(Changes(e.Detail), 200), text.OneLine(e.Reason, 200))
	}
	p.Table(table)
	More(p, "before", out.Next)
}

// More writes how to show the next page, if there is one.
func More(p *text.Doc, flag, next string) {
	if next != "" {
		p.Note("there are more: --%s %s shows the next page", flag, text.ShellWord(next))
	}
}

// NoMatches writes the text of a page on which no entry matches the filters.
func NoMatches(p *text.Doc, next string) {
	p.Line("no entry of this page matches the filters")
	More(p, "before", next)
}

// CompactJSON returns JSON without blanks.
func CompactJSON(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return string(raw)
	}
	return b.String()
}

// Changes describes an event by the before and after in its detail. A value that is missing on one side is
// "unset". It omits the fields of a pause, which the event itself shows. An event with a number of messages
// or members is described by that number, and an event of one activity by its id.
func Changes(detail json.RawMessage) string {
	var d struct {
		Before, After  map[string]json.RawMessage
		Messages       *int64
		Added, Removed *int64
		Activity       *int64
		TestOf         *int64 `json:"test_of"`
	}
	switch err := json.Unmarshal(detail, &d); {
	case err == nil && d.Messages != nil:
		return text.Counted(*d.Messages, "message")
	case err == nil && d.Added != nil && d.Removed != nil:
		return text.Counted(*d.Added, "member") + " added, " + text.Grouped(*d.Removed) + " removed"
	case err == nil && d.Activity != nil && d.TestOf != nil:
		return fmt.Sprintf("activity %d, a test of job %d", *d.Activity, *d.TestOf)
	case err == nil && d.Activity != nil:
		return fmt.Sprintf("activity %d", *d.Activity)
	case err != nil || d.Before == nil || d.After == nil:
		return "" // the object was created or removed, or events of this kind have no before and after
	}
	value := func(state map[string]json.RawMessage, key string) string {
		raw, ok := state[key]
		var text string
		var list []string
		switch {
		case !ok || string(raw) == "null":
			return "unset"
		case json.Unmarshal(raw, &text) == nil && text != "":
			return text
		case json.Unmarshal(raw, &list) == nil && len(list) > 0:
			return strings.Join(list, ",")
		default:
			return CompactJSON(raw)
		}
	}
	keys := slices.AppendSeq(slices.Collect(maps.Keys(d.Before)), maps.Keys(d.After))
	slices.Sort(keys)
	var parts []string
	for _, key := range slices.Compact(keys) {
		if was, is := value(d.Before, key),
			value(d.After, key); was != is && !slices.Contains([]string{"paused_at", "paused_by", "pause_reason"}, key) {
			parts = append(parts, key+" "+was+" → "+is)
		}
	}
	return strings.Join(parts, ", ")
}
