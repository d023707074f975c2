package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/internal/settings"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// adoptReport is the JSON of `belfry adopt`.
type adoptReport struct {
	outbox.Installation

	Changed bool           `json:"changed"` // by this command
	Backlog outbox.Backlog `json:"backlog"`
}

// errNotAsked is what `belfry adopt` ends with where nobody has agreed.
var errNotAsked = usagef("nothing was changed; say --yes if messages are to leave from here, once a relay runs")

func newAdoptCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "adopt",
		Short: "Let messages leave a database that was restored, copied or moved",
		Long: `Let messages leave a database that was restored from a dump, copied or moved.

The database knows on which server (its system identifier, where the server tells it)
and in which database (its oid) belfry was made. Anywhere else no relay takes a message:
a copy would send what the original sends, to the same people. Relays that wait say so
in their log, belfry doctor fails, and belfry run --deliver ends with exit code 78. Jobs
are walked all the same. A standby that was promoted is where it was; a restored dump,
CREATE DATABASE … TEMPLATE and pg_upgrade are not. A copy of the server's files cannot
be told from the original: docs/operations.md says what to do about it.

The command shows where belfry was made, where it is now, and what would leave, and asks
on a terminal; with --json it does not ask. With --yes, or an answer of yes, relays go on
at once, by themselves. To keep what waits
from being sent, abort or recall the jobs first.

The same by SQL: SELECT belfry.adopt('ann', 'moved to the new server');
Back, so that nothing leaves: UPDATE belfry.installation SET database_oid = NULL;`,
		Example: `  belfry adopt
  belfry adopt --yes --reason "moved to the new server"`,
		Args: noArgs,
	}
	yes := cmd.Flags().Bool("yes", false, "adopt without asking")
	who := addActFlags(a, cmd, "belfry.events")
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.adopt(cmd, *yes, *asJSON, who)
	}
	return cmd
}

// adopt shows what would leave the database, asks unless the answer is known, and adopts it.
func (a *app) adopt(cmd *cobra.Command, yes, asJSON bool, who func() job.Act) error {
	var report adoptReport
	err := a.withDatabase(cmd, schemaCurrent, statementDeadline, func(ctx context.Context, _ settings.Settings, db *database) (err error) {
		if report.Installation, err = outbox.ReadInstallation(ctx, db.Pool); err != nil {
			return err
		}
		report.Backlog, err = outbox.ReadBacklog(ctx, db.Pool)
		return err
	})
	if err != nil {
		return err
	}
	if report.Adopted {
		if asJSON {
			return a.printJSON(report)
		}
		a.printf("nothing to adopt: belfry was made or adopted here, in %s\n", report.Here)
		return nil
	}
	if !asJSON {
		a.showAdoption(report)
	}
	switch {
	case yes:
	case asJSON: // nobody is asked who is not shown what would leave
		return errors.Join(a.printJSON(report), errNotAsked)
	default:
		if agreed, err := a.agreed(cmd.Context(), "Adopt it?"); err != nil {
			return err
		} else if !agreed {
			return errNotAsked
		}
	}
	err = a.withDatabase(cmd, schemaCurrent, statementDeadline, func(ctx context.Context, _ settings.Settings, db *database) (err error) {
		report.Installation, err = outbox.Adopt(ctx, db.Pool, who())
		return err
	})
	if err != nil {
		return err
	}
	report.Changed = true
	if asJSON {
		return a.printJSON(report)
	}
	a.printf("adopted: relays deliver from %s\n", report.Here)
	return nil
}

// showAdoption says what an adoption would do.
func (a *app) showAdoption(r adoptReport) {
	a.printf("made on  %s\nnow on   %s\n", r.Made, r.Here)
	var lines []string
	for _, age := range r.Backlog.Ages {
		when := "earlier"
		switch {
		case age.Within != nil && *age.Within <= time.Hour:
			when = "in the last hour"
		case age.Within != nil && *age.Within <= 24*time.Hour:
			when = "in the last 24 hours"
		case age.Within != nil:
			when = "in the last 7 days"
		}
		lines = append(lines, fmt.Sprintf("%s of %s enqueued %s", printer.Counted(age.Messages, "message"), printer.Counted(age.Jobs, "job"), when))
	}
	if n := r.Backlog.Activities; n > 0 {
		lines = append(lines, printer.Counted(n, "message")+" of activities")
	}
	if n := r.Backlog.Unwalked; n > 0 {
		lines = append(lines, "what "+printer.Counted(n, "job")+" that are PENDING or RUNNING will write")
	}
	if n := r.Backlog.Schedules; n > 0 {
		lines = append(lines, "what "+printer.Counted(n, "schedule")+" will enqueue")
	}
	if len(lines) == 0 {
		lines = []string{"nothing that waits now"}
	}
	a.printf("adopted, relays send:\n  %s\n", strings.Join(lines, "\n  "))
}
