package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/internal/sheet"
	"github.com/belfryhq/belfry/migrations"
	"github.com/belfryhq/belfry/node"
	"github.com/belfryhq/belfry/node/settings"
)

func newMigrateCommand(a *app) *cobra.Command {
	return newGroup("migrate", "Bring the database's schema up or down, or show where it is",
		newMigrateUpCommand(a), newMigrateDownCommand(a), newMigrateStatusCommand(a))
}

// migrationReport is the JSON of `belfry migrate up` and `down`.
type migrationReport struct {
	Applied []int64 `json:"applied"`
	Undone  []int64 `json:"undone"`
	Version int64   `json:"version"`
}

// addLockTimeout adds --lock-timeout, and returns a Config with it.
func addLockTimeout(cmd *cobra.Command) func() migrations.Config {
	c := migrations.DefaultConfig()
	wait := flagOf(cmd.Flags(), "lock-timeout", "DURATION", "give up after waiting so long for another session's lock, 100ms to 1h (default 30s)", func(text string) (time.Duration, error) {
		d, err := time.ParseDuration(text)
		if err != nil || d < 100*time.Millisecond || d > time.Hour {
			return 0, errors.New("allowed values: durations of 100ms to 1h, as 30s or 5m")
		}
		return d, nil
	})
	return func() migrations.Config {
		c.LockTimeout = wait.or(c.LockTimeout)
		return c
	}
}

func newMigrateUpCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Apply every pending migration",
		Long: `Apply every pending migration, each in a transaction of its own. Several nodes may
do this at once: one works, the others wait and then find nothing to do. Whoever has waited
for --lock-timeout, for another node or for the lock of a table, gives up with exit code
75 and names the session, if it may read it. A channels.relation that is configured is
then recorded in the database.`,
		Args: noArgs,
	}
	wait := addLockTimeout(cmd)
	out := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.withDatabase(cmd, schemaAny, 0, func(ctx context.Context, s settings.Settings, db *database) error {
			applied, err := wait().Up(ctx, db.DSN)
			if err != nil {
				return err
			}
			if s.Source("channels.relation").Kind != config.FromDefault {
				if err := node.RecordRecipients(ctx, db.Pool, s.Channels, a.logger(s, a.stderr)); err != nil {
					return err
				}
			}
			if out.json() {
				return a.printJSON(migrationReport{emptyList(applied), []int64{}, migrations.Latest()})
			}
			for _, v := range applied {
				a.printf("applied %d\n", v)
			}
			a.printf("the schema is at version %d\n", migrations.Latest())
			return nil
		})
	}
	return cmd
}

func newMigrateDownCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "down --to VERSION",
		Short: "Undo migrations, and with them their data",
		Long: `Undo migrations down to, and not including, VERSION. The data in the tables that
go is lost; --to 0 removes everything. For development and for undoing a release
at once.`,
		Example: "  belfry migrate down --to 2 --yes",
		Args:    noArgs,
	}
	to := flagOf(cmd.Flags(), "to", "VERSION", "the version to end at; 0 removes everything", intBetween(0, math.MaxInt64))
	yes := cmd.Flags().Bool("yes", false, "yes, lose the data")
	wait := addLockTimeout(cmd)
	out := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if to.value == nil {
			return usagef("migrate down needs --to VERSION; 0 removes everything")
		}
		if !*yes {
			return usagef("migrate down loses the data of what it undoes; say --yes if that is meant")
		}
		return a.withDatabase(cmd, schemaAny, 0, func(ctx context.Context, _ settings.Settings, db *database) error {
			undone, err := wait().Down(ctx, db.DSN, *to.value)
			if err != nil {
				return err
			}
			version, err := admin.SchemaVersion(ctx, db.Pool)
			if err != nil {
				return err
			}
			if out.json() {
				return a.printJSON(migrationReport{[]int64{}, emptyList(undone), version})
			}
			for _, v := range undone {
				a.printf("undone %d\n", v)
			}
			a.printf("the schema is at version %d\n", version)
			return nil
		})
	}
	return cmd
}

func newMigrateStatusCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "status", Short: "List migrations and when they were applied", Args: noArgs}
	out := addListOutput(cmd, sheet.RecordsOf(reflect.TypeFor[migrations.Status]()))
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.withDatabase(cmd, schemaAny, statementDeadline, func(ctx context.Context, _ settings.Settings, db *database) error {
			list, err := migrations.List(ctx, db.DSN)
			if err != nil {
				return err
			}
			if !out.forPeople() {
				return a.printList(out, emptyList(list))
			}
			page, t := a.pageOf(out), printer.NewTable(">VERSION", "APPLIED", "TITLE")
			pending := 0
			for _, m := range list {
				at := "pending"
				if m.Applied != nil {
					at = page.Clock(*m.Applied)
				} else {
					pending++
				}
				t.Add(fmt.Sprint(m.Version), at, m.Title)
			}
			page.Table(t)
			if pending > 0 {
				a.remark("%s pending; apply with `belfry migrate up`", printer.Counted(int64(pending), "migration"))
			}
			return nil
		})
	}
	return cmd
}
