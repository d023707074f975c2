package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/keys"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// subject is what an act was on.
type subject string

// UnmarshalText reads one of the subjects that there are.
func (s *subject) UnmarshalText(text []byte) error {
	names := s.Choices()
	if !slices.Contains(names, string(text)) {
		return &operation.NotAllowedError{Allowed: strings.Join(names, ", ") + keys.Hint(string(text), names)}
	}
	*s = subject(text)
	return nil
}

// Choices are job, and what the check of belfry.events allows.
func (subject) Choices() []string {
	return []string{"job", "lane", "schedule", "sender", "category", "dead_letter", "channel", "limits", "installation", "transport", "token", "user", "segment", "attachment", "retention"}
}

// actPosition is where a page of acts begins, as JOB.EVENT, the ids that come next below.
type actPosition struct{ job.ActPosition }

// UnmarshalText reads what a page before has said.
func (a *actPosition) UnmarshalText(text []byte) error {
	first, second, both := strings.Cut(string(text), ".")
	ofJobs, err1 := strconv.ParseInt(first, 10, 64)
	other, err2 := strconv.ParseInt(second, 10, 64)
	if !both || err1 != nil || err2 != nil || min(ofJobs, other) < -1 {
		return &operation.NotAllowedError{Allowed: "a place, as the page before or status has it: 1700.42"}
	}
	a.ActPosition = job.ActPosition{Job: ofJobs, Event: other}
	return nil
}

// MarshalText writes it.
func (a actPosition) MarshalText() ([]byte, error) {
	return fmt.Appendf(nil, "%d.%d", a.Job, a.Event), nil
}

// eventFilter is the input of `events list`.
type eventFilter struct {
	Of     subject         `flag:"of" label:"WHAT" help:"only acts on jobs, lanes, …: job, lane, schedule, sender, category, dead_letter, channel, limits, installation (halts and adoptions), transport, token, user, segment, attachment (what belfry.channels follows), retention"`
	Actor  string          `flag:"by" label:"NAME" help:"only what this actor did"`
	Since  *operation.Past `flag:"since" label:"TIME" help:"only what was done then or later"`
	Limit  int             `flag:"limit" label:"N" help:"at most so many, 1 to 1000 (default 100)" min:"1" max:"1000" default:"100"`
	Before *actPosition    `flag:"before" label:"PLACE" help:"only acts before this place, for the next page"`
}

func eventOperations() []operation.Operation {
	return []operation.Operation{
		operation.Define(operation.Operation{
			Name: "events list", Short: "Show who did what, to anything, newest first", Role: operation.Viewer,
			Long: `Show the acts of operators, programs and belfry itself: who enqueued, stopped, corrected
or took back which job, halted everything, paused a lane or a sender, changed a schedule,
redrove dead letters, sent somebody a message, made a token, signed in. What runs do by themselves is in
` + "`belfry jobs events ID`" + `, what a schedule does by the clock in ` + "`belfry schedules events`" + `.
A page looks at the last few thousand entries, so that a filter that few pass shows less
than it may; the next page goes on.`,
			Example: "  belfry events list\n  belfry events list --of installation\n  belfry events list --by ann --since 2h --json",
		}, listEvents, eventsText),
		operation.DefineStream(operation.Operation{
			Name: "events watch", Short: "Follow what is done, by whom, as it is done", Role: operation.Viewer, Shared: true,
			Long: `Follow the acts that ` + "`belfry events list`" + ` shows, from now on, each once and the oldest first.
With --all also what runs and schedules do by themselves: a job is claimed, throttled,
finished, a schedule fires. It is for looking on: of thousands in a second some are left
out, and what is committed long after others were; the lists have everything. A signal
ends it, with exit code 0.`,
			Example: "  belfry events watch\n  belfry events watch --of job --all\n  belfry events watch --by ann --json | jq .kind",
		}, watchEvents, func(eventWatch) func(*text.Doc, []job.ControlEvent) { return watchedEventsText },
			func(*text.Doc, eventWatch, operation.None) {}),
	}
}

// eventWatch is the input of `events watch`.
type eventWatch struct {
	Of       subject       `flag:"of" label:"WHAT" help:"only what concerns jobs, lanes, …, as events list has it"`
	Actor    string        `flag:"by" label:"NAME" help:"only what this actor does"`
	All      bool          `flag:"all" help:"also what runs and schedules do by themselves"`
	After    *actPosition  `flag:"after" label:"PLACE" help:"also what was done after this place, as status has it, if it is not long ago"`
	Interval watchInterval `flag:"interval" label:"DURATION" help:"between looks, 100ms to 1h (default 1s on a terminal, 5s elsewhere)"`
}

// passes reports whether an event is asked for.
func (in eventWatch) passes(e job.NewEvent) bool {
	return (e.Act || in.All) && (in.Of == "" || string(in.Of) == e.Subject) && (in.Actor == "" || in.Actor == e.Actor)
}

// watchEvents tells of what is new until whoever watches leaves. Each look is told of, though
// there is nothing new: whoever is told knows that the watch lives.
func watchEvents(ctx context.Context, env *operation.Env, in eventWatch, each func([]job.ControlEvent) error) (operation.None, error) {
	shared, what, last := sharedBy(env), wanted{news: true}, int64(0)
	shared.watch(what, 1)
	defer shared.watch(what, -1)
	return operation.None{}, lookOften(ctx, env, time.Duration(in.Interval), func() (over bool, err error) {
		found, err := shared.look(ctx, env, last, what)
		if err != nil {
			return false, err
		}
		told := []job.ControlEvent{}
		for _, e := range found.since(last, in.After) {
			if in.passes(e) {
				told = append(told, e.ControlEvent)
			}
		}
		last = found.number
		err = each(told)
		return err != nil, err
	})
}

// watchedEventsText writes a line for each event.
func watchedEventsText(d *text.Doc, events []job.ControlEvent) {
	for _, e := range events {
		more := ""
		if change := text.OneLine(changed(e), 200); change != "" && !ofHalt(e) {
			more = "; " + change
		}
		if reason := text.OneLine(e.Reason, 200); reason != "" {
			more += " (" + reason + ")"
		}
		d.Line("%s %s%s", e.At, EventLine(e), more)
	}
}

func listEvents(ctx context.Context, env *operation.Env, in eventFilter) (operation.List[job.ControlEvent], error) {
	f := job.ActFilter{Subject: string(in.Of), Actor: in.Actor, Since: in.Since.Before(env), Limit: in.Limit}
	if in.Before != nil {
		f.Before = in.Before.ActPosition
	}
	list, next, err := env.Jobs.Acts(ctx, f)
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
			t.Add(e.At, e.Actor, strings.ReplaceAll(e.Subject, "_", " "), text.Ref(e.Subject, e.Name), e.Kind, text.OneLine(changed(e), 200), text.OneLine(e.Reason, 200))
		}
		d.Table(t)
	case out.Next != "":
		d.Line("none of the last entries matches the filter")
	case in.Before != nil:
		d.Line("no more events")
	case in.Of != "" || in.Actor != "" || in.Since != nil:
		d.Line("no event matches the filter")
	default:
		d.Line("no events yet")
	}
	operation.More(d, "before", out.Next)
}

// changed tells what an act changed.
func changed(e job.ControlEvent) string {
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

// ofHalt reports whether everything was halted, or goes on.
func ofHalt(e job.ControlEvent) bool {
	return e.Subject == "installation" && (e.Kind == "halted" || e.Kind == "lifted")
}

// EventLine describes an event in a few words: "ann: lane news paused".
func EventLine(e job.ControlEvent) text.Line {
	if ofHalt(e) {
		return text.Sprintf("%s: everything %s", e.Actor, map[string]string{"halted": "is halted", "lifted": "continues"}[e.Kind])
	}
	subject := strings.ReplaceAll(e.Subject, "_", " ")
	if e.Name != "" {
		return text.Sprintf("%s: %s %s %s", e.Actor, subject, text.Ref(e.Subject, e.Name), strings.ReplaceAll(e.Kind, "_", " "))
	}
	return text.Sprintf("%s: %s %s", e.Actor, subject, strings.ReplaceAll(e.Kind, "_", " "))
}
