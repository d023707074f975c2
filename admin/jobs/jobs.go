package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// jobFilter is the input of `jobs list`.
type jobFilter struct {
	Status   []jobStatus     `flag:"status" label:"STATUSES" help:"only jobs in these statuses: PENDING, RUNNING, PROCESSED, ABORTED, FAILED, EXPIRED"`
	Type     string          `flag:"type" label:"TYPE" values:"types" help:"only jobs of this type"`
	Category string          `flag:"category" label:"CATEGORY" values:"categories list" help:"only jobs of this category"`
	Lane     string          `flag:"lane" label:"LANE" values:"lanes list" help:"only jobs of this lane"`
	Group    *groupRef       `flag:"group" label:"GROUP" values:"jobs list:group_job" help:"only jobs of this group: its id, or the id of one of its jobs"`
	Text     string          `flag:"text" label:"TEXT" help:"only jobs whose title contains this text, in any case"`
	Awaiting bool            `flag:"awaiting-approval" help:"only jobs that wait for approval"`
	Since    *operation.Past `flag:"since" label:"TIME" help:"only jobs that were requested at this time or later"`
	Until    *operation.Past `flag:"until" label:"TIME" help:"only jobs that were requested before this time"`
	Limit    int             `flag:"limit" label:"N" help:"maximum number of jobs, 1 to 1000 (default 20)" min:"1" max:"1000" default:"20"`
	Before   int64           `flag:"before" label:"ID" help:"only jobs older than this one, for the next page" min:"1"`
}

// given reports whether any filter is set.
func (f jobFilter) given() bool {
	return f.Type+f.Category+f.Lane+f.Text != "" || f.Group != nil || f.Since != nil || f.Until != nil || f.Awaiting || f.Before != 0 ||
		len(f.Status) > 0
}

// jobStatus is a status. Its input is not case-sensitive.
type jobStatus string

// UnmarshalText reads a status.
func (s *jobStatus) UnmarshalText(text []byte) error {
	if *s = jobStatus(strings.ToUpper(string(text))); job.Status(*s).Valid() {
		return nil
	}
	return &operation.NotAllowedError{Allowed: strings.Join(s.Choices(), ", ")}
}

// Choices returns the statuses.
func (jobStatus) Choices() (names []string) {
	for _, status := range job.Statuses() {
		names = append(names, string(status))
	}
	return names
}

func jobOperations() []operation.Operation {
	return []operation.Operation{
		operation.Define(operation.Operation{
			Name: "jobs list", Suggests: "id status title", Short: "List jobs, newest first", Role: operation.Viewer,
			Long: `List jobs, newest first. STATUS is DELIVERING if the walk is complete and messages wait
(PROCESSED for --status and --json), and WAITS for approval until a second person approves
the job. WALK is the progress of the walk, ROWS the number of written rows, SENT the number
of sent messages, GROUP the first job of the job's group. A narrow terminal omits the columns
CATEGORY, LANE and DUE.

With --text, or several of --lane, --category and --type, a page examines the newest 1,000 jobs
of each status, so that it may be short if few jobs match.`,
			Example: `  belfry jobs list
  belfry jobs list --status RUNNING,PENDING --lane default
  belfry jobs list --status ABORTED,FAILED --since 7d
  belfry jobs list --limit 100 --before 1234 --json`,
		}, listJobs, jobsText),
		operation.Define(operation.Operation{
			Name: "jobs show", Short: "Show one job: its progress, its counts, and what delays it", Role: operation.Viewer,
			Long: `Show one job: its progress and delays, its own settings, the counts of its channels and
rows, and its corrections.`,
			Example: "  belfry jobs show 17",
		}, showJob, jobText),
		watchOperation(),
		operation.Define(operation.Operation{
			Name: "jobs events", Short: "Show a job's timeline, oldest first", Role: operation.Viewer, Example: "  belfry jobs events 17 --json",
		}, listJobEvents, jobEventsText),
		runsOperation(),
		operation.Define(operation.Operation{
			Name: "jobs revisions", Short: "Show the content and audience of a job before its corrections", Role: operation.Viewer,
			Long: `Show the content and the audience of a job before each correction after the begin of its
walk, oldest first. The rows between the previous revision's cursor and a revision's cursor
were written under this revision, the rows above the last cursor under the present content
(` + "`belfry jobs show ID`" + `). A retried skipped recipient has the content at the time of the retry,
and a message the job's content at the time of its sending. The SQL function
belfry.job_content(ID, CHANNEL) returns both.`,
			Example: "  belfry jobs revisions 17",
		}, func(ctx context.Context, env *operation.Env, in operation.JobRef) (operation.List[job.Revision], error) {
			list, err := env.Jobs.Revisions(ctx, in.ID)
			if err == nil {
				var locates bool
				if locates, err = env.Locates(ctx, in.ID); locates {
					for i := range list {
						list[i].Cursor = ""
					}
				}
			}
			return operation.List[job.Revision]{Items: list}, operation.NoSuchJob(err)
		}, revisionsText),
	}
}

func listJobs(ctx context.Context, env *operation.Env, in jobFilter) (page operation.List[JobState], err error) {
	filter := job.Filter{Type: in.Type, Category: in.Category, Lane: in.Lane, Awaiting: in.Awaiting, Text: in.Text, BeforeID: in.Before,
		Limit: in.Limit + 1}
	for _, s := range in.Status {
		filter.Statuses = append(filter.Statuses, job.Status(s))
	}
	filter.Since, filter.Until = in.Since.Before(env), in.Until.Before(env)
	if in.Group != nil {
		if filter.GroupID, err = in.Group.find(ctx, env.Jobs); err != nil {
			return page, operation.NoSuchJob(err)
		}
		if filter.GroupID == nil {
			return page, operation.Conflict("job %d has no group; see `belfry jobs show %d`", in.Group.jobID, in.Group.jobID)
		}
	}
	jobs, lookedTo, err := env.Jobs.Page(ctx, filter)
	if err != nil {
		return page, err
	}
	cut := operation.PageOf(jobs, in.Limit, func(last job.Job) string { return text.Int(last.ID) })
	if page.Next = cut.Next; lookedTo != 0 {
		page.Next = text.Int(lookedTo)
	}
	if page.Items, err = JobStates(ctx, env.DB, cut.Items); err != nil {
		return page, err
	}
	var groups []uuid.UUID
	for _, j := range cut.Items {
		if j.GroupID != nil {
			groups = append(groups, *j.GroupID)
		}
	}
	first, err := env.Jobs.FirstOfGroups(ctx, groups)
	for i, j := range page.Items {
		if j.GroupID != nil {
			page.Items[i].GroupJob = first[*j.GroupID]
		}
	}
	return page, err
}

// jobsText writes a table of jobs, or the next step if there is none.
func jobsText(d *text.Doc, in jobFilter, out operation.List[JobState]) {
	switch {
	case len(out.Items) > 0:
	case out.Next != "":
		operation.NoMatches(d, out.Next)
		return
	case in.given():
		d.Line("no job matches; %s", text.Command("jobs list").To("list the newest jobs"))
		return
	default:
		d.Line("no jobs yet; %s",
			text.Command("enqueue").Flag("type", "inbox").Flag("category", "operator_notice").Flag("title", "Hello").Flag("everyone").To(
				"enqueue one"))
		return
	}
	t := text.NewTable(">ID", ">GROUP", "STATUS", "TYPE", "CATEGORY", "LANE", ">WALK", ">ROWS", ">SENT", "DUE", "TITLE")
	grouped := false
	for _, j := range out.Items {
		var group, sent any = "", ""
		if j.GroupID != nil {
			group, grouped = text.Command("jobs list").Flag("group", j.GroupID).As(text.Int(j.GroupJob)), true
		}
		if j.Messages.Messages > 0 {
			sent = j.Messages.Sent
		}
		status := j.Badge()
		if j.Messages.Dead > 0 {
			status.More += " " + text.Grouped(j.Messages.Dead) + " dead"
		}
		ref, id := text.Ref("job", j.ID), text.Int(j.ID)
		t.Add(ref, group, text.Live(id+".status", status), j.Type, j.Category, j.Lane, text.Live(id+".walked", WalkDone(j.Job)),
			text.Live(id+".rows", j.RowsWritten), text.Live(id+".sent", sent), j.ScheduleAt, ref.As(text.OneLine(j.Title, 60)))
	}
	if !grouped {
		t.Drop("GROUP")
	}
	t.Dispensable(16, "CATEGORY", "LANE", "DUE")
	d.Table(t)
	if i := slices.IndexFunc(out.Items, func(j JobState) bool { return j.HaltedAt != nil }); i >= 0 {
		d.Note("everything is halted since %s; %s", out.Items[i].HaltedAt, endHalt())
	}
	operation.More(d, "before", out.Next)
}

// jobTimeline is the input of `jobs events`.
type jobTimeline struct {
	operation.JobRef
	Limit int   `flag:"limit" label:"N" help:"maximum number of events, 1 to 1000 (default 100)" min:"1" max:"1000" default:"100"`
	After int64 `flag:"after" label:"ID" help:"only events after this one, for the next page" min:"0"`
}

func listJobEvents(ctx context.Context, env *operation.Env, in jobTimeline) (operation.List[job.Event], error) {
	list, err := env.Jobs.Events(ctx, in.ID, in.After, in.Limit+1)
	if err == nil {
		var locates bool
		if locates, err = env.Locates(ctx, in.ID); locates {
			for i := range list { // contains the cursor and the number of rows
				list[i].Detail = json.RawMessage("{}")
			}
		}
	}
	return operation.PageOf(list, in.Limit, func(last job.Event) string { return text.Int(last.ID) }), operation.NoSuchJob(err)
}

func jobEventsText(d *text.Doc, _ jobTimeline, out operation.List[job.Event]) {
	if len(out.Items) == 0 {
		d.Line("no more events")
		return
	}
	t := text.NewTable("AT", "EVENT", "BY", ">ROWS", "CURSOR", "REASON")
	for _, e := range out.Items {
		var detail struct {
			Cursor string                     `json:"cursor"`
			Rows   *int64                     `json:"rows_written"`
			Before map[string]json.RawMessage `json:"before"`
			After  map[string]json.RawMessage `json:"after"`
		}
		var rows any = ""
		// A detail of another shape leaves these columns empty.
		if err := json.Unmarshal(e.Detail, &detail); err == nil && detail.Rows != nil {
			rows = *detail.Rows
		}
		reason := e.Reason
		if e.Kind == job.EventChanged || e.Kind == job.EventApproved {
			reason = strings.TrimPrefix(reason+"; "+corrections(detail.Before, detail.After), "; ")
		}
		t.Add(e.At, e.Kind, e.Actor, rows, detail.Cursor, text.OneLine(reason, 200))
	}
	d.Table(t)
	operation.More(d, "after", out.Next)
}

// corrections returns the changed columns of a job, before and after.
func corrections(before, after map[string]json.RawMessage) string {
	var parts []string
	for _, column := range slices.Sorted(maps.Keys(after)) {
		parts = append(parts, fmt.Sprintf("%s %s -> %s", column, text.OneLine(operation.CompactJSON(before[column]), 60),
			text.OneLine(operation.CompactJSON(after[column]), 60)))
	}
	return strings.Join(parts, ", ")
}

func revisionsText(d *text.Doc, in operation.JobRef, out operation.List[job.Revision]) {
	if len(out.Items) == 0 {
		d.Line("job %s was never corrected after its walk had begun", text.Ref("job", in.ID))
		return
	}
	t := text.NewTable(">REVISION", "UP TO CURSOR", "REPLACED", "BY", "REASON", "TITLE", "AUDIENCE")
	for _, r := range out.Items {
		t.Add(r.Revision, r.Cursor, r.EditedAt, r.EditedBy, text.OneLine(r.Reason, 60), text.OneLine(r.Title, 60),
			text.OneLine(operation.CompactJSON(r.Audience), 80))
	}
	d.Table(t)
}
