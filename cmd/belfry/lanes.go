package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/job"
)

func newLanesCommand(a *app) *cobra.Command {
	return newGroup("lanes", "List lanes, stop one, or open it again",
		newLanesListCommand(a),
		newLaneActCommand(a, laneAct{
			"pause", "Stop a lane: no job of it is run until it is resumed",
			`Stop a lane: no job of it is claimed, and the one that runs is handed back, with
its cursor, after the chunk in progress. Jobs may still be enqueued. A lane that is
paused already stays as it is.

The same by SQL: SELECT * FROM belfry.pause_lane('night', 'ann', 'wrong data');`,
			(*job.Store).PauseLane,
		}),
		newLaneActCommand(a, laneAct{
			"resume", "Open a paused lane",
			`Open a paused lane: its due jobs are run, each from its cursor. A lane that is
open already stays as it is.

The same by SQL: SELECT * FROM belfry.resume_lane('night', 'ann', 'fixed');`,
			(*job.Store).ResumeLane,
		}),
		newLaneEventsCommand(a))
}

func newLanesListCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the lanes with jobs that wait or run, and those that were ever paused",
		Args:  noArgs,
	}
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.withStored(cmd, func(ctx context.Context, _ settings, store *job.Store, _ *database) error {
			list, err := store.Lanes(ctx)
			if err != nil {
				return err
			}
			if *asJSON {
				return a.printJSON(emptyList(list))
			}
			if len(list) == 0 {
				a.printf("no lane has a job that waits or runs, and none was ever paused; a job names its lane with\n  belfry enqueue --lane NAME …\n")
				return nil
			}
			t := printer.NewTable("LANE", "STATE", ">RUNNING", ">DUE", ">LATER", "PAUSED", "BY", "REASON")
			for _, l := range list {
				state, running := "open", "-"
				if l.PausedAt != nil {
					state = "paused"
				}
				if l.Running != nil {
					running = "job " + printer.Int(*l.Running)
				}
				t.Add(l.Name, state, running, printer.Grouped(l.Due), printer.Grouped(l.Later), printer.ClockOr(l.PausedAt, ""), l.PausedBy, printer.OneLine(l.PauseReason, 80))
			}
			return t.Write(a.stdout)
		})
	}
	return cmd
}

// laneAct is pause or resume.
type laneAct struct {
	name, short, long string
	do                func(*job.Store, context.Context, string, job.Act) (job.Lane, error)
}

func newLaneActCommand(a *app, act laneAct) *cobra.Command {
	cmd := &cobra.Command{
		Use:     act.name + " LANE",
		Short:   act.short,
		Long:    act.long,
		Example: "  belfry lanes " + act.name + ` night --reason "wrong data"`,
		Args:    exactArgs("LANE"),
	}
	who := addActFlags(a, cmd, "the lane's events")
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withStored(cmd, func(ctx context.Context, _ settings, store *job.Store, _ *database) error {
			lane, err := act.do(store, ctx, args[0], who())
			if err != nil {
				return laneProblem(err)
			}
			if *asJSON {
				return a.printJSON(lane)
			}
			a.printf("%s\n", laneStatus(lane))
			return nil
		})
	}
	return cmd
}

// laneProblem makes a bad name a matter of usage.
func laneProblem(err error) error {
	var invalid *job.InvalidError
	if !errors.As(err, &invalid) {
		return err
	}
	_, problem, ok := strings.Cut(invalid.Message, ": ")
	if !ok {
		problem = invalid.Message
	}
	return usagef("LANE: %s", problem)
}

// laneStatus is one line about a lane.
func laneStatus(l job.Lane) string {
	waits := printer.Counted(l.Due, "job") + " due, " + printer.Grouped(l.Later) + " later"
	if l.PausedAt == nil {
		return fmt.Sprintf("lane %s is open; %s", l.Name, waits)
	}
	line := fmt.Sprintf("lane %s is paused since %s by %s; %s", l.Name, printer.Clock(*l.PausedAt), l.PausedBy, waits)
	if l.Running != nil {
		line += fmt.Sprintf("; job %d is handed back after the chunk in progress", *l.Running)
	}
	return line + fmt.Sprintf("; `belfry lanes resume %s` opens it", l.Name)
}

func newLaneEventsCommand(a *app) *cobra.Command {
	return newControlEventsCommand(a, controlEvents{
		subject: job.SubjectLane, argument: "LANE", short: "Show when lanes were paused and opened, newest first",
		example: "  belfry lanes events\n  belfry lanes events night --json", none: "no lane was ever paused",
	})
}

// changes tells what an event changed, by the two states in its detail: values that one of
// them does not have are "unset". Who paused, when and why the event itself says.
func changes(detail json.RawMessage) string {
	var d struct{ Before, After map[string]json.RawMessage }
	if json.Unmarshal(detail, &d) != nil || d.Before == nil || d.After == nil {
		return "" // nothing was before, or is after; or this kind of event has another detail
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
			return string(raw)
		}
	}
	keys := slices.AppendSeq(slices.Collect(maps.Keys(d.Before)), maps.Keys(d.After))
	slices.Sort(keys)
	var parts []string
	for _, key := range slices.Compact(keys) {
		if was, is := value(d.Before, key), value(d.After, key); was != is && !slices.Contains([]string{"paused_at", "paused_by", "pause_reason"}, key) {
			parts = append(parts, key+" "+was+" → "+is)
		}
	}
	return strings.Join(parts, ", ")
}

// controlEvents is one timeline of belfry.events.
type controlEvents struct {
	subject        string
	argument       string // what may be named, to see it alone
	short, example string
	none           string // what is said when there is nothing
}

func newControlEventsCommand(a *app, of controlEvents) *cobra.Command {
	cmd := &cobra.Command{
		Use: "events [" + of.argument + "]", Short: of.short, Example: of.example,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("%s takes one %s or none, got %s", named(cmd), of.argument, printer.Counted(int64(len(args)), "argument"))
			}
			return nil
		},
	}
	limit := flagOf(cmd.Flags(), "limit", "N", "at most so many, 1 to 1000 (default 100)", intBetween(1, 1000))
	before := flagOf(cmd.Flags(), "before", "ID", "only events before this one, for the next page", intBetween(1, math.MaxInt64))
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name := ""
		if len(args) == 1 {
			name = args[0]
		}
		return a.withStored(cmd, func(ctx context.Context, _ settings, store *job.Store, _ *database) error {
			n := int(limit.or(100))
			list, err := store.ControlEvents(ctx, of.subject, name, before.or(0), n+1)
			if err != nil {
				return err
			}
			list, more := onePage(list, n)
			if *asJSON {
				return a.printJSON(emptyList(list))
			}
			switch {
			case len(list) == 0 && before.value != nil:
				a.printf("no more events\n")
				return nil
			case len(list) == 0 && name != "":
				a.printf("no events of %s\n", printer.OneLine(name, 70))
				return nil
			case len(list) == 0:
				a.printf("%s\n", of.none)
				return nil
			}
			t := printer.NewTable("AT", of.argument, "EVENT", "BY", "CHANGE", "REASON")
			for _, e := range list {
				t.Add(printer.Clock(e.At), e.Name, e.Kind, e.Actor, printer.OneLine(changes(e.Detail), 200), printer.OneLine(e.Reason, 200))
			}
			if err := t.Write(a.stdout); err != nil {
				return err
			}
			if more {
				a.remark("there are more: --before %d shows the next page", list[len(list)-1].ID)
			}
			return nil
		})
	}
	return cmd
}
