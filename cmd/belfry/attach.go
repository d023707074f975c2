package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/printer"
)

// attachWait bounds how long attach and detach look for a moment without writers.
const attachWait = 10 * time.Minute

func newChannelsAttachCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "attach RELATION --external-id COLUMN",
		Short: "Have belfry.channels follow a table of the application, of uuid or text keys",
		Long: `Have belfry.channels follow a table of the application, whose keys may be uuid, text or
integers. Triggers on RELATION write the channel in the same transaction as its row.
What was there before is brought over in steps of a transaction each, in the order of
COLUMN's unique index, without a lock on any row of the application. An interrupted
attach is repeated: it goes on where it was. With other columns it begins anew.

A row that is deleted leaves its channel behind, inactive and without location,
attributes and addresses. TRUNCATE does that to all. What a channel cannot have, as a
platform with a blank, is left empty; no write of the application fails for it.

CREATE TRIGGER keeps writers out for a moment. It is tried for half a second at a time,
until --wait is over, so that no writer waits longer behind a long transaction.

This user needs SELECT and TRIGGER on RELATION, from its owner, and what
'belfry roles --for operate' prints; the application needs nothing. Without these rights
an error has the GRANTs.`,
		Example: `  belfry channels attach app.users --external-id id --platform os --active '!deleted_at' \
      --locale lang --time-zone tz --location lat,lon --attributes first_name,plan --addresses push=push_token,email=email
  belfry channels attach shop.customers --external-id login --platform =web --addresses contacts`,
		Args: exactArgs("RELATION"),
	}
	f := cmd.Flags()
	f.SortFlags = false
	what := addAttachment(f)
	batch := addAttachBatch(cmd)
	wait := flagOf(f, "wait", "DURATION", "look so long for a moment without writers (default 10m)", parseDuration)
	out := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if what.ExternalID == "" {
			return usagef("--external-id COLUMN is needed: the column with the service's user ids")
		}
		what.Relation = args[0]
		options := channels.AttachOptions{BatchSize: int(batch.or(0))}
		return a.attach(cmd, *what, wait.or(attachWait), options, out.json())
	}
	return cmd
}

// addAttachment adds the flags that say which column is what. Relation is an argument.
func addAttachment(f *pflag.FlagSet) *channels.Attachment {
	what := &channels.Attachment{}
	f.StringVar(&what.ExternalID, "external-id", "", "`COLUMN` of the service's user id, with a unique index: uuid, text or an integer")
	f.StringVar(&what.Platform, "platform", "", "`COLUMN`, or =VALUE for all (default =unknown)")
	f.StringVar(&what.Active, "active", "", "boolean `COLUMN`, or !COLUMN: active while it is null or false (default: all are)")
	f.StringVar(&what.Locale, "locale", "", "`COLUMN`, or =VALUE for all")
	f.StringVar(&what.TimeZone, "time-zone", "", "`COLUMN`, or =VALUE for all")
	f.StringVar(&what.Location, "location", "", "point `COLUMN`, or LATITUDE,LONGITUDE as two columns")
	f.StringVar(&what.Attributes, "attributes", "", "jsonb `COLUMN`, or columns: NAME=COLUMN,COLUMN,…")
	f.StringVar(&what.Addresses, "addresses", "", "jsonb `COLUMN`, or columns by medium: push=COLUMN,email=COLUMN")
	return what
}

// attach makes the triggers, within wait, and then brings over what was there before.
func (a *app) attach(cmd *cobra.Command, what channels.Attachment, wait time.Duration, options channels.AttachOptions, asJSON bool) error {
	return a.withStore(cmd, func(ctx context.Context, store *channels.Store, db *database) error {
		waiting, cancel := context.WithTimeout(ctx, wait)
		err := store.Attach(waiting, db.Pool, what)
		cancel()
		if err != nil {
			return attachProblem(err)
		}
		show := a.newTicker()
		options.Progress = show.drift("brought over")
		if _, err = store.Backfill(ctx, db.Pool, options); err != nil {
			show.end()
			return fmt.Errorf("%w; the same command goes on from there", err)
		}
		took := show.end()
		state, err := store.Attached(ctx, db.Pool)
		switch {
		case err != nil:
			return err
		case state == nil:
			return channels.ErrNotAttached
		case asJSON:
			return a.printJSON(state)
		}
		a.printf("%s attached, %s brought over in %s\n", state.Relation, printer.Counted(state.Filled, "row"), took)
		a.remark("channels that were there before and have no row are as they were; `belfry channels verify` deactivates them")
		return nil
	})
}

func newChannelsDetachCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "detach",
		Short: "Have belfry.channels follow nothing any more",
		Long: `Take the triggers off the attached relation, and forget it. The channels stay as they
are. Only the relation's owner may drop its triggers.`,
		Args: noArgs,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.withStore(cmd, func(ctx context.Context, store *channels.Store, db *database) error {
			ctx, cancel := context.WithTimeout(ctx, attachWait)
			defer cancel()
			relation, err := store.Detach(ctx, db.Pool)
			if err != nil {
				return err
			}
			a.printf("%s detached\n", relation)
			return nil
		})
	}
	return cmd
}

func newChannelsVerifyCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Compare the attached relation with belfry.channels, and repair what differs",
		Long: `Compare every row of the attached relation with its channel, and every active channel
with its row, in steps of a transaction each, and repair what differs: channels that
are missing are made, others changed, those without a row deactivated. There is nothing
to repair unless something wrote around the triggers: session_replication_role =
replica, a restore of one table, a trigger that was disabled. Exit code 1 when
--dry-run found a difference.`,
		Args: noArgs,
	}
	dry := cmd.Flags().Bool("dry-run", false, "only count")
	batch := addAttachBatch(cmd)
	out := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.withStore(cmd, func(ctx context.Context, store *channels.Store, db *database) error {
			show := a.newTicker()
			d, err := store.Verify(ctx, db.Pool, channels.AttachOptions{BatchSize: int(batch.or(0)), DryRun: *dry, Progress: show.drift("compared")})
			took := show.end()
			if err != nil {
				return err
			}
			if out.json() {
				err = a.printJSON(d)
			} else {
				a.printf("%s compared in %s: %s without a channel, %s with another, %s without a row%s\n", printer.Counted(d.Rows, "row"), took,
					printer.Grouped(d.Missing), printer.Grouped(d.Different), printer.Counted(d.Strays, "channel"), repaired(d, *dry))
				if d.Unusable > 0 {
					a.remark("%s without an external id of 1 to 200 characters, and so without a channel", printer.Counted(d.Unusable, "row"))
				}
			}
			if err == nil && *dry && !d.None() {
				err = errors.New("belfry.channels is not in step; `belfry channels verify` repairs it")
			}
			return err
		})
	}
	return cmd
}

func repaired(d channels.Drift, dry bool) string {
	if dry || d.None() {
		return ""
	}
	return "; all of it repaired"
}

func addAttachBatch(cmd *cobra.Command) *parsed[int64] {
	return flagOf(cmd.Flags(), "batch", "ROWS", "rows per transaction, 1 to 100000 (default 2000)", intBetween(1, 100_000))
}

// drift shows how far the steps have come.
func (t *ticker) drift(done string) func(channels.Drift) {
	return func(d channels.Drift) {
		t.tell("%s %s, %s", printer.Counted(d.Rows, "row"), done, t.perSecond(d.Rows))
	}
}

// attachProblem tells what the caller can correct from the rest.
func attachProblem(err error) error {
	if errors.Is(err, channels.ErrAttachment) {
		return &exitError{codeUsage, err}
	}
	return err
}
