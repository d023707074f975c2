package main

import (
	"bufio"
	"context"
	"encoding/csv"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/internal/settings"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

func newJobsReportCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "report ID",
		Short: "Write what became of each message of a job, as CSV",
		Long: `Write what became of each message of a job, a line each, in the order of the channels'
ids: external_id (empty: the channel is there no more), channel_id, medium, sender (that
took it), status, reason, attempts by that medium, and the times due_at (of those that
wait), sent_at and dead_at, in UTC. It reads page by page, whatever the size of the job;
a job that is being delivered is reported as each page was when it was read.

An inbox job has no messages: ` + "`belfry jobs audit`" + ` says who got its notifications.`,
		Example: `  belfry jobs report 17 -o csv >report.csv`,
		Args:    exactArgs("ID"),
	}
	format := cmd.Flags().StringP("output", "o", "csv", "`FORMAT` of the report: csv")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := jobID(args[0])
		if err != nil {
			return err
		}
		if *format != "csv" {
			return usagef("invalid argument %q for \"-o, --output\" flag: allowed values: csv", printer.OneLine(*format, 60))
		}
		return a.withDatabase(cmd, schemaCurrent, 0, func(ctx context.Context, s settings.Settings, db *database) error {
			store, err := channels.New(s.Channels)
			if err != nil {
				return err
			}
			if _, err := job.NewStore(db.Pool).Get(ctx, id); err != nil {
				return notFound(err)
			}
			return a.writeReport(ctx, db, store, id)
		})
	}
	return cmd
}

func (a *app) writeReport(ctx context.Context, db *database, store *channels.Store, id int64) error {
	buffer := bufio.NewWriter(a.stdout)
	out := csv.NewWriter(buffer)
	err := out.Write([]string{"external_id", "channel_id", "medium", "sender", "status", "reason", "attempts", "due_at", "sent_at", "dead_at"})
	if err != nil {
		return err
	}
	var lines int64
	err = outbox.EachMessage(ctx, db.Pool, store, id, func(l outbox.ReportLine) error {
		lines++
		return out.Write([]string{
			l.ExternalID, printer.Int(l.ChannelID), l.Medium, l.Sender, string(l.Status), l.Reason, printer.Int(int64(l.Attempts)),
			stamp(l.DueAt), stamp(l.SentAt), stamp(l.DeadAt),
		})
	})
	if err != nil {
		return err
	}
	out.Flush()
	if err := out.Error(); err != nil {
		return err
	}
	if lines == 0 {
		a.remark("job %d has no messages", id)
	}
	return buffer.Flush()
}

// stamp is an instant as a spreadsheet reads it; "" for none.
func stamp(t *time.Time) string {
	if t == nil {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}
