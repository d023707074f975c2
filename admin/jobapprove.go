package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/job"
)

const approved = "approved"

// approveInput is the input of `jobs approve`.
type approveInput struct {
	jobRef
	planChoice
	Act
}

// check requires the plan that the operator has read.
func (in approveInput) check(o Operation, _ time.Time) error {
	if !in.counts() {
		return invalid("", "%s takes --plan TOKEN, which --dry-run shows: an approval is of the content that was read", o.Name)
	}
	return nil
}

// precondition is the version of the job in the plan.
func (in approveInput) precondition() *Precondition {
	if in.Plan == nil {
		return nil
	}
	return &Precondition{Versions: []int64{in.Plan.version}}
}

// approval is a job that was approved, or would be.
type approval struct {
	Plan *Plan `json:"plan,omitempty"` // then nothing was done
	job.Job
}

func (a approval) affected(string) affected {
	return affected{n: 1, since: a.ApprovedAt, plan: a.Plan}
}

func approveOperation() Operation {
	return Define(Operation{
		Name: "jobs approve", Short: "Approve a job that waits for a second person", Role: Operator, Changes: true, Events: "the job's events", Deadline: previewDeadline,
		Long: `Approve a job that waits for a second person: its category demands that, or whoever
enqueued it. Until then it is not claimed, and no message of it goes out.

--dry-run shows what the job says, to whom and when, and counts its audience. The approval
is of that plan (--plan): of the version that was shown, and for as many recipients. An
audience that is another by more than 5 % when the approval is given is refused. The walk
writes at most 5 % more rows than were approved, rounded up; a job whose audience has grown beyond
that stops there, and waits for another approval when it is resumed.

Whoever enqueued the job, or changed what it says, does not approve it; of a schedule's job
that is who wrote the schedule. A change of what it says, to whom, or when voids the
approval, also of what is still to be sent of a job that has run: aborted, corrected and
resumed, it waits again.`,
		SQL: "SELECT * FROM belfry.approve(17, 12000, 'kim', 'read it');",
		Example: `  belfry jobs approve 17 --dry-run
  belfry jobs approve 17 --plan TOKEN --reason "read it"`,
	}, approveJob, approvalText)
}

func approveJob(ctx context.Context, env *Env, in approveInput) (approval, error) {
	j, err := env.Jobs.Get(ctx, in.ID)
	if err != nil {
		return approval{}, noSuchJob(err)
	}
	if in.Plan != nil && in.Plan.version != j.Version { // no need to count
		return approval{}, &db.StaleError{Subject: subjectJob, Name: printer.Int(j.ID), Version: j.Version}
	}
	asOf, err := env.Jobs.Now(ctx)
	if err != nil {
		return approval{}, err
	}
	n, err := env.Channels.Count(ctx, env.reads(), j.Audience)
	if err != nil {
		return approval{}, err
	}
	who := actBy(env, in)
	if in.DryRun {
		p, err := planApproval(j, n, asOf, env.Jobs.MayApprove(ctx, in.ID, who))
		return approval{Plan: p, Job: j}, err
	}
	count := in.Plan.count
	switch {
	case n > job.MostApproved(count) || count > job.MostApproved(n):
		return approval{}, unexpected(n, count, "recipient", approved, asOf)
	case count < 1 || count > job.MostRecipients:
		return approval{}, conflict("%s cannot be approved, only 1 to %s", printer.Counted(count, "recipient"), printer.Grouped(job.MostRecipients))
	}
	brief, cancel := context.WithTimeout(ctx, DefaultDeadline)
	defer cancel()
	j, err = env.Jobs.Approve(brief, in.ID, int(count), who)
	if errors.As(err, new(*job.NotAwaitingError)) {
		err = advise(err, fmt.Sprintf("`belfry jobs show %d` shows it", in.ID))
	}
	if err != nil {
		return approval{}, noSuchJob(err)
	}
	return approval{Job: j}, nil
}

// planApproval says what an approval would do, of which refusal is why it may not be.
func planApproval(j job.Job, n int64, asOf time.Time, refusal error) (*Plan, error) {
	o := Outcome{Of: JobLabel(j), Outcome: approved, Count: n, Detail: "goes out to " + printer.Grouped(job.MostApproved(n)) + " at most"}
	if written := j.RowsWritten; written > 0 {
		o.Detail += ", beside " + printer.Grouped(written) + " that are written"
	}
	switch {
	case errors.As(refusal, new(*job.NotAwaitingError)), errors.As(refusal, new(*job.OwnJobError)):
		o.Outcome, o.Count, o.Detail = "left", 0, refusal.Error()
	case refusal != nil:
		return nil, noSuchJob(refusal)
	case n == 0:
		o.Outcome, o.Detail = "left", "nobody is in its audience now"
	}
	return &Plan{Selection: "job " + printer.Int(j.ID), AsOf: asOf, Count: o.Count, Version: &j.Version, Outcomes: []Outcome{o}}, nil
}

func approvalText(p *printer.Page, _ approveInput, a approval) {
	if a.Plan == nil {
		p.Printf("%s: approved %s\n", JobLabel(a.Job), approvalOf(p.Times, a.Job))
		return
	}
	showContent(a.Job, p.Field)
	p.Field("due", "%s", p.Clock(a.ScheduleAt))
	if a.DeliverAt != nil {
		p.Field("deliver", "%s", p.Clock(*a.DeliverAt))
	}
	p.Field("requested", "%s by %s", p.Clock(a.CreatedAt), a.RequestedBy)
	a.Plan.table(p, "recipient", approved)
	if a.Plan.Count > 0 {
		a.Plan.note(p)
	}
}

// approvalOf is what there is to say of a job's approval; "": it needs none.
func approvalOf(times printer.Times, j job.Job) string {
	switch {
	case j.AwaitsApproval():
		return fmt.Sprintf("awaited since %s, by an operator who did not write it (%s did)", times.Clock(*j.AwaitsApprovalSince), j.RequestedBy)
	case j.ApprovedAt != nil && j.ApprovedCount != nil && j.ApprovedRecipients != nil:
		return fmt.Sprintf("by %s at %s, for %s; no more than %s rows are written", j.ApprovedBy, times.Clock(*j.ApprovedAt),
			printer.Counted(int64(*j.ApprovedCount), "recipient"), printer.Grouped(int64(*j.ApprovedRecipients)))
	case j.NeedsApproval:
		return "none; resumed or retried, it waits for one"
	}
	return ""
}
