package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/belfryhq/belfry/admin/enqueue"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// resumeInput is the input of `resume`: with Edit what the jobs are to say, and to whom.
type resumeInput struct {
	jobsOrGroup
	Edit     bool               `flag:"edit" help:"correct the job first, with the flags that follow"`
	Title    *string            `flag:"title" label:"TITLE" help:"with --edit: 1 to 200 characters"`
	Body     *string            `flag:"body" label:"TEXT" help:"with --edit: up to 10,000 characters"`
	Data     enqueue.JSONObject `flag:"data" label:"JSON" help:"with --edit: further content as an object, up to 16,384 bytes" allowed:"JSON objects of up to 16384 bytes"`
	Variants enqueue.JSONObject `flag:"variants" label:"JSON" file:"true" help:"with --edit: titles and bodies by locale, as {\"ko\": {\"title\": \"…\", \"body\": \"…\"}}, or a file with it" allowed:"JSON objects of up to 131072 bytes, as {\"ko\": {\"title\": \"…\", \"body\": \"…\"}}, or a FILE with one"`
	enqueue.AudienceChoice
	operation.PlanFlags
	operation.VersionFlag
	operation.Act
}

func (in resumeInput) Check(o operation.Operation, now time.Time) error {
	changes, err := in.changes()
	switch {
	case in.jobsOrGroup.Check(o, now) != nil:
		return in.jobsOrGroup.Check(o, now)
	case err != nil:
		return err
	case !in.Edit && len(changes) > 0:
		return operation.Invalid("", "title, body, data, variants and audience are corrected with --edit only; allowed values: --edit with at least one of them, or none")
	case in.Edit && len(changes) == 0:
		return operation.Invalid("", "--edit needs what to correct: --title, --body, --data, --variants or an audience")
	}
	return nil
}

// changes are by column what is to be corrected.
func (in resumeInput) changes() (job.Changes, error) {
	changes := make(job.Changes)
	for column, text := range map[string]*string{"title": in.Title, "body": in.Body} {
		if text != nil {
			changes[column] = *text
		}
	}
	for column, object := range map[string]enqueue.JSONObject{"data": in.Data, "variants": in.Variants} {
		if object != nil {
			changes[column] = json.RawMessage(object)
		}
	}
	if !in.Given() {
		return changes, nil
	}
	audience, err := in.Audience()
	changes["audience"] = audience
	return changes, err
}

func resumeOperation() operation.Operation {
	return operation.Define(operation.Operation{
		Name: "resume", SQL: "SELECT * FROM belfry.resume(17, 'kim', 'text corrected');", Short: "Let an ABORTED job go on, corrected if need be",
		Usage: jobsOrGroupUsage, Role: operation.Operator, Changes: true, Events: "the job's events",
		Long: `Let an ABORTED job go on: its messages go out again at once, and if its walk is not
complete it is PENDING, and the next run continues from its cursor. If the walk is
complete the job is PROCESSED again. Nobody is notified twice.

With --edit the job, which may be FAILED as well, is corrected first: title, body,
data, variants and audience of what is still to come. Notifications that were written
and messages that were sent keep their content (` + "`belfry jobs revisions ID`" + `), messages
that are not sent yet get the new one. The audience stands once the walk is complete. Both are
one act, kept in the job's events. With --group the jobs of the group are corrected
together: a change that one of them does not allow changes none.

` + enqueue.AudienceHelp + groupHelp,
		Example: `  belfry resume 17
  belfry resume 17 --edit --title "Maintenance at ten" --reason "wrong hour"
  belfry resume 17 --edit --platform ios,android
  belfry resume --group 17`,
	}, func(ctx context.Context, env *operation.Env, in resumeInput) (actedJobs, error) {
		ids, group, err := in.find(ctx, env.Jobs)
		if err != nil {
			return actedJobs{}, err
		}
		act := jobsAct{resuming(), env.Jobs.Resume}
		if in.Edit {
			changes, err := in.changes()
			if err != nil {
				return actedJobs{}, err
			}
			act = correction(env.Jobs, changes)
		}
		return act.planned(ctx, env, in.PlanFlags, ids, group, operation.ActBy(env, in))
	}, func(d *text.Doc, in resumeInput, out actedJobs) {
		verb := resuming()
		if in.Edit {
			verb = correcting()
		}
		out.text(d, verb)
	})
}

// correction resumes jobs with changes.
func correction(store *job.Store, changes job.Changes) jobsAct {
	return jobsAct{correcting(), func(ctx context.Context, sel job.Selection, who job.Act) ([]job.Job, error) {
		jobs, err := store.ResumeEdited(ctx, sel, changes, who)
		var bad *job.InvalidError
		if errors.As(err, &bad) { // about the job's column, whatever parameter gave it
			err = operation.RefusedColumn(bad)
		}
		return jobs, err
	}}
}
