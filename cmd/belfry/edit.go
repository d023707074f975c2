package main

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/job"
)

// editFlags are what `belfry resume --edit` may correct.
type editFlags struct {
	edit                        *bool
	title, body, data, variants *string
	audience                    audienceFlags
}

func addEditFlags(cmd *cobra.Command) editFlags {
	f := cmd.Flags()
	return editFlags{
		edit:     f.Bool("edit", false, "correct the job first, with the flags that follow"),
		title:    f.String("title", "", "with --edit: `TITLE`, 1 to 200 characters"),
		body:     f.String("body", "", "with --edit: `TEXT`, up to 10,000 characters"),
		data:     f.String("data", "", "with --edit: further content as a `JSON` object, up to 16,384 bytes"),
		variants: addVariants(cmd, "with --edit: "),
		audience: addAudienceFlags(cmd),
	}
}

// changes returns what the flags correct; nil without any.
func (e editFlags) changes(a *app, cmd *cobra.Command) (job.Changes, error) {
	changes := make(job.Changes)
	for column, text := range map[string]*string{"title": e.title, "body": e.body} {
		if cmd.Flags().Changed(column) {
			changes[column] = *text
		}
	}
	if cmd.Flags().Changed("data") {
		data, err := dataOf(*e.data)
		if err != nil {
			return nil, err
		}
		changes["data"] = data
	}
	if cmd.Flags().Changed("variants") {
		variants, err := variantsOf(*e.variants)
		if err != nil {
			return nil, err
		}
		changes["variants"] = variants
	}
	if e.audience.given(cmd) {
		audience, err := e.audience.audience(a, cmd)
		if err != nil {
			return nil, err
		}
		changes["audience"] = audience
	}
	return changes, nil
}

// adjust makes resume one that corrects, if --edit was given.
func (e editFlags) adjust(a *app, cmd *cobra.Command, o operatorAct) (operatorAct, error) {
	changes, err := e.changes(a, cmd)
	switch {
	case err != nil:
		return o, err
	case !*e.edit && len(changes) > 0:
		return o, usagef("title, body, data, variants and audience are corrected with --edit only; allowed values: --edit with at least one of them, or none")
	case !*e.edit:
		return o, nil
	case len(changes) == 0:
		return o, usagef("--edit needs what to correct: --title, --body, --data, --variants or an audience")
	}
	if _, err := json.Marshal(changes); err != nil {
		return o, usagef("--edit: %w", err)
	}
	o.one = func(store *job.Store, ctx context.Context, id int64, who job.Act) (job.Job, error) {
		j, err := store.ResumeEdited(ctx, id, changes, who)
		return j, columnProblem(err)
	}
	o.group = func(store *job.Store, ctx context.Context, group uuid.UUID, who job.Act) ([]job.Job, error) {
		members, err := store.List(ctx, job.Filter{GroupID: &group, Limit: maxGroup})
		if err != nil {
			return nil, err
		}
		if len(members) == 0 { // says so as the others do
			return store.ResumeGroup(ctx, group, who)
		}
		var done []job.Job
		var errs []error
		for i := len(members) - 1; i >= 0; i-- { // oldest first
			j, err := o.one(store, ctx, members[i].ID, who)
			if err == nil {
				done = append(done, j)
			}
			errs = append(errs, err)
		}
		err = errors.Join(errs...)
		if len(done) > 0 && onlyWrongStatus(errs) { // as with a group that is resumed: the others stay as they are
			err = nil
		}
		return done, err
	}
	return o, nil
}

// maxGroup bounds a group that is corrected: it has a job for each type.
const maxGroup = 1000

// onlyWrongStatus reports whether every error is one of a job whose status does not
// allow the act.
func onlyWrongStatus(errs []error) bool {
	for _, err := range errs {
		var wrong *job.WrongStatusError
		if err != nil && !errors.As(err, &wrong) {
			return false
		}
	}
	return true
}

// columnProblem makes a value that the database refused a matter of usage, and
// names its key.
func columnProblem(err error) error {
	var invalid *job.InvalidError
	if !errors.As(err, &invalid) {
		return err
	}
	text := strings.TrimPrefix(invalid.Message, "belfry.jobs.")
	return &exitError{codeUsage, errors.New(withHint(text, invalid.Hint))}
}
