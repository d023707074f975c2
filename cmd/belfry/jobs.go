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

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/job"
)

func newJobsCommand(a *app) *cobra.Command {
	return newGroup("jobs", "List jobs, show one, its timeline and whom it skipped, or change it",
		newJobsListCommand(a), newJobsShowCommand(a), newJobsWatchCommand(a), newJobsEventsCommand(a), newJobsSetCommand(a),
		newJobsPreviewCommand(a), newTestSendCommand(a), newJobsReportCommand(a),
		newJobsSkipsCommand(a), newRetrySkippedCommand(a), newRevisionsCommand(a), newAuditCommand(a))
}

func newJobsListCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List jobs, newest first",
		Long: `List jobs, newest first. STATUS is what a job is doing: DELIVERING when its walk is
over and messages are left, which are PROCESSED for --status and --json. WALK is how far
the walk is, ROWS what it wrote, SENT how many of its messages are sent, GROUP the first
job of the job's group. On a terminal that is too narrow columns are left out: CATEGORY,
LANE, DUE.`,
		Example: `  belfry jobs list
  belfry jobs list --status RUNNING,PENDING --lane default
  belfry jobs list --limit 100 --before 1234 --json`,
		Args: noArgs,
	}
	f := cmd.Flags()
	statuses := f.StringSlice("status", nil, "only jobs in these `STATUSES`: "+statusNames())
	kind := f.String("type", "", "only jobs of this `TYPE`")
	category := f.String("category", "", "only jobs of this `CATEGORY`")
	lane := f.String("lane", "", "only jobs of this `LANE`")
	group := addGroupFlag(f, "only jobs of this group")
	limit := flagOf(f, "limit", "N", "at most so many, 1 to 1000 (default 20)", intBetween(1, 1000))
	before := flagOf(f, "before", "ID", "only jobs older than this one, for the next page", intBetween(1, math.MaxInt64))
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		filter := job.Filter{Type: *kind, Category: *category, Lane: *lane, BeforeID: before.or(0), Limit: int(limit.or(20))}
		for _, s := range *statuses {
			status := job.Status(strings.ToUpper(strings.TrimSpace(s)))
			if !status.Valid() {
				return usagef("invalid argument %q for \"--status\" flag: allowed values: %s", s, statusNames())
			}
			filter.Statuses = append(filter.Statuses, status)
		}
		return a.withDatabase(cmd, schemaCurrent, statementDeadline, func(ctx context.Context, _ settings, db *database) error {
			return a.showJobs(ctx, db, filter, group.value, *asJSON)
		})
	}
	return cmd
}

// showJobs reads the jobs of a filter, and of a group if one is given, and prints them.
func (a *app) showJobs(ctx context.Context, db *database, filter job.Filter, group *groupRef, asJSON bool) error {
	store := job.NewStore(db.Pool)
	if group != nil {
		id, err := group.find(ctx, store)
		if err != nil {
			return notFound(err)
		}
		if id == nil {
			return fmt.Errorf("job %d is in no group; `belfry jobs show %d` shows it", group.jobID, group.jobID)
		}
		filter.GroupID = id
	}
	limit := filter.Limit
	filter.Limit++ // tells whether there are more
	jobs, err := store.List(ctx, filter)
	if err != nil {
		return err
	}
	jobs, more := onePage(jobs, limit)
	states, err := statesOf(ctx, db, jobs)
	if err != nil {
		return err
	}
	if asJSON {
		return a.printJSON(states)
	}
	groups, err := firstOfGroups(ctx, db, jobs)
	if err != nil {
		return err
	}
	return a.listJobs(states, groups, filter, more)
}

// listJobs prints the table, or what to do when there is nothing in it.
func (a *app) listJobs(jobs []jobState, groups map[uuid.UUID]int64, filter job.Filter, more bool) error {
	if len(jobs) == 0 {
		if filter.Type+filter.Category+filter.Lane == "" && filter.GroupID == nil && filter.BeforeID == 0 && len(filter.Statuses) == 0 {
			a.printf("no jobs yet; enqueue one with\n  belfry enqueue --type inbox --category operator_notice --title \"Hello\" --everyone\n")
		} else {
			a.printf("no job matches; `belfry jobs list` without flags shows the newest of all\n")
		}
		return nil
	}
	t := printer.NewTable(">ID", ">GROUP", "STATUS", "TYPE", "CATEGORY", "LANE", ">WALK", ">ROWS", ">SENT", "DUE", "TITLE")
	for _, j := range jobs {
		group, sent := "", ""
		if j.GroupID != nil {
			group = printer.Int(groups[*j.GroupID])
		}
		if j.Messages.Messages > 0 {
			sent = printer.Grouped(j.Messages.Sent)
		}
		t.Add(printer.Int(j.ID), group, j.shown()+j.marks(), j.Type, j.Category, j.Lane, done(j.Job), printer.Grouped(j.RowsWritten), sent, printer.Clock(j.ScheduleAt), printer.OneLine(j.Title, 60))
	}
	if len(groups) == 0 {
		t.Drop("GROUP")
	}
	t.Dispensable(16, "CATEGORY", "LANE", "DUE")
	a.page().Table(t)
	if more {
		a.remark("there are more: --before %d shows the next page", jobs[len(jobs)-1].ID)
	}
	return nil
}

// firstOfGroups is the lowest id of each group that the jobs are of: its name for people,
// and --group takes it.
func firstOfGroups(ctx context.Context, db *database, jobs []job.Job) (map[uuid.UUID]int64, error) {
	var ids []string // plain strings: pgx's exec and simple modes know no other
	for _, j := range jobs {
		if j.GroupID != nil {
			ids = append(ids, j.GroupID.String())
		}
	}
	first := make(map[uuid.UUID]int64, len(ids))
	if len(ids) == 0 {
		return first, nil
	}
	rows, err := db.Pool.Query(ctx, queries.groupsFirst, pgx.StrictNamedArgs{"groups": ids})
	if err != nil {
		return nil, fmt.Errorf("look for groups: %w", err)
	}
	var group uuid.UUID
	var id int64
	_, err = pgx.ForEachRow(rows, []any{&group, &id}, func() error {
		first[group] = id
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for groups: %w", err)
	}
	return first, nil
}

// marks is what an operator should know beside a job's status.
func (s jobState) marks() string {
	text := ""
	if s.Throttle != "" {
		text += " throttled"
	}
	if s.Skipped > 0 {
		text += " " + printer.Grouped(s.Skipped) + " skipped"
	}
	return text
}

func newJobsEventsCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "events ID",
		Short:   "Show a job's timeline, oldest first",
		Example: "  belfry jobs events 17 --json",
		Args:    exactArgs("ID"),
	}
	limit := flagOf(cmd.Flags(), "limit", "N", "at most so many, 1 to 1000 (default 100)", intBetween(1, 1000))
	after := flagOf(cmd.Flags(), "after", "ID", "only events after this one, for the next page", intBetween(0, math.MaxInt64))
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := jobID(args[0])
		if err != nil {
			return err
		}
		return a.withDatabase(cmd, schemaCurrent, statementDeadline, func(ctx context.Context, _ settings, db *database) error {
			store := job.NewStore(db.Pool)
			if _, err := store.Get(ctx, id); err != nil {
				return notFound(err)
			}
			n := int(limit.or(100))
			events, err := store.Events(ctx, id, after.or(0), n+1)
			if err != nil {
				return err
			}
			events, more := onePage(events, n)
			if *asJSON {
				return a.printJSON(emptyList(events))
			}
			return a.listEvents(events, more)
		})
	}
	return cmd
}

func (a *app) listEvents(events []job.Event, more bool) error {
	if len(events) == 0 {
		a.printf("no more events\n")
		return nil
	}
	t := printer.NewTable("AT", "EVENT", "BY", ">ROWS", "CURSOR", "REASON")
	for _, e := range events {
		var detail struct {
			Cursor string                     `json:"cursor"`
			Rows   *int64                     `json:"rows_written"`
			Before map[string]json.RawMessage `json:"before"`
			After  map[string]json.RawMessage `json:"after"`
		}
		rows := ""
		// A detail of another shape has nothing for these columns.
		if err := json.Unmarshal(e.Detail, &detail); err == nil && detail.Rows != nil {
			rows = printer.Grouped(*detail.Rows)
		}
		reason := e.Reason
		if e.Kind == job.EventChanged {
			reason = strings.TrimPrefix(reason+"; "+changed(detail.Before, detail.After), "; ")
		}
		t.Add(printer.Clock(e.At), e.Kind, e.Actor, rows, detail.Cursor, printer.OneLine(reason, 200))
	}
	if err := t.Write(a.stdout); err != nil {
		return err
	}
	if more {
		a.remark("there are more: --after %d shows the next page", events[len(events)-1].ID)
	}
	return nil
}

// changed says what an event changed, before and after.
func changed(before, after map[string]json.RawMessage) string {
	var parts []string
	for _, column := range slices.Sorted(maps.Keys(after)) {
		parts = append(parts, fmt.Sprintf("%s %s -> %s", column, printer.OneLine(string(before[column]), 60), printer.OneLine(string(after[column]), 60)))
	}
	return strings.Join(parts, ", ")
}

// notFound adds where to look.
func notFound(err error) error {
	if errors.Is(err, job.ErrNotFound) {
		return withAdvice(err, "`belfry jobs list` shows what there is")
	}
	return err
}

func withAdvice(err error, advice string) error { return fmt.Errorf("%w; %s", err, advice) }

// emptyList makes the JSON of no rows [] rather than null.
func emptyList[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// done is how far a job is, in percent of the keys to examine.
func done(j job.Job) string {
	total, known := j.Total()
	switch {
	case j.Status == job.Processed, j.WalkedAt != nil: // one that was stopped after its walk as well
		return "100%"
	case !known:
		return "-"
	}
	return fmt.Sprintf("%d%%", min(99, 100*j.ChannelsRead/total)) // the total is an estimate
}

func statusNames() string {
	var names []string
	for _, s := range job.Statuses() {
		names = append(names, string(s))
	}
	return strings.Join(names, ", ")
}

// jobsAndGroup is what the commands print that change or make jobs.
type jobsAndGroup struct {
	GroupID *uuid.UUID `json:"group_id"`
	Jobs    []job.Job  `json:"jobs"`
}
