package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/belfryhq/belfry/admin/content"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// resumeInput is the input of `resume`, with Edit also the new content and audience.
type resumeInput struct {
	jobsOrGroup
	Edit     bool               `flag:"edit" help:"correct the job first, with the following flags"`
	Title    *string            `flag:"title" label:"TITLE" help:"with --edit: 1 to 200 characters"`
	Body     *string            `flag:"body" label:"TEXT" help:"with --edit: up to 10,000 characters"`
	Data     content.JSONObject `flag:"data" label:"JSON" help:"with --edit: additional content, an object of up to 16,384 bytes" allowed:"JSON objects of up to 16384 bytes"`
	Variants content.JSONObject `flag:"variants" label:"JSON" file:"true" help:"with --edit: titles and bodies by locale, such as {\"ko\": {\"title\": \"…\", \"body\": \"…\"}}, or a file with it" allowed:"JSON objects of up to 131072 bytes, such as {\"ko\": {\"title\": \"…\", \"body\": \"…\"}}, or a FILE with one"`
	content.AudienceChoice
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
		return operation.Invalid("", "changes of title, body, data, variants and audience require --edit")
	case in.Edit && len(changes) == 0:
		return operation.Invalid("", "--edit requires --title, --body, --data, --variants or an audience")
	}
	return nil
}

// changes returns the corrected columns.
func (in resumeInput) changes() (job.Changes, error) {
	changes := make(job.Changes)
	for column, text := range map[string]*string{"title": in.Title, "body": in.Body} {
		if text != nil {
			changes[column] = *text
		}
	}
	for column, object := range map[string]content.JSONObject{"data": in.Data, "variants": in.Variants} {
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
		Name: "resume", SQL: "SELECT * FROM belfry.resume(17, 'kim', 'text corrected');",
		Short: "Resume an ABORTED job, optionally with corrections",
		Usage: jobsOrGroupUsage, Role: operation.Operator, Changes: true, Events: "the job's events", Deadline: -1,
		Long: `Resume an ABORTED job: its messages are sent again immediately. If its walk is not complete,
the job is PENDING, and the next run continues from its cursor; otherwise it is PROCESSED
again. Each recipient is notified once.

With --edit the job, which may also be FAILED, is corrected first: its title, body, data,
variants and audience. Written notifications and sent messages retain their content
(` + "`belfry jobs revisions ID`" + `), unsent messages get the new content. The audience cannot change
after the end of the walk. The correction and the resume are one transaction. With --group,
the jobs of the group are corrected together: if one of them does not allow the change,
none changes.

` + content.AudienceHelp + groupHelp,
		Example: `  belfry resume 17
  belfry resume 17 --edit --title "Maintenance at ten" --reason "wrong hour"
  belfry resume 17 --edit --platform ios,android
  belfry resume --group 17`,
	}, func(ctx context.Context, env *operation.Env, in resumeInput) (jobsResult, error) {
		ids, group, err := in.find(ctx, env.Jobs)
		if err != nil {
			return jobsResult{}, err
		}
		act := jobsAct{resuming(), env.Jobs.Resume}
		if in.Edit {
			changes, err := in.changes()
			if err != nil {
				return jobsResult{}, err
			}
			act = correction(env.Jobs, changes)
		}
		return act.run(ctx, env, in.PlanFlags, ids, group, operation.ActBy(env, in))
	}, func(d *text.Doc, in resumeInput, out jobsResult) {
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
		if errors.As(err, &bad) { // an error of the job's column, with any parameter
			err = operation.RefusedColumn(bad)
		}
		return jobs, err
	}}
}
