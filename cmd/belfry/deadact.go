package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/outbox"
)

// deadReport is the JSON of a redrive or a discard.
type deadReport struct {
	DryRun bool `json:"dry_run"`
	outbox.DeadDone

	// Counts says of a dry run what would be changed or left, by job, medium and reason.
	Counts []outbox.DeadCount `json:"counts,omitempty"`
}

// deadAct is redrive or discard.
type deadAct struct {
	name, done  string // discard, discarded
	short, long string
	do          func(context.Context, *pgxpool.Pool, outbox.DeadFilter, outbox.DeadOptions) (outbox.DeadDone, error)
	recalled    bool // whether it changes those of recalled jobs too
}

func newDeadRedriveCommand(a *app) *cobra.Command {
	var same *bool
	act := deadAct{
		name: "redrive", done: "redriven", short: "Return every dead letter that matches to the queue",
		long: `Return every dead letter that matches to the queue: it is due at once, begins with the
first medium of its route, and may be tried as often as a new one. With --same-medium it
begins with the medium that it died at. It is the same message: a provider that knows
its idempotency key does not deliver it twice.

Left are letters of jobs that were recalled after they died, and of ABORTED jobs that
retention deletes. Those of other ABORTED jobs are redriven and held until these are
resumed.`,
		do: func(ctx context.Context, pool *pgxpool.Pool, f outbox.DeadFilter, o outbox.DeadOptions) (outbox.DeadDone, error) {
			o.SameMedium = *same
			return outbox.Redrive(ctx, pool, f, o)
		},
	}
	cmd := newDeadActCommand(a, act)
	same = cmd.Flags().Bool("same-medium", false, "go on with the medium that each died at, not with the first")
	return cmd
}

func newDeadDiscardCommand(a *app) *cobra.Command {
	return newDeadActCommand(a, deadAct{
		name: "discard", done: "discarded", short: "Cancel every dead letter that matches, permanently",
		long: `Cancel every dead letter that matches, permanently: it is listed no more, cannot be
redriven, and audits count it as discarded. Left are letters of ABORTED jobs that
retention deletes.`,
		do: outbox.Discard, recalled: true,
	})
}

func newDeadActCommand(a *app, act deadAct) *cobra.Command {
	cmd := &cobra.Command{
		Use:   act.name + " {FILTER... | --all}",
		Short: act.short,
		Long: act.long + `

It goes in bounded steps. Interrupted, it leaves what it did done; repeating it goes on.
--dry-run only counts.

` + deadHelp + deadReasons(),
		Example: "  belfry dead-letters " + act.name + ` --job 17 --dead-reason exhausted --reason "provider was down"` +
			"\n  belfry dead-letters " + act.name + " --medium sms --since 2h --dry-run" +
			"\n  belfry dead-letters " + act.name + " --all",
		Args: noArgs,
	}
	flags := addDeadFlags(a, cmd)
	all := cmd.Flags().Bool("all", false, "every dead letter there is")
	dry := cmd.Flags().Bool("dry-run", false, "only count, by job, medium and reason")
	who := addActFlags(a, cmd, "`belfry dead-letters events`")
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := flags.check(cmd); err != nil {
			return err
		}
		if *all == flags.given(cmd) {
			return usagef("dead-letters %s takes either a filter (--job, --medium, --dead-reason, --since, --until, --channel, --external-id) or --all", act.name)
		}
		return a.withDatabase(cmd, schemaCurrent, 0, func(ctx context.Context, s settings, db *database) error {
			filter, err := flags.filter(ctx, cmd, s, db)
			if err != nil {
				return err
			}
			if *dry {
				return a.countDead(ctx, db, act, filter, *asJSON)
			}
			show := a.newProgress()
			defer show.end()
			done, err := act.do(ctx, db.Pool, filter, outbox.DeadOptions{Act: who(), Observe: func(d outbox.DeadDone) {
				if show.width != nil {
					show.line(act.done + " so far: " + printer.Counted(d.Changed, "message"))
				}
			}})
			show.end()
			err = deadProblem(err)
			if err != nil && done == (outbox.DeadDone{}) {
				return err
			}
			if *asJSON {
				return errors.Join(a.printJSON(deadReport{DeadDone: done}), err)
			}
			a.printf("%s\n", deadLine(act.done, done))
			return err
		})
	}
	return cmd
}

// countDead says what the act would do.
func (a *app) countDead(ctx context.Context, db *database, act deadAct, filter outbox.DeadFilter, asJSON bool) error {
	counts, err := outbox.DeadCounts(ctx, db.Pool, filter)
	if err != nil {
		return deadProblem(err)
	}
	var sum outbox.DeadDone
	for i := range counts {
		c := &counts[i]
		if act.recalled {
			c.Held, c.Recalled = 0, 0
		}
		sum.Looked += c.Letters
		sum.Retention += c.Retention
		sum.Recalled += c.Recalled
		sum.Held += c.Held
		sum.Changed += c.Letters - c.Retention - c.Recalled
	}
	if asJSON {
		return a.printJSON(deadReport{DryRun: true, DeadDone: sum, Counts: counts})
	}
	if len(counts) > 0 {
		t := printer.NewTable(">JOB", "MEDIUM", "REASON", ">LETTERS", ">LEFT")
		for _, c := range counts {
			of := printer.Int(c.JobID)
			if c.JobID == 0 {
				of = "activities"
			}
			t.Add(of, c.Medium, string(c.Reason), printer.Grouped(c.Letters), printer.Grouped(c.Retention+c.Recalled))
		}
		if err := t.Write(a.stdout); err != nil {
			return err
		}
	}
	a.printf("%s\n", deadLine("would be "+act.done, sum))
	return nil
}

// deadLine is one line about what an act did.
func deadLine(what string, d outbox.DeadDone) string {
	line := what + ": " + printer.Counted(d.Changed, "message")
	if d.Held > 0 {
		line += fmt.Sprintf(", %s of them held until their job is resumed", printer.Grouped(d.Held))
	}
	var left []string
	if d.Recalled > 0 {
		left = append(left, printer.Grouped(d.Recalled)+" of jobs that were recalled")
	}
	if d.Retention > 0 {
		left = append(left, printer.Grouped(d.Retention)+" that retention deletes")
	}
	if len(left) > 0 {
		line += "; left: " + strings.Join(left, ", ")
	}
	return line
}
