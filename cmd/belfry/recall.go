package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

func newRecallCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "recall {ID... | --group GROUP}",
		Short: "Take back what a job wrote and nobody has seen yet",
		Long: `Take back what an ABORTED, PROCESSED or FAILED job wrote: messages that are not sent
are cancelled, notifications that are not read are withdrawn, in bounded chunks. What
was sent or read stays, and is counted. Messages that a relay has in flight are counted
apart: those whose call is under way are sent or die, and the others become CANCELLED a
moment later, which ` + "`belfry jobs show`" + ` counts. With --group every such job of the group.

Interrupted, it leaves what it took back taken back; repeating it goes on.

` + groupHelp,
		Example: `  belfry recall 17 --reason "wrong link"
  belfry abort 17 --recall --reason "wrong link"
  belfry recall --group 17 --json`,
	}
	group := addGroupFlag(cmd.Flags(), "every job of this group")
	who := addActFlags(a, cmd, "the jobs' events")
	asJSON := addJSON(cmd)
	cmd.Args = idsOrGroup(group)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ids, err := jobIDs(args)
		if err != nil {
			return err
		}
		acted, err := a.recall(cmd, ids, group.value, who(), *asJSON)
		if *asJSON && (err == nil || len(acted) > 0) {
			return errors.Join(a.printJSON(emptyList(acted)), err)
		}
		return err
	}
	return cmd
}

// recall takes jobs back, one after the other, and prints what that did unless quiet.
// One that cannot be recalled does not keep the others from it.
func (a *app) recall(cmd *cobra.Command, ids []int64, group *groupRef, who job.Act, quiet bool) (acted []actedJob, err error) {
	err = a.withDatabase(cmd, schemaCurrent, 0, func(ctx context.Context, _ settings, db *database) error {
		store := job.NewStore(db.Pool)
		ids, members, err := actedOn(ctx, store, ids, group)
		if err == nil && members != nil {
			ids, err = recallable(ctx, store, *members)
		}
		if err != nil {
			return notFound(err)
		}
		var errs []error
		for _, id := range ids {
			one, err := a.recallOne(ctx, store, db, id, who)
			if one.Recall != nil {
				acted = append(acted, one)
				if !quiet {
					a.printf("%s\n", recalled(one))
				}
			}
			errs = append(errs, notFound(err))
			if ctx.Err() != nil {
				break
			}
		}
		return errors.Join(errs...)
	})
	return acted, err
}

// recallable lists the jobs of a group that can be recalled, oldest first.
func recallable(ctx context.Context, store *job.Store, group uuid.UUID) ([]int64, error) {
	members, err := store.List(ctx, job.Filter{GroupID: &group, Limit: maxGroup})
	if err != nil {
		return nil, err
	}
	if len(members) == 0 {
		return nil, fmt.Errorf("group %s: %w", group, job.ErrNotFound)
	}
	var ids []int64
	for _, j := range members {
		if j.Status == job.Aborted || j.Status == job.Processed || j.Status == job.Failed {
			ids = append(ids, j.ID)
		}
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("group %s has no job that is ABORTED, PROCESSED or FAILED; abort it first", group)
	}
	slices.Sort(ids)
	return ids, nil
}

func (a *app) recallOne(ctx context.Context, store *job.Store, db *database, id int64, who job.Act) (actedJob, error) {
	show := a.newProgress()
	defer show.end()
	done, err := outbox.Recall(ctx, db.Pool, id, who, func(p outbox.RecallProgress) {
		if show.width != nil {
			show.line(fmt.Sprintf("job %d: %s looked at, %s recalled", id, printer.Grouped(p.Looked), printer.Counted(p.Messages+p.Notifications, "row")))
		}
	})
	show.end()
	if err != nil && done == (outbox.Recalled{}) {
		return actedJob{}, err
	}
	j, getErr := store.Get(context.WithoutCancel(ctx), id)
	return actedJob{Job: j, Recall: &done}, errors.Join(err, getErr)
}

// recalled is one line about what a recall did.
func recalled(one actedJob) string {
	r := one.Recall
	text := fmt.Sprintf("%s: %s withdrawn, %s read before; %s cancelled, %s sent, %s dead",
		admin.JobLabel(one.Job), printer.Counted(r.Notifications, "notification"), printer.Grouped(r.Read), printer.Counted(r.Messages, "message"), printer.Grouped(r.Sent), printer.Grouped(r.Dead))
	if r.Awaiting > 0 {
		text += fmt.Sprintf(", %s with the provider, whose receipts are awaited", printer.Grouped(r.Awaiting))
	}
	if r.InFlight > 0 {
		text += fmt.Sprintf("; %s in flight, sent only if their call was under way: `belfry jobs show %d` counts them in a moment", printer.Grouped(r.InFlight), one.ID)
	}
	return text
}
