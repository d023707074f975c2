package main

import (
	"context"
	"errors"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// operatorAct is abort, resume or retry.
type operatorAct struct {
	name, short, long, example string
	one                        func(*job.Store, context.Context, int64, job.Act) (job.Job, error)
	group                      func(*job.Store, context.Context, uuid.UUID, job.Act) ([]job.Job, error)
	// with opens the database; abort does so in its own way.
	with func(*cobra.Command, func(context.Context, settings, *job.Store, *database) error) error
	// adjust returns the act as the command's own flags want it; nil: it has none.
	adjust func(operatorAct) (operatorAct, error)
	// recall takes back what the jobs wrote, once they are acted on.
	recall bool
}

// actedJob is the JSON of one job that was acted on.
type actedJob struct {
	job.Job

	Recall *outbox.Recalled `json:"recall,omitempty"` // only where it was recalled
}

func newAbortCommand(a *app) *cobra.Command {
	var recall *bool
	cmd := newActCommand(a, operatorAct{
		name: "abort", short: "Stop a job at once, in its walk or while its messages go out",
		long: `Stop a job at once. When the command has returned, no further row of the job is
committed, and no message of it that was not handed to a provider is sent: they are
held until it is resumed. No runner or relay has to be alive for that. A job that is
PROCESSED or FAILED is stopped as well, as long as messages of it are left. With --recall, unsent messages are then cancelled and unread notifications
withdrawn, with --group also those of its jobs that are PROCESSED already.

With abort.cache the job is flagged there first: a run stops before its next chunk
although the database does not answer. The command says so and ends with exit code
69; repeat it when the database is back.

The same by SQL: UPDATE belfry.jobs SET abort_requested = true WHERE id = 17;`,
		example: `  belfry abort 17 --reason "wrong link"
  belfry abort --group 17 --recall`,
		one: (*job.Store).Abort, group: (*job.Store).AbortGroup, with: a.withUnaskedStore,
		adjust: func(o operatorAct) (operatorAct, error) {
			o.recall = *recall
			return o, nil
		},
	})
	recall = cmd.Flags().Bool("recall", false, "then take back what nobody has seen yet, as belfry recall does")
	return cmd
}

func newResumeCommand(a *app) *cobra.Command {
	var edit editFlags
	act := operatorAct{
		name: "resume", short: "Let an ABORTED job go on, corrected if need be",
		long: `Let an ABORTED job go on: its messages go out again at once, and if its walk is not
complete it is PENDING, and the next run continues from its cursor. If the walk is
complete the job is PROCESSED again. Nobody is notified twice.

With --edit the job, which may be FAILED as well, is corrected first: title, body,
data, variants and audience of what is still to come. Notifications that were written
and messages that were sent keep their content (` + "`belfry jobs revisions ID`" + `), messages
that are not sent yet get the new one. The audience stands once the walk is complete. Both are
one act, kept in the job's events. With --group each job of the group is corrected
by itself.

` + audienceHelp,
		example: `  belfry resume 17
  belfry resume 17 --edit --title "Maintenance at ten" --reason "wrong hour"
  belfry resume 17 --edit --platform ios,android
  belfry resume --group 17`,
		one: (*job.Store).Resume, group: (*job.Store).ResumeGroup, with: a.withStored,
	}
	var cmd *cobra.Command
	act.adjust = func(o operatorAct) (operatorAct, error) { return edit.adjust(a, cmd, o) }
	cmd = newActCommand(a, act)
	edit = addEditFlags(cmd)
	return cmd
}

func newRetryCommand(a *app) *cobra.Command {
	return newActCommand(a, operatorAct{
		name: "retry", short: "Try a FAILED or EXPIRED job again from its cursor",
		long: `Try a FAILED job again from its cursor: it is PENDING again. ` + "`belfry jobs show`" + `
says what went wrong; ` + "`belfry resume ID --edit`" + ` corrects it on the way.

An EXPIRED job is tried again once its time is lifted or lies ahead:
belfry jobs set 17 expires_at=+2h`,
		example: `  belfry retry 17 --reason "disk is bigger now"
  belfry retry --group 17`,
		one: (*job.Store).Retry, group: (*job.Store).RetryGroup, with: a.withStored,
	})
}

func newActCommand(a *app, act operatorAct) *cobra.Command {
	cmd := &cobra.Command{
		Use:     act.name + " {ID... | --group GROUP}",
		Short:   act.short,
		Long:    act.long + "\n\n" + groupHelp,
		Example: act.example,
	}
	group := addGroupFlag(cmd.Flags(), "every job of this group")
	who := addActFlags(a, cmd, "the job's events")
	asJSON := addJSON(cmd)
	cmd.Args = idsOrGroup(group)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ids, err := jobIDs(args)
		if err != nil {
			return err
		}
		do := act
		if act.adjust != nil {
			if do, err = act.adjust(act); err != nil {
				return err
			}
		}
		var jobs []job.Job
		var members *uuid.UUID
		err = do.with(cmd, func(ctx context.Context, _ settings, store *job.Store, _ *database) (err error) {
			if ids, members, err = actedOn(ctx, store, ids, group.value); err == nil {
				jobs, err = do.apply(ctx, store, ids, members, who())
			}
			return notFound(err)
		})
		return a.showActed(cmd, do, jobs, members, who(), *asJSON, flaggedProblem(err))
	}
	return cmd
}

// showActed prints the jobs that were acted on, and recalls them if that is wanted.
// err is what went wrong with others.
func (a *app) showActed(cmd *cobra.Command, act operatorAct, jobs []job.Job, group *uuid.UUID, who job.Act, asJSON bool, err error) error {
	acted := make([]actedJob, 0, len(jobs))
	ids := make([]int64, 0, len(jobs))
	for _, j := range jobs {
		acted, ids = append(acted, actedJob{Job: j}), append(ids, j.ID)
		if !asJSON {
			a.printf("%s\n", admin.StatusLine(j))
		}
	}
	if act.recall && len(jobs) > 0 {
		var all *groupRef
		if group != nil {
			all = &groupRef{id: *group}
		}
		recalled, recallErr := a.recall(cmd, ids, all, who, asJSON)
		for i, j := range acted {
			for _, r := range recalled {
				if r.ID == j.ID {
					acted[i] = r
				}
			}
		}
		err = errors.Join(err, recallErr)
	}
	if asJSON && (err == nil || len(acted) > 0) {
		return errors.Join(a.printJSON(acted), err)
	}
	return err
}

// flaggedProblem gives an abort that only the abort cache has taken the exit code
// of a database that does not answer, whatever kept it from answering.
func flaggedProblem(err error) error {
	var flagged *job.FlaggedError
	if errors.As(err, &flagged) {
		names := make([]string, len(flagged.JobIDs))
		for i, id := range flagged.JobIDs {
			names[i] = printer.Int(id)
		}
		return &exitError{codeUnavailable, withAdvice(err, "repeat `belfry abort "+strings.Join(names, " ")+"` when the database answers")}
	}
	return err
}

// apply acts on each job by itself, so that one that cannot be aborted does not
// keep the others from it, and returns those it acted on; a group is all or none.
func (o operatorAct) apply(ctx context.Context, store *job.Store, ids []int64, group *uuid.UUID, who job.Act) ([]job.Job, error) {
	if group != nil {
		jobs, err := o.group(store, ctx, *group, who)
		return jobs, recallInstead(err, "--group "+group.String())
	}
	var jobs []job.Job
	var errs []error
	for _, id := range ids {
		j, err := o.one(store, ctx, id, who)
		if err != nil {
			errs = append(errs, recallInstead(err, printer.Int(id)))
			continue
		}
		jobs = append(jobs, j)
	}
	return jobs, errors.Join(errs...)
}

// recallInstead says what is left to do where an abort comes too late: the job's rows
// are written, and its messages are sent.
func recallInstead(err error, of string) error {
	var wrong *job.WrongStatusError
	if !errors.As(err, &wrong) || wrong.Act != "abort" || !wrong.Delivered || wrong.Status != job.Processed {
		return err
	}
	return withAdvice(err, "`belfry recall "+of+"` takes back notifications that are not read yet")
}
