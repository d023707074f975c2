package jobs

import (
	"context"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// skipPage is the input of `jobs skips`.
type skipPage struct {
	operation.JobRef
	Limit int    `flag:"limit" label:"N" help:"maximum number of recipients, 1 to 1000 (default 100)" min:"1" max:"1000" default:"100"`
	After string `flag:"after" label:"KEY" help:"only recipients after this key, for the next page"`
}

// retrySkippedInput is the input of `jobs retry-skipped`.
type retrySkippedInput struct {
	operation.JobRef
	operation.PlanFlags
	operation.VersionFlag
	operation.Act
}

// retriedSkipped is a job whose skipped recipients are retried, or the plan of that.
type retriedSkipped struct {
	Plan *operation.Plan `json:"plan,omitempty"` // then nothing was changed
	job.Job
}

func (r retriedSkipped) Affected(string) operation.Affected {
	return operation.Affected{N: r.Skipped, Noun: "recipient", Plan: r.Plan}
}

func skipOperations() []operation.Operation {
	return []operation.Operation{
		operation.Define(operation.Operation{
			Name: "jobs skips", Short: "List the recipients that a job skipped, and why", Role: operation.Viewer,
			Long: `List the recipients that a job skipped because their rows could not be written, with the
error. After the cause is fixed, retry them with ` + "`belfry jobs retry-skipped ID`" + `. KEY is the
channel's id, or the key of a custom job type.`,
			Example: `  belfry jobs skips 17
  belfry jobs skips 17 --json --limit 1000 --after 4711`,
		}, func(ctx context.Context, env *operation.Env, in skipPage) (operation.List[job.Skip], error) {
			if err := env.MayLocate(ctx, "jobs skips", in.ID); err != nil {
				return operation.List[job.Skip]{}, err
			}
			list, err := env.Jobs.Skips(ctx, in.ID, in.After, in.Limit+1)
			return operation.PageOf(list, in.Limit, func(last job.Skip) string { return last.Key }), operation.NoSuchJob(err)
		}, skipsText),
		operation.Define(operation.Operation{
			Name: "jobs retry-skipped", Short: "Retry the recipients that a job skipped", Role: operation.Operator, Changes: true,
			Events: "the job's events",
			Long: `Retry every recipient that a PROCESSED or FAILED job skipped. The job is PENDING, and the next
run retries them, and continues a FAILED job. Recipients that fail again remain in
` + "`belfry jobs skips ID`" + `.

--dry-run counts them. With the token of this plan (--plan), the command fails if the number
has changed, or if the job has run since.`,
			Example: `  belfry jobs retry-skipped 17 --dry-run
  belfry jobs retry-skipped 17 --reason "constraint dropped"`,
		}, retrySkipped, func(d *text.Doc, _ retrySkippedInput, r retriedSkipped) {
			if r.Plan != nil {
				r.Plan.Text(d, "recipient", triedAgain)
				return
			}
			d.Line("%s; the next run retries %s", statusLine(r.Job), text.Counted(r.Skipped, "skipped recipient"))
		}),
	}
}

// retrySkipped schedules the retry of the skipped recipients, or returns its plan. The transaction of the
// change compares the count with the plan.
func retrySkipped(ctx context.Context, env *operation.Env, in retrySkippedInput) (retriedSkipped, error) {
	asOf, err := in.Moment(ctx, env)
	if err != nil {
		return retriedSkipped{}, err
	}
	if in.DryRun {
		return planSkipped(ctx, env, in)
	}
	var agree func(job.Job) error
	if in.Bound() {
		agree = func(j job.Job) error {
			now, p := jobsPlan{verb: retryingSkipped(), asOf: asOf}, &operation.Plan{AsOf: asOf}
			if now.skipReason(JobState{Job: j}) == "" {
				p.Count = j.Skipped
			}
			if err := in.Agrees(p, "recipient", triedAgain); err != nil {
				return err
			}
			if now.newer(JobState{Job: j}) {
				return &job.YoungerError{JobID: j.ID, AsOf: asOf}
			}
			return nil
		}
	}
	j, err := env.Jobs.RetrySkipped(ctx, in.ID, operation.ActBy(env, in), agree)
	if err != nil {
		return retriedSkipped{}, operation.NoSuchJob(err)
	}
	return retriedSkipped{Job: j}, nil
}

// planSkipped returns the plan of the retry. It counts recipients.
func planSkipped(ctx context.Context, env *operation.Env, in retrySkippedInput) (out retriedSkipped, err error) {
	planned, err := planJobs(ctx, env, retryingSkipped(), false, in.PlanFlags, []int64{in.ID}, nil)
	if err != nil {
		return out, err
	}
	if out.Job, err = env.Jobs.Get(ctx, in.ID); err != nil {
		return out, operation.NoSuchJob(err)
	}
	out.Plan = planned.Plan
	out.Plan.Count = out.Plan.Outcomes[0].Count
	return out, nil
}

func skipsText(d *text.Doc, in skipPage, out operation.List[job.Skip]) {
	switch {
	case len(out.Items) == 0 && in.After != "":
		d.Line("no more recipients were skipped")
		return
	case len(out.Items) == 0:
		d.Line("job %s skipped no recipient", text.Ref("job", in.ID))
		return
	}
	t := text.NewTable("KEY", "SKIPPED", "LAST TRIED", ">ATTEMPTS", "NEXT RUN", "SQLSTATE", "ERROR")
	for _, s := range out.Items {
		next := "-"
		if s.Retry {
			next = "retries"
		}
		t.Add(text.OneLine(s.Key, 60), s.SkippedAt, s.TriedAt, s.Attempts, next, s.SQLState, text.OneLine(s.Error, 200))
	}
	d.Table(t)
	operation.More(d, "after", out.Next)
}
