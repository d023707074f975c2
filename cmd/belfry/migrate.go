package main

import (
	"context"
	"math"
	"reflect"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/text"
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

// migrateOptions are the options of `belfry migrate up`, `down` and `status`.
type migrateOptions struct {
	commandOptions

	lockTimeout *parsed[time.Duration]
	to          *parsed[int64] // of down
	yes         bool           // of down
	out         *output
}

// config returns the configuration of migrations.
func (o *migrateOptions) config() migrations.Config {
	c := migrations.DefaultConfig()
	c.LockTimeout = o.lockTimeout.or(c.LockTimeout)
	return c
}

// addLockTimeout adds --lock-timeout.
func (o *migrateOptions) addLockTimeout(cmd *cobra.Command) {
	o.lockTimeout = flagOf(cmd.Flags(), "lock-timeout", "DURATION", "maximum wait for another session's lock, 100ms to 1h (default 30s)",
		durationBetween(100*time.Millisecond, time.Hour, "of 100ms to 1h, such as 30s or 5m"))
}

func newMigrateUpCommand(a *app) *cobra.Command {
	o := &migrateOptions{}
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
	o.addLockTimeout(cmd)
	o.out = addOutput(cmd)
	cmd.RunE = a.run(&o.commandOptions, func(ctx context.Context) error { return runMigrateUp(ctx, o) })
	return cmd
}

// runMigrateUp applies the pending migrations.
func runMigrateUp(ctx context.Context, o *migrateOptions) error {
	return o.withDatabase(ctx, schemaAny, 0, func(ctx context.Context, s settings.Settings, db *database) error {
		applied, err := o.config().Up(ctx, db.DSN)
		if err != nil {
			return err
		}
		if s.Source("channels.relation").Kind != config.FromDefault {
			if err := node.RecordRecipients(ctx, db.Pool, s.Channels, o.progressLogger(s, o.stderr)); err != nil {
				return err
			}
		}
		return o.report("applied", applied, migrationReport{emptyList(applied), []int64{}, migrations.Latest()})
	})
}

// report shows the migrations that were applied or undone.
func (o *migrateOptions) report(done string, versions []int64, r migrationReport) error {
	if o.out.json() {
		return o.printJSON(r)
	}
	for _, v := range versions {
		o.printf("%s %d\n", done, v)
	}
	o.printf("the schema is at version %d\n", r.Version)
	return nil
}

func newMigrateDownCommand(a *app) *cobra.Command {
	o := &migrateOptions{}
	cmd := &cobra.Command{
		Use:   "down --to VERSION",
		Short: "Undo migrations, and with them their data",
		Long: `Undo migrations down to, and not including, VERSION. The data in the tables that
go is lost; --to 0 removes everything. For development and for undoing a release
at once.`,
		Example: "  belfry migrate down --to 2 --yes",
		Args:    noArgs,
	}
	o.to = flagOf(cmd.Flags(), "to", "VERSION", "the version to end at; 0 removes everything", intBetween(0, math.MaxInt64))
	cmd.Flags().BoolVar(&o.yes, "yes", false, "yes, lose the data")
	o.addLockTimeout(cmd)
	o.out = addOutput(cmd)
	cmd.RunE = a.run(&o.commandOptions, func(ctx context.Context) error { return runMigrateDown(ctx, o) })
	return cmd
}

// runMigrateDown undoes migrations.
func runMigrateDown(ctx context.Context, o *migrateOptions) error {
	if o.to.value == nil {
		return usagef("migrate down needs --to VERSION; 0 removes everything")
	}
	if !o.yes {
		return usagef("migrate down loses the data of what it undoes; say --yes if that is meant")
	}
	return o.withDatabase(ctx, schemaAny, 0, func(ctx context.Context, _ settings.Settings, db *database) error {
		undone, err := o.config().Down(ctx, db.DSN, *o.to.value)
		if err != nil {
			return err
		}
		version, err := node.SchemaVersion(ctx, db.Pool)
		if err != nil {
			return err
		}
		return o.report("undone", undone, migrationReport{[]int64{}, emptyList(undone), version})
	})
}

func newMigrateStatusCommand(a *app) *cobra.Command {
	o := &migrateOptions{}
	cmd := &cobra.Command{Use: "status", Short: "List migrations and when they were applied", Args: noArgs}
	o.out = addListOutput(cmd, text.RecordsOf(reflect.TypeFor[migrations.Status]()))
	cmd.RunE = a.run(&o.commandOptions, func(ctx context.Context) error { return runMigrateStatus(ctx, o) })
	return cmd
}

// runMigrateStatus lists the migrations.
func runMigrateStatus(ctx context.Context, o *migrateOptions) error {
	return o.withDatabase(ctx, schemaAny, statementDeadline, func(ctx context.Context, _ settings.Settings, db *database) error {
		list, err := migrations.List(ctx, db.DSN)
		if err != nil {
			return err
		}
		if !o.out.forPeople() {
			return printList(o.streams, o.out, emptyList(list))
		}
		page, t := o.pageOf(o.out), text.NewTable(">VERSION", "APPLIED", "TITLE")
		pending := 0
		for _, m := range list {
			if m.Applied == nil {
				pending++
			}
			t.Add(text.Int(m.Version), text.Or(m.Applied, "pending"), m.Title)
		}
		page.Table(t)
		if pending > 0 {
			o.remark("%s pending; apply with %s", text.Counted(int64(pending), "migration"), text.Command("migrate up"))
		}
		return nil
	})
}
