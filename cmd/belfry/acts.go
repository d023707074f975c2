package main

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/job"
)

// operatorAct is abort, resume or retry.
type operatorAct struct {
	name, short, long string
	one               func(*job.Store, context.Context, int64, job.Act) (job.Job, error)
	group             func(*job.Store, context.Context, uuid.UUID, job.Act) ([]job.Job, error)
}

func newAbortCommand(a *app) *cobra.Command {
	return newActCommand(a, operatorAct{
		name: "abort", short: "Stop a PENDING or RUNNING job at once",
		long: `Stop a PENDING or RUNNING job at once. When the command has returned, no further
row of the job is committed. No runner has to be alive for that.

The same by SQL: UPDATE belfry.jobs SET abort_requested = true WHERE id = 17;`,
		one: (*job.Store).Abort, group: (*job.Store).AbortGroup,
	})
}

func newResumeCommand(a *app) *cobra.Command {
	return newActCommand(a, operatorAct{
		name: "resume", short: "Let an ABORTED job go on from its cursor",
		long: `Let an ABORTED job go on from its cursor: it is PENDING again, and the next run
continues where the last one stopped. Nobody is notified twice.`,
		one: (*job.Store).Resume, group: (*job.Store).ResumeGroup,
	})
}

func newRetryCommand(a *app) *cobra.Command {
	return newActCommand(a, operatorAct{
		name: "retry", short: "Try a FAILED job again from its cursor",
		long: `Try a FAILED job again from its cursor: it is PENDING again. ` + "`belfry jobs show`" + `
says what went wrong.`,
		one: (*job.Store).Retry, group: (*job.Store).RetryGroup,
	})
}

func newActCommand(a *app, act operatorAct) *cobra.Command {
	cmd := &cobra.Command{
		Use:   act.name + " {ID... | --group UUID}",
		Short: act.short,
		Long:  act.long,
		Example: "  belfry " + act.name + ` 17 --reason "wrong link"
  belfry ` + act.name + " --group 3f2b8c1e-7a90-4f0d-9c61-2b1f6d5e8a74",
	}
	group := flagOf(cmd.Flags(), "group", "UUID", "every job of this group", parseGroup)
	reason := cmd.Flags().String("reason", "", "why, kept in the job's events")
	actor := cmd.Flags().String("actor", "", "who, kept in the job's events (default: user@host)")
	asJSON := addJSON(cmd)
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if (len(args) > 0) == (group.value != nil) {
			return usagef("%s takes either the ids of jobs or --group UUID", named(cmd))
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ids := make([]int64, 0, len(args))
		for _, arg := range args {
			id, err := jobID(arg)
			if err != nil {
				return err
			}
			ids = append(ids, id)
		}
		who := job.Act{Actor: *actor, Reason: *reason}
		if who.Actor == "" {
			who.Actor = a.whoami()
		}
		return a.withDatabase(cmd, schemaCurrent, statementDeadline, func(ctx context.Context, _ settings, db *database) error {
			jobs, err := act.apply(ctx, job.NewStore(db.Pool), ids, group.value, who)
			if *asJSON && (err == nil || len(jobs) > 0) {
				return errors.Join(a.printJSON(emptyList(jobs)), notFound(err))
			}
			for _, j := range jobs {
				a.printf("%s\n", standing(j))
			}
			return notFound(err)
		})
	}
	return cmd
}

// apply acts on each job by itself, so that one that cannot be aborted does not
// keep the others from it, and returns those it acted on; a group is all or none.
func (o operatorAct) apply(ctx context.Context, store *job.Store, ids []int64, group *uuid.UUID, who job.Act) ([]job.Job, error) {
	if group != nil {
		return o.group(store, ctx, *group, who)
	}
	var jobs []job.Job
	var errs []error
	for _, id := range ids {
		j, err := o.one(store, ctx, id, who)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		jobs = append(jobs, j)
	}
	return jobs, errors.Join(errs...)
}

// standing is one line about where a job is.
func standing(j job.Job) string {
	line := "job " + itoa(j.ID) + " (" + j.Type + ") " + string(j.Status)
	switch j.Status {
	case job.Processed:
		line += ": " + counted(j.RowsWritten, "row")
	case job.Aborted, job.Failed, job.Pending:
		if j.Cursor != "" {
			line += " at cursor " + j.Cursor + ", " + counted(j.RowsWritten, "row") + " written"
		}
	case job.Running:
		line += " on " + j.Runner
	}
	return line + nextStep(j)
}
