package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"reflect"

	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/settings"
	"github.com/belfryhq/belfry/internal/sheet"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

func newJobsReportCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "report ID",
		Short: "Write what became of each message of a job, as CSV or as JSON",
		Long: `Write what became of each message of a job, a line each, in the order of the channels'
ids: external_id (empty: the channel is there no more), channel_id, medium, sender (that
took it), status, reason, attempts by that medium, and the times due_at (of those that
wait), sent_at and dead_at, in UTC. It reads page by page, whatever the size of the job;
a job that is being delivered is reported as each page was when it was read.

With -o json it writes a document to a line.

An inbox job has no messages: ` + "`belfry jobs audit`" + ` says who got its notifications.`,
		Example: `  belfry jobs report 17 -o csv >report.csv`,
		Args:    exactArgs("ID"),
	}
	out := addForms(cmd, sheet.RecordsOf(reflect.TypeFor[outbox.ReportLine]()), asCSV, asJSON)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := jobID(args[0])
		if err != nil {
			return err
		}
		return a.withDatabase(cmd, schemaCurrent, 0, func(ctx context.Context, s settings.Settings, db *database) error {
			store, err := channels.New(s.Channels)
			if err != nil {
				return err
			}
			if _, err := job.NewStore(db.Pool).Get(ctx, id); err != nil {
				return notFound(err)
			}
			return a.writeReport(ctx, db, store, id, out)
		})
	}
	return cmd
}

func (a *app) writeReport(ctx context.Context, db *database, store *channels.Store, id int64, out *output) error {
	var lines int64
	rows, buffer := a.newRows(out), bufio.NewWriter(a.stdout)
	documents := json.NewEncoder(buffer)
	err := outbox.EachMessage(ctx, db.Pool, store, id, func(l outbox.ReportLine) error {
		lines++
		if out.json() {
			return documents.Encode(l)
		}
		return rows.add(l)
	})
	if err == nil && !out.json() {
		err = rows.end()
	}
	err = errors.Join(err, buffer.Flush())
	if err == nil && lines == 0 {
		a.remark("job %d has no messages", id)
	}
	return err
}
