package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/job/schedule"
)

func newSchedulesCommand(a *app) *cobra.Command {
	return a.nounCommand("schedules",
		newSchedulesListCommand(a), newSchedulesShowCommand(a), newSchedulesNextCommand(a), newSchedulesAddCommand(a),
		newSchedulesRunCommand(a), newSchedulesRemoveCommand(a),
		newScheduleTurnCommand(a, scheduleTurn{
			"pause", "Stop a schedule: what falls into a pause is dropped",
			"Stop a schedule. What falls into the pause is dropped; `belfry schedules run` fires\nit by hand all the same.",
			(*schedule.Store).Pause,
		}),
		newScheduleTurnCommand(a, scheduleTurn{
			"resume", "Let a paused schedule go on", "Let a paused schedule go on with its next occurrence.", (*schedule.Store).Resume,
		}))
}

// withSchedules opens the database for a short command about schedules.
func (a *app) withSchedules(cmd *cobra.Command, do func(context.Context, *schedule.Store, *database) error) error {
	return a.withDatabase(cmd, schemaCurrent, statementDeadline, func(ctx context.Context, _ settings, db *database) error {
		return scheduleAdvice(do(ctx, schedule.NewStore(db.Pool), db))
	})
}

// scheduleAdvice says where to look, and that bad input is the caller's.
func scheduleAdvice(err error) error {
	var invalid *job.InvalidError
	switch {
	case errors.Is(err, schedule.ErrNotFound):
		return withAdvice(err, "`belfry schedules list` shows what there is")
	case errors.As(err, &invalid):
		return &exitError{codeUsage, errors.New(withHint(strings.TrimPrefix(invalid.Message, "belfry.schedules."), invalid.Hint))}
	}
	return err
}

func newSchedulesListCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List schedules by name", Args: noArgs}
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.withSchedules(cmd, func(ctx context.Context, store *schedule.Store, _ *database) error {
			list, err := store.List(ctx)
			if err != nil {
				return err
			}
			if *asJSON {
				return a.printJSON(emptyList(list))
			}
			if len(list) == 0 {
				a.printf("no schedules yet; define them under schedules in the configuration, or with\n  belfry schedules add NAME --cron '0 9 * * *' --type inbox --category popular_content --title \"Today\" --everyone\n")
				return nil
			}
			t := printer.NewTable("NAME", "WHEN", "STATE", "NEXT", "LAST", "JOBS", ">FIRED", ">SKIPPED", "FROM")
			for _, s := range list {
				t.Add(s.Name, timetable(s.Definition), scheduleState(s), printer.ClockOr(s.NextAt, "-"), printer.ClockOr(s.LastAt, "-"),
					ids(s.LastJobs), printer.Grouped(s.Fired), printer.Grouped(s.Skipped), string(s.Source))
			}
			return t.Write(a.stdout)
		})
	}
	return cmd
}

// timetable is when a schedule fires, as its definition says it.
func timetable(d schedule.Definition) string {
	if d.Cron == "" {
		return "every " + d.Every
	}
	return d.Cron + " " + d.TimeZone
}

// scheduleState is active, paused or failing.
func scheduleState(s schedule.Schedule) string {
	switch {
	case s.PausedAt != nil:
		return "paused"
	case s.LastError != "":
		return "failing"
	}
	return "active"
}

// ids lists ids in a cell.
func ids(list []int64) string {
	const most = 5
	texts := make([]string, 0, most)
	for i, id := range list {
		if i == most {
			texts = append(texts, fmt.Sprintf("… %d in all", len(list)))
			break
		}
		texts = append(texts, printer.Int(id))
	}
	if len(texts) == 0 {
		return "-"
	}
	return strings.Join(texts, ",")
}

func newSchedulesShowCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "show NAME", Short: "Show one schedule: its definition and how it goes",
		Example: "  belfry schedules show digest", Args: exactArgs("NAME"),
	}
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withSchedules(cmd, func(ctx context.Context, store *schedule.Store, _ *database) error {
			s, err := store.Get(ctx, args[0])
			if err != nil {
				return err
			}
			if *asJSON {
				return a.printJSON(s)
			}
			return a.showSchedule(s)
		})
	}
	return cmd
}

func (a *app) showSchedule(s schedule.Schedule) error {
	field := func(name, format string, args ...any) {
		a.printf("%-16s %s\n", name, printer.OneLine(fmt.Sprintf(format, args...), 1000))
	}
	template, err := json.Marshal(s.Template)
	if err != nil {
		return err
	}
	field("schedule", "%s, from %s", s.Name, map[schedule.Source]string{schedule.FromConfig: "the configuration", schedule.FromDatabase: "the database"}[s.Source])
	if s.PausedAt != nil {
		field("state", "paused since %s by %s: %s; `belfry schedules resume %s`", printer.Clock(*s.PausedAt), s.PausedBy, printer.OrNone(s.PauseReason), s.Name)
	} else {
		field("state", "%s", scheduleState(s))
	}
	field("when", "%s", timetable(s.Definition))
	field("next", "%s", printer.ClockOr(s.NextAt, "when it is looked at next"))
	field("missed", "%s, later than %s is missed", s.Missed, s.After)
	field("template", "%s", template)
	if s.Query != "" {
		field("query", "%s", s.Query)
		field("query runs", "for up to %s, as %s", s.QueryTimeout, cmp.Or(s.QueryRole, "the daemon's role"))
	}
	field("last", "%s, fired %s, jobs %s", printer.ClockOr(s.LastAt, "none"), printer.ClockOr(s.LastFiredAt, "never"), ids(s.LastJobs))
	field("in all", "%s fired, %s skipped", printer.Counted(s.Fired, "occurrence"), printer.Grouped(s.Skipped))
	if s.LastError != "" {
		field("last error", "%s", s.LastError)
		field("failures", "%d since the last firing, tried again %s", s.Failures, printer.ClockOr(s.RetryAt, "with the next occurrence"))
	}
	return nil
}

// upcoming is the JSON of one occurrence to come.
type upcoming struct {
	At    time.Time `json:"at"`    // UTC
	Local string    `json:"local"` // in the schedule's time zone
}

func newSchedulesNextCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "next NAME", Short: "Show when a schedule fires next",
		Long: `Show when a schedule fires next, in its own time zone and in UTC, after the
database's clock, as if it were not paused.`,
		Example: "  belfry schedules next digest --count 20", Args: exactArgs("NAME"),
	}
	n := flagOf(cmd.Flags(), "count", "N", "so many, 1 to 1000 (default 5)", intBetween(1, 1000))
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withSchedules(cmd, func(ctx context.Context, store *schedule.Store, db *database) error {
			s, err := store.Get(ctx, args[0])
			if err != nil {
				return err
			}
			now, err := db.now(ctx)
			if err != nil {
				return err
			}
			times, err := s.Next(now, int(n.or(5)))
			if err != nil {
				return fmt.Errorf("schedule %s: %w", s.Name, err)
			}
			zone, err := time.LoadLocation(s.TimeZone)
			if err != nil {
				return fmt.Errorf("schedule %s: time_zone: %w", s.Name, err)
			}
			list := make([]upcoming, 0, len(times))
			t := printer.NewTable(s.TimeZone, "UTC", "IN")
			for _, at := range times {
				local := at.In(zone).Format("Mon 2006-01-02 15:04:05 -07:00")
				list = append(list, upcoming{at.UTC(), local})
				t.Add(local, at.UTC().Format("2006-01-02 15:04:05"), printer.Short(at.Sub(now)))
			}
			switch {
			case *asJSON:
				return a.printJSON(list)
			case len(list) == 0:
				a.printf("schedule %s has no occurrence in the next nine years\n", s.Name)
				return nil
			}
			if s.PausedAt != nil {
				a.remark("it is paused: `belfry schedules resume %s`", s.Name)
			}
			return t.Write(a.stdout)
		})
	}
	return cmd
}

func newSchedulesRunCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "run NAME", Short: "Fire a schedule once more, now",
		Long: `Fire a schedule once more, now, though it is paused; its next occurrence stays as it
is. The ids of the jobs are printed, one to a line.`,
		Example: `  belfry schedules run digest --reason "the query was wrong at nine"`, Args: exactArgs("NAME"),
	}
	who := addActFlags(a, cmd, "the schedule's events")
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withSchedules(cmd, func(ctx context.Context, store *schedule.Store, _ *database) error {
			jobs, err := store.RunNow(ctx, args[0], who())
			if err != nil {
				return err
			}
			if *asJSON {
				return a.printJSON(occurrenceNow{args[0], emptyList(jobs)})
			}
			for _, id := range jobs {
				a.printf("%d\n", id)
			}
			a.remark("schedule %s fired: %s", args[0], jobList(jobs))
			return nil
		})
	}
	return cmd
}

// occurrenceNow is the JSON of a firing by hand.
type occurrenceNow struct {
	Schedule string  `json:"schedule"`
	Jobs     []int64 `json:"jobs"`
}

func newSchedulesRemoveCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "remove NAME", Short: "Remove a schedule, not its jobs",
		Long: `Remove a schedule, not its jobs. One that is still in the configuration of a daemon
comes back when that starts or reloads: take it out there first.`,
		Example: "  belfry schedules remove digest", Args: exactArgs("NAME"),
	}
	who := addActFlags(a, cmd, "the schedule's events")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withSchedules(cmd, func(ctx context.Context, store *schedule.Store, _ *database) error {
			if err := store.Remove(ctx, args[0], who()); err != nil {
				return err
			}
			a.remark("schedule %s removed", args[0])
			return nil
		})
	}
	return cmd
}

// scheduleTurn is pause or resume.
type scheduleTurn struct {
	name, short, long string
	do                func(*schedule.Store, context.Context, string, job.Act) (schedule.Schedule, error)
}

func newScheduleTurnCommand(a *app, turn scheduleTurn) *cobra.Command {
	cmd := &cobra.Command{
		Use: turn.name + " NAME", Short: turn.short, Long: turn.long,
		Example: "  belfry schedules " + turn.name + ` digest --reason "holidays"`, Args: exactArgs("NAME"),
	}
	who := addActFlags(a, cmd, "the schedule's events")
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withSchedules(cmd, func(ctx context.Context, store *schedule.Store, _ *database) error {
			s, err := turn.do(store, ctx, args[0], who())
			if err != nil {
				return err
			}
			if *asJSON {
				return a.printJSON(s)
			}
			if s.PausedAt != nil {
				a.printf("schedule %s is paused since %s by %s; `belfry schedules resume %s` lets it go on\n", s.Name, printer.Clock(*s.PausedAt), s.PausedBy, s.Name)
				return nil
			}
			a.printf("schedule %s is active; `belfry schedules next %s` says when it fires\n", s.Name, s.Name)
			return nil
		})
	}
	return cmd
}
