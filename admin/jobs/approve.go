package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/belfryhq/belfry/admin/content"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

const approved = "approved"

// approveInput is the input of `jobs approve`.
type approveInput struct {
	operation.JobRef
	operation.PlanFlags
	operation.Act
}

// Check requires a plan.
func (in approveInput) Check(o operation.Operation, _ time.Time) error {
	if !in.Counts() {
		return operation.Invalid("", "%s requires --plan TOKEN from --dry-run: an approval is for the previewed content", o.Name)
	}
	return nil
}

// Precondition returns the version of the job in the plan.
func (in approveInput) Precondition() *operation.Precondition {
	if in.Plan == nil {
		return nil
	}
	return &operation.Precondition{Versions: []int64{in.Plan.Version}}
}

// approval is an approved job, or a job to approve with the plan.
type approval struct {
	Plan *operation.Plan `json:"plan,omitempty"` // then nothing was changed
	job.Job
}

func (a approval) Affected(string) operation.Affected {
	return operation.Affected{N: 1, Since: a.ApprovedAt, Plan: a.Plan}
}

func approveOperation() operation.Operation {
	return operation.Define(operation.Operation{
		Name: "jobs approve", Short: "Approve a job that waits for a second person", Role: operation.Operator, Changes: true,
		Events: "the job's events", Deadline: content.PreviewDeadline,
		Long: `Approve a job that waits for a second person, because its category or its author requires
it. Before the approval, no runner claims the job and no message of it is sent.

--dry-run shows the content, the audience and the time of the job, and counts its audience.
The approval (--plan) is for this version and this count. It fails if the audience has
changed by more than 5 %. The walk writes at most 5 % more rows than approved, rounded up.
If the audience has grown further, the job stops, and waits for another approval after its
resume.

The author of the job or of its last change cannot approve it; the author of a schedule's job
is the author of the schedule. A change of the content, the audience or the time voids the
approval, also for the rest of a job that has run: after an abort, a correction and a resume,
it waits again.`,
		SQL: "SELECT * FROM belfry.approve(17, 12000, 'kim', 'read it');",
		Example: `  belfry jobs approve 17 --dry-run
  belfry jobs approve 17 --plan TOKEN --reason "read it"`,
	}, approveJob, approvalText)
}

func approveJob(ctx context.Context, env *operation.Env, in approveInput) (approval, error) {
	j, err := env.Jobs.Get(ctx, in.ID)
	if err != nil {
		return approval{}, operation.NoSuchJob(err)
	}
	if in.Plan != nil && in.Plan.Version != j.Version { // no need to count
		return approval{}, &db.StaleError{Subject: operation.SubjectJob, Name: text.Int(j.ID), Version: j.Version}
	}
	asOf, err := env.Jobs.Now(ctx)
	if err != nil {
		return approval{}, err
	}
	n, err := env.Channels.Count(ctx, env.Reads(), j.Audience)
	if err != nil {
		return approval{}, err
	}
	who := operation.ActBy(env, in)
	if in.DryRun {
		p, err := planApproval(j, n, asOf, env.Jobs.MayApprove(ctx, in.ID, who))
		return approval{Plan: p, Job: j}, err
	}
	count := in.Plan.Count
	if err := approvalError(env.Jobs.MayApprove(ctx, in.ID, who), in.ID); err != nil { // before the count: who may not approve has a plan of 0
		return approval{}, err
	}
	switch {
	case n > job.MostApproved(count) || count > job.MostApproved(n):
		return approval{}, operation.Unexpected(n, count, "recipient", approved, asOf)
	case count < 1 || count > job.MostRecipients:
		return approval{}, operation.Conflict("%s cannot be approved, only 1 to %s", text.Counted(count, "recipient"),
			text.Grouped(job.MostRecipients))
	}
	brief, cancel := context.WithTimeout(ctx, operation.DefaultDeadline)
	defer cancel()
	j, err = env.Jobs.Approve(brief, in.ID, int(count), who)
	return approval{Job: j}, approvalError(err, in.ID)
}

// approvalError returns an error of an approval with advice, or nil.
func approvalError(err error, id int64) error {
	if errors.As(err, new(*job.NotAwaitingError)) {
		err = operation.Advise(err, fmt.Sprintf("see `belfry jobs show %d`", id))
	}
	return operation.NoSuchJob(err)
}

// planApproval returns the plan of an approval. refusal is the reason why the approval is not allowed.
func planApproval(j job.Job, n int64, asOf time.Time, refusal error) (*operation.Plan, error) {
	o := operation.Outcome{Of: jobLabel(j), Outcome: approved, Count: n, Detail: "sent to at most " + text.Grouped(job.MostApproved(n))}
	if written := j.RowsWritten; written > 0 {
		o.Detail += ", in addition to " + text.Grouped(written) + " written rows"
	}
	switch {
	case errors.As(refusal, new(*job.NotAwaitingError)), errors.As(refusal, new(*job.OwnJobError)):
		o.Outcome, o.Count, o.Detail = "left", 0, refusal.Error()
	case refusal != nil:
		return nil, operation.NoSuchJob(refusal)
	case n == 0:
		o.Outcome, o.Detail = "left", "its audience is empty now"
	}
	return &operation.Plan{Selection: "job " + text.Int(j.ID), AsOf: asOf, Count: o.Count, Version: &j.Version,
		Outcomes: []operation.Outcome{o}}, nil
}

func approvalText(d *text.Doc, _ approveInput, a approval) {
	if a.Plan == nil {
		d.Line("%s: approved %s", jobRef(a.Job), approvalLine(a.Job))
		return
	}
	showContent(d, a.Job)
	showVariants(d, a.Variants)
	d.Field("due", "%s", a.ScheduleAt)
	if a.DeliverAt != nil {
		d.Field("deliver", "%s", a.DeliverAt)
	}
	d.Field("requested", "%s by %s", a.CreatedAt, a.RequestedBy)
	a.Plan.Table(d, "recipient", approved)
	if a.Plan.Count > 0 {
		a.Plan.Note(d)
	}
}

// showVariants writes the texts of each locale.
func showVariants(d *text.Doc, variants json.RawMessage) {
	var by map[string]struct{ Title, Body string }
	if json.Unmarshal(variants, &by) != nil { // they are masked
		return
	}
	for _, locale := range slices.Sorted(maps.Keys(by)) {
		if title := by[locale].Title; title != "" {
			d.Field("title, "+locale, "%s", title)
		}
		if body := by[locale].Body; body != "" {
			d.Field("body, "+locale, "%s", body)
		}
	}
}

// approvalLine describes a job's approval. It is empty if the job needs none.
func approvalLine(j job.Job) text.Line {
	switch {
	case j.AwaitsApproval():
		return text.Sprintf("awaited since %s, by an operator other than the author (%s)", j.AwaitsApprovalSince, j.RequestedBy)
	case j.ApprovedAt != nil && j.ApprovedCount != nil && j.ApprovedRecipients != nil:
		return text.Sprintf("by %s at %s, for %s; at most %s rows are written", j.ApprovedBy, j.ApprovedAt,
			text.Counted(int64(*j.ApprovedCount), "recipient"), text.Count(*j.ApprovedRecipients))
	case j.NeedsApproval:
		return text.Sprintf("none; after a resume or retry the job waits for one")
	}
	return nil
}
