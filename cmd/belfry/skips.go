package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/job"
)

func newJobsSkipsCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "skips ID",
		Short: "List the recipients that a job skipped, and why",
		Long: `List the recipients that a job skipped because their rows cannot be written,
with the error. ` + "`belfry jobs retry-skipped ID`" + ` tries them again once the cause is fixed.
KEY is the channel's id, for a job type of your own the key it walks.`,
		Example: `  belfry jobs skips 17
  belfry jobs skips 17 --json --limit 1000 --after 4711`,
		Args: exactArgs("ID"),
	}
	limit := flagOf(cmd.Flags(), "limit", "N", "at most so many, 1 to 1000 (default 100)", intBetween(1, 1000))
	after := cmd.Flags().String("after", "", "only those after this `KEY`, for the next page")
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := jobID(args[0])
		if err != nil {
			return err
		}
		return a.withStored(cmd, func(ctx context.Context, _ settings, store *job.Store, _ *database) error {
			n := int(limit.or(100))
			list, err := store.Skips(ctx, id, *after, n+1)
			if err != nil {
				return notFound(err)
			}
			list, more := onePage(list, n)
			if *asJSON {
				return a.printJSON(emptyList(list))
			}
			return a.listSkips(id, *after, list, more)
		})
	}
	return cmd
}

func (a *app) listSkips(id int64, after string, list []job.Skip, more bool) error {
	switch {
	case len(list) == 0 && after != "":
		a.printf("no more recipients were skipped\n")
		return nil
	case len(list) == 0:
		a.printf("job %d skipped nobody\n", id)
		return nil
	}
	t := printer.NewTable("KEY", "SKIPPED", "LAST TRIED", ">ATTEMPTS", "NEXT RUN", "SQLSTATE", "ERROR")
	for _, s := range list {
		next := "-"
		if s.Retry {
			next = "tries again"
		}
		t.Add(printer.OneLine(s.Key, 60), printer.Clock(s.SkippedAt), printer.Clock(s.TriedAt), printer.Int(int64(s.Attempts)), next, s.SQLState, printer.OneLine(s.Error, 200))
	}
	if err := t.Write(a.stdout); err != nil {
		return err
	}
	if more {
		a.remark("there are more: --after %s shows the next page", shellWord(list[len(list)-1].Key))
	}
	return nil
}

// shellWord quotes a text for a shell where it has to be.
func shellWord(text string) string {
	if text != "" && strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.,:/") == "" {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

func newRetrySkippedCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "retry-skipped ID",
		Short: "Have the recipients that a job skipped tried again",
		Long: `Have every recipient that a PROCESSED or FAILED job skipped tried again, and
nobody else but those that a FAILED job has not reached: the job is PENDING, and
the next run does it. Who fails again stays in ` + "`belfry jobs skips ID`" + `.`,
		Example: `  belfry jobs retry-skipped 17 --reason "constraint dropped"`,
		Args:    exactArgs("ID"),
	}
	who := addActFlags(a, cmd, "the job's events")
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := jobID(args[0])
		if err != nil {
			return err
		}
		return a.withStored(cmd, func(ctx context.Context, _ settings, store *job.Store, _ *database) error {
			j, err := store.RetrySkipped(ctx, id, who())
			if err != nil {
				return notFound(err)
			}
			if *asJSON {
				return a.printJSON(j)
			}
			a.printf("%s; %s tried again by the next run\n", statusLine(j), printer.Counted(j.Skipped, "skipped recipient"))
			return nil
		})
	}
	return cmd
}

func newRevisionsCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "revisions ID",
		Short: "Show what a job said, and to whom, before it was corrected",
		Long: `Show what a job said, and to whom, before it was corrected after its walk had begun,
oldest first. The rows up to a revision's cursor, above that of the one before, were
written under it; those above the last were, or will be, written under what
` + "`belfry jobs show ID`" + ` shows. A message says what its job says when it is sent: what that
was, belfry.job_content(ID, CHANNEL) answers by SQL.`,
		Example: "  belfry jobs revisions 17",
		Args:    exactArgs("ID"),
	}
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := jobID(args[0])
		if err != nil {
			return err
		}
		return a.withStored(cmd, func(ctx context.Context, _ settings, store *job.Store, _ *database) error {
			list, err := store.Revisions(ctx, id)
			if err != nil {
				return notFound(err)
			}
			if *asJSON {
				return a.printJSON(emptyList(list))
			}
			if len(list) == 0 {
				a.printf("job %d was never corrected after its walk had begun\n", id)
				return nil
			}
			t := printer.NewTable(">REVISION", "UP TO CURSOR", "REPLACED", "BY", "REASON", "TITLE", "AUDIENCE")
			for _, r := range list {
				t.Add(printer.Int(int64(r.Revision)), r.Cursor, printer.Clock(r.EditedAt), r.EditedBy, printer.OneLine(r.Reason, 60), printer.OneLine(r.Title, 60), printer.OneLine(string(r.Audience), 80))
			}
			return t.Write(a.stdout)
		})
	}
	return cmd
}
