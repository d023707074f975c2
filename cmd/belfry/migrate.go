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
		newMigrateUpCommand(a), newMigrateDownCommand(a), newMigrateStatusCommand(a), newMigratePlanCommand(a))
}

// migrationReport is the JSON of `belfry migrate up` and `down`.
type migrationReport struct {
	Applied []int64 `json:"applied"`
	Undone  []int64 `json:"undone"`
	Version int64   `json:"version"`
}

// migrateOptions are the options of `belfry migrate up`, `down`, `status` and `plan`.
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
	o.lockTimeout = flagOf(cmd.Flags(), "lock-timeout", "DURATION", "maximum wait for other sessions' locks, 100ms to 1h (default 30s)",
		durationBetween(100*time.Millisecond, time.Hour, "of 100ms to 1h, such as 30s or 5m"))
}

func newMigrateUpCommand(a *app) *cobra.Command {
	o := &migrateOptions{}
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Apply every pending migration",
		Long: `Apply every pending migration, while processes of this release and of the one before run.
Several nodes may do this at once: one works, the others wait and then find nothing to do.
Tables are locked in short attempts, so that other sessions do not wait behind them. After
--lock-timeout, for another node or for tables, the command ends with exit code 75. On a
newer schema it applies nothing, and fails if this belfry may not use the schema. A
channels.relation that is configured is then recorded in the database.`,
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
		return o.report(ctx, db, "applied", applied, migrationReport{Applied: emptyList(applied), Undone: []int64{}})
	})
}

// report shows the migrations that were applied or undone, and the version of the schema.
func (o *migrateOptions) report(ctx context.Context, db *database, done string, versions []int64, r migrationReport) error {
	schema, err := node.ReadSchema(ctx, db.Pool)
	if err != nil {
		return err
	}
	r.Version = schema.Version
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
		return o.report(ctx, db, "undone", undone, migrationReport{Applied: []int64{}, Undone: emptyList(undone)})
	})
}

func newMigrateStatusCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "status", Short: "List migrations and when they were applied"}
	return listMigrations(a, cmd, migrations.List, func(o *migrateOptions, list []migrations.Status) *text.Table {
		t := text.NewTable(">VERSION", "APPLIED", "TITLE")
		for _, m := range list {
			t.Add(text.Int(m.Version), text.Or(m.Applied, "pending"), m.Title)
		}
		if pending := migrations.Pending(list); pending > 0 {
			o.remark("%s pending; apply with %s", text.Counted(pending, "migration"), text.Command("migrate up"))
		}
		return t
	})
}

func newMigratePlanCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "List the locks of pending migrations and their expected duration",
		Long: `List the pending migrations, each lock that they take on an existing table, the statements
that wait for it, and for how long it is held once it is granted. A scan reads the table, at
an assumed 100 MB per second. A rewrite writes it and its indexes, at 20 MB per second.`,
	}
	return listMigrations(a, cmd, migrations.Plan, func(o *migrateOptions, list []migrations.Planned) *text.Table {
		t := text.NewTable(">VERSION", "TABLE", "LOCK", "BLOCKS", "WORK", "EXPECTED", "TITLE")
		for _, p := range list {
			t.Add(text.Int(p.Version), p.Table, p.Lock, p.Blocks, p.Effort(), p.Expected(), p.Title)
		}
		o.remark("%s", migrations.Summary(list))
		return t
	})
}

// listMigrations completes a command that reads a list of migrations. show returns it as a table.
func listMigrations[T any](a *app, cmd *cobra.Command, read func(ctx context.Context, dsn string) ([]T, error),
	show func(*migrateOptions, []T) *text.Table) *cobra.Command {
	o := &migrateOptions{}
	cmd.Args, o.out = noArgs, addListOutput(cmd, text.RecordsOf(reflect.TypeFor[T]()))
	cmd.RunE = a.run(&o.commandOptions, func(ctx context.Context) error {
		return o.withDatabase(ctx, schemaAny, statementDeadline, func(ctx context.Context, _ settings.Settings, db *database) error {
			list, err := read(ctx, db.DSN)
			if err != nil {
				return err
			}
			if !o.out.forPeople() {
				return printList(o.streams, o.out, emptyList(list))
			}
			o.pageOf(o.out).Table(show(o, list))
			return nil
		})
	})
	return cmd
}
