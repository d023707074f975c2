package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/outbox"
)

// pruneReport is the JSON of `belfry prune`.
type pruneReport struct {
	DryRun        bool  `json:"dry_run"`
	Notifications int64 `json:"notifications"`
	Messages      int64 `json:"messages"`
	Jobs          int64 `json:"jobs"`
	Events        int64 `json:"events"`
}

func newPruneCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Delete what is older than its retention",
		Long: `Delete notifications of jobs that ended longer ago than retention allows, messages that
were sent, died or were cancelled longer ago, then jobs of which nothing is left with
their events, and old events of lanes, schedules and retention, in bounded steps.
Jobs that wait or run, and messages that are not delivered, stay, and those of a
category with a cap for as long as the cap looks back. A daemon does the same every
retention.interval; any number of them at once does no harm. Interrupted, it leaves
deleted what it deleted; repeating it goes on.`,
		Example: `  belfry prune --dry-run
  belfry prune
  belfry prune --older-than 90d --reason "disk is full"`,
		Args: noArgs,
	}
	dry := cmd.Flags().Bool("dry-run", false, "only count what would be deleted")
	age := flagOf(cmd.Flags(), "older-than", "AGE", "delete everything older than this, as 90d or 36h, whatever retention says; what a cap counts stays", parseAge)
	who := addActFlags(a, cmd, "the events of retention")
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.withDatabase(cmd, schemaCurrent, 0, func(ctx context.Context, s settings, db *database) error {
			r := s.Retention
			if age.value != nil {
				r.Notifications, r.Messages, r.Jobs, r.Events = *age.value, *age.value, *age.value, *age.value
			}
			if r.Off() && !*asJSON {
				a.remark("retention keeps everything permanently: set retention.notifications, messages, jobs or events, or say --older-than 90d")
			}
			show := a.newProgress()
			defer show.end()
			pruned, err := outbox.Prune(ctx, db.Pool, r, outbox.PruneOptions{DryRun: *dry, Act: who(), Observe: func(p outbox.Pruned) {
				if show.width != nil {
					show.line(prunedLine("so far", p))
				}
			}})
			show.end()
			if *asJSON {
				return errors.Join(a.printJSON(pruneReport{*dry, pruned.Notifications, pruned.Messages, pruned.Jobs, pruned.Events}), err)
			}
			what := "deleted"
			if *dry {
				what = "would delete"
			}
			a.printf("%s\n", prunedLine(what, pruned))
			return err
		})
	}
	return cmd
}

func prunedLine(what string, p outbox.Pruned) string {
	return fmt.Sprintf("%s: %s, %s, %s, %s", what, printer.Counted(p.Notifications, "notification"), printer.Counted(p.Messages, "message"), printer.Counted(p.Jobs, "job"), printer.Counted(p.Events, "event"))
}

// parseAge parses durations of a minute to a hundred years, also in days.
func parseAge(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if days, ok := strings.CutSuffix(text, "d"); ok {
		var n int
		n, err = strconv.Atoi(days)
		d = time.Duration(min(n, 1_000_000)) * 24 * time.Hour
	}
	if err != nil || d < time.Minute || d > 36_500*24*time.Hour {
		return 0, errors.New("allowed values: 1m to 36500d, with the unit, as 90d, 36h or 1h30m")
	}
	return d, nil
}
