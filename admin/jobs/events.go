package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/keys"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// subject is the kind of object of an event.
type subject string

// UnmarshalText reads one of Choices.
func (s *subject) UnmarshalText(text []byte) error {
	names := s.Choices()
	if !slices.Contains(names, string(text)) {
		return &operation.NotAllowedError{Allowed: strings.Join(names, ", ") + keys.Hint(string(text), names)}
	}
	*s = subject(text)
	return nil
}

// Choices returns job, and the subjects that the CHECK of belfry.events allows.
func (subject) Choices() []string {
	return []string{"job", "lane", "schedule", "sender", "category", "dead_letter", "channel", "limits", "installation", "transport",
		"token", "user", "segment", "attachment", "retention"}
}

// eventPosition is a position in the events, JOB.EVENT: the ids of the last event of a job and of the last
// other event.
type eventPosition struct{ job.ActPosition }

// UnmarshalText reads a position.
func (p *eventPosition) UnmarshalText(text []byte) error {
	first, second, both := strings.Cut(string(text), ".")
	ofJobs, err1 := strconv.ParseInt(first, 10, 64)
	other, err2 := strconv.ParseInt(second, 10, 64)
	if !both || err1 != nil || err2 != nil || min(ofJobs, other) < -1 {
		return &operation.NotAllowedError{Allowed: "a position from the previous page or from status, such as 1700.42"}
	}
	p.ActPosition = job.ActPosition{Job: ofJobs, Event: other}
	return nil
}

// MarshalText writes a position.
func (p eventPosition) MarshalText() ([]byte, error) {
	return fmt.Appendf(nil, "%d.%d", p.Job, p.Event), nil
}

// eventFilter is the input of `events list`.
type eventFilter struct {
	Of     subject         `flag:"of" label:"SUBJECT" help:"only events of this subject: job, lane, schedule, sender, category, dead_letter, channel, limits, installation (halts and adoptions), transport, token, user, segment, attachment (the source of belfry.channels), retention"`
	Actor  string          `flag:"by" label:"NAME" help:"only events by this actor"`
	Kind   string          `flag:"kind" label:"KIND" help:"only events of this kind, such as paused or aborted"`
	Since  *operation.Past `flag:"since" label:"TIME" help:"only events at this time or later"`
	Limit  int             `flag:"limit" label:"N" help:"maximum number of events, 1 to 1000 (default 100)" min:"1" max:"1000" default:"100"`
	Before *eventPosition  `flag:"before" label:"POSITION" help:"only events before this position, for the next page"`
}

func eventOperations() []operation.Operation {
	return []operation.Operation{
		operation.Define(operation.Operation{
			Name: "events list", Short: "List the actions of operators and programs, newest first", Role: operation.Viewer,
			Long: `List the actions of operators, programs and belfry: enqueued, stopped, corrected and recalled
jobs, halts, paused lanes and senders, changed schedules, redrives, single messages, tokens,
sign-ins. For the events of runs see ` + "`belfry jobs events ID`" + `, for firings
` + "`belfry schedules events`" + `. A page examines a few thousand events, so that it may be short with
a filter that few events match.`,
			Example: "  belfry events list\n  belfry events list --of installation\n  belfry events list --by ann --since 2h --json",
		}, listEvents, eventsText),
	}
}

// watchedEvent returns an event with its time, its changes and its reason.
func watchedEvent(e job.ControlEvent) text.Line {
	more := ""
	if change := text.OneLine(ChangeOf(e), 200); change != "" && !isHalt(e) {
		more = "; " + change
	}
	if reason := text.OneLine(e.Reason, 200); reason != "" {
		more += " (" + reason + ")"
	}
	return text.Sprintf("%s %s%s", e.At, EventLine(e), more)
}

func listEvents(ctx context.Context, env *operation.Env, in eventFilter) (operation.List[job.ControlEvent], error) {
	f := job.ActFilter{Subject: string(in.Of), Actor: in.Actor, Kind: in.Kind, Since: in.Since.Before(env), Limit: in.Limit}
	if in.Before != nil {
		f.Before = in.Before.ActPosition
	}
	list, next, err := env.Jobs.Acts(ctx, f)
	if err == nil {
		err = env.HideInside(ctx, list)
	}
	page := operation.List[job.ControlEvent]{Items: list}
	if next != (job.ActPosition{}) {
		page.Next = fmt.Sprintf("%d.%d", next.Job, next.Event)
	}
	return page, err
}

func eventsText(d *text.Doc, in eventFilter, out operation.List[job.ControlEvent]) {
	switch {
	case len(out.Items) > 0:
		t := text.NewTable("AT", "BY", "SUBJECT", "NAME", "EVENT", "CHANGE", "REASON")
		for _, e := range out.Items {
			t.Add(e.At, e.Actor, strings.ReplaceAll(e.Subject, "_", " "), text.Ref(e.Subject, e.Name), e.Kind,
				text.OneLine(ChangeOf(e), 200), text.OneLine(e.Reason, 200))
		}
		d.Table(t)
	case out.Next != "":
		d.Line("none of the last entries matches the filter")
	case in.Before != nil:
		d.Line("no more events")
	case in.Of != "" || in.Actor != "" || in.Kind != "" || in.Since != nil:
		d.Line("no event matches the filter")
	default:
		d.Line("no events yet")
	}
	operation.More(d, "before", out.Next)
}

// ChangeOf returns the changes of an event's object.
func ChangeOf(e job.ControlEvent) string {
	if e.Subject != job.SubjectJob {
		return operation.Changes(e.Detail)
	}
	if e.Kind != job.EventChanged {
		return ""
	}
	var detail struct{ Before, After map[string]json.RawMessage }
	if json.Unmarshal(e.Detail, &detail) != nil {
		return ""
	}
	return corrections(detail.Before, detail.After)
}

// isHalt reports whether an event is the begin or the end of a halt.
func isHalt(e job.ControlEvent) bool {
	return e.Subject == "installation" && (e.Kind == "halted" || e.Kind == "lifted")
}

// EventLine describes an event in a few words: "ann: lane news paused".
func EventLine(e job.ControlEvent) text.Line {
	if isHalt(e) {
		return text.Sprintf("%s: everything %s", e.Actor, map[string]string{"halted": "is halted", "lifted": "continues"}[e.Kind])
	}
	subject := strings.ReplaceAll(e.Subject, "_", " ")
	if e.Name != "" {
		return text.Sprintf("%s: %s %s %s", e.Actor, subject, text.Ref(e.Subject, e.Name), strings.ReplaceAll(e.Kind, "_", " "))
	}
	return text.Sprintf("%s: %s %s", e.Actor, subject, strings.ReplaceAll(e.Kind, "_", " "))
}
