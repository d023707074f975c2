package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/job"
)

func newTestSendCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "test-send ID --to CHANNEL",
		Short: "Send a job's content to one channel now, as a test",
		Long: `Send what a job says now to one channel, before all bulk: an activity that names the job
in belfry.activities.test_of. The job itself is not concerned: its counts, its report and
its audit do not know of it, and the channel gets the job all the same. Its words, its
route, opt-outs, quiet hours and caps are those of the job's category.

CHANNEL is an external id, or the id of a channel where no external id is that. A running
daemon or ` + "`belfry relay`" + ` delivers it.`,
		Example: "  belfry jobs test-send 17 --to kim@example.org\n  belfry jobs test-send 17 --to 4711",
		Args:    exactArgs("ID"),
	}
	to := cmd.Flags().String("to", "", "external id, or id, of the `CHANNEL`")
	request := cmd.Flags().String("requested-by", "", "`WHO` asks (default: user@host)")
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := jobID(args[0])
		if err != nil {
			return err
		}
		if *to == "" {
			return usagef("--to CHANNEL is needed: an external id or an id")
		}
		who := *request
		if who == "" {
			who = a.whoami()
		}
		return a.withDatabase(cmd, schemaCurrent, statementDeadline, func(ctx context.Context, s settings, db *database) error {
			j, err := job.NewStore(db.Pool).Get(ctx, id)
			if err != nil {
				return notFound(err)
			}
			if j.Type == "inbox" {
				return usagef("job %d is of type inbox; allowed values: a job with messages, as of type push", id)
			}
			channel, err := findChannel(ctx, s, db, *to)
			if err != nil {
				return err
			}
			return a.testSend(ctx, db, id, channel, who, *asJSON)
		})
	}
	return cmd
}

// findChannel finds a channel by its external id, or by its id.
func findChannel(ctx context.Context, s settings, db *database, name string) (int64, error) {
	store, err := channels.New(s.Channels)
	if err != nil {
		return 0, err
	}
	found, unknown := store.Resolve(ctx, db.Pool, name)
	if unknown == nil {
		return found, nil
	}
	id, err := strconv.ParseInt(name, 10, 64)
	if err != nil {
		return 0, unknown
	}
	people, err := store.RecipientsBare(ctx, db.Pool, []int64{id})
	if err == nil && len(people) == 0 {
		err = fmt.Errorf("%w with external id or id %s in %s", channels.ErrNoChannel, name, store.Relation())
	}
	return id, err
}

func (a *app) testSend(ctx context.Context, db *database, jobID, channel int64, who string, asJSON bool) error {
	var id int64
	if err := db.Pool.QueryRow(ctx, queries.activityTest, pgx.StrictNamedArgs{"job_id": jobID, "channel_id": channel, "requested_by": who}).Scan(&id); err != nil {
		return sendProblem(err, false)
	}
	rows, err := db.Pool.Query(ctx, queries.activityGet, pgx.StrictNamedArgs{"id": id})
	if err != nil {
		return fmt.Errorf("activity %d was sent; read it: %w", id, err)
	}
	sent, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[activity])
	if err != nil {
		return fmt.Errorf("activity %d was sent; read it: %w", id, err)
	}
	if asJSON {
		return a.printJSON(sent)
	}
	a.printf("%d\n", id)
	a.remark("activity %d, a test of job %d, to channel %d; a running daemon or `belfry relay` delivers it", id, jobID, channel)
	return nil
}
