package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/pgserver"
	"github.com/belfryhq/belfry/migrations"
	"github.com/belfryhq/belfry/node"
	"github.com/belfryhq/belfry/node/settings"
)

// statementDeadline bounds the statements of a short command, so that no command waits forever for a
// database that has stopped responding.
const statementDeadline = 30 * time.Second

// closeDeadline bounds the release of the private server, including its shutdown.
const closeDeadline = time.Minute

// privateDatabase is the name of belfry's database in the private server.
const privateDatabase = "belfry"

// schemaNeed is the requirement of a command on the schema.
type schemaNeed int

const (
	schemaCurrent  schemaNeed = iota // reject a database that is not migrated
	schemaReadable                   // as schemaCurrent, if the role may read the version
	schemaMigrate                    // migrate it
	schemaAny                        // accept any version
)

// database is an open connection pool, and its private server if there is one.
type database struct {
	Pool    *pgxpool.Pool
	DSN     string
	Private *pgserver.Server // nil if database.url is set
	Address node.Address

	writes bool // a standby does not suffice
}

// processOptions are the options that the commands running jobs, messages or the HTTP API share.
type processOptions struct {
	commandOptions

	migrate bool // first
	private bool // the private PostgreSQL may be used without a terminal
}

// addPrivate adds --private.
func (o *processOptions) addPrivate(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.private, "private", false, "without database.url, work on the private PostgreSQL even without a terminal")
}

// addMigrate adds --migrate.
func (o *processOptions) addMigrate(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.migrate, "migrate", false, "apply pending migrations first")
}

func (o *processOptions) schema() schemaNeed {
	if o.migrate {
		return schemaMigrate
	}
	return schemaCurrent
}

// checkPrivate rejects the private server for a process without a terminal unless --private is given:
// cron and systemd lack the BELFRY_DATABASE_URL of a shell, and messages would never be sent. On a
// terminal it names the server.
func (o *processOptions) checkPrivate(s settings.Settings) error {
	if s.Database.URL != "" {
		return nil
	}
	_, shown := terminal(o.stderr, o.environ)
	return o.usePrivate(s, shown, shown || o.private, "--private, to work on the")
}

// checkPrivate names the private server before a command that changes something there. It rejects a server
// that does not exist, unless the command creates it: an operator whose shell lacks the URL of the real
// database would act on an empty one.
func (c commandOptions) checkPrivate(s settings.Settings) error {
	if s.Database.URL != "" {
		return nil
	}
	return c.usePrivate(s, !c.reads, c.creates || pgserver.Exists(s.Server.DataDir), "`belfry migrate up`, to create a")
}

// usePrivate names the private server if it is used and shown. The error of a server that may not be used
// ends with the way to it.
func (c commandOptions) usePrivate(s settings.Settings, shown, use bool, way string) error {
	dir, err := pgserver.DataDir(s.Server.DataDir)
	switch {
	case err != nil:
		return &exitError{codeConfiguration, err}
	case !use:
		return &exitError{codeConfiguration, fmt.Errorf("database.url is not set: set BELFRY_DATABASE_URL or database.url "+
			"of the configuration file; or %s private PostgreSQL in %s", way, dir)}
	case shown:
		c.remark("on the private PostgreSQL in %s (database.url is not set)", dir)
	}
	return nil
}

// openDatabase connects to the configured database. Without one it starts the private server and
// migrates it. If writes is set, a standby counts as unreachable until it is promoted. The caller closes
// the result.
func openDatabase(ctx context.Context, s settings.Settings, need schemaNeed, writes bool, logger zerolog.Logger) (*database, error) {
	d := &database{DSN: s.Database.URL, writes: writes}
	if d.DSN == "" {
		if err := d.startPrivate(ctx, s, logger); err != nil {
			return nil, err
		}
		if need != schemaAny {
			need = schemaMigrate
		}
	}
	err := d.connect(ctx, s, logger)
	if err == nil {
		err = d.ensureSchema(ctx, need, logger)
	}
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

// withDatabase opens the database, calls do with a deadline (0 means none), and closes the database. A
// standby suffices for a command that only reads.
func (c commandOptions) withDatabase(ctx context.Context, need schemaNeed, limit time.Duration,
	do func(ctx context.Context, s settings.Settings, db *database) error,
) (err error) {
	s, err := c.settings()
	if err != nil {
		return err
	}
	if err := c.checkPrivate(s); err != nil {
		return &unopenedError{err}
	}
	db, err := openDatabase(ctx, s, need, !c.reads, c.briefLogger(s))
	if err != nil {
		return &unopenedError{err}
	}
	defer func() { err = errors.Join(err, db.close()) }()
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	return do(ctx, s, db)
}

// withUncheckedDatabase is withDatabase without the check of the schema if there is an abort cache, so
// that the abort flag can be set while the database is down.
func (c commandOptions) withUncheckedDatabase(ctx context.Context,
	do func(ctx context.Context, s settings.Settings, db *database) error) (err error) {
	s, err := c.settings()
	if err != nil {
		return err
	}
	if s.Abort.URL == "" || s.Database.URL == "" {
		return c.withDatabase(ctx, schemaCurrent, 0, do)
	}
	db := &database{DSN: s.Database.URL, writes: true}
	if err := db.prepare(ctx, s, c.briefLogger(s)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.close()) }()
	return do(ctx, s, db)
}

// unopenedError reports a database that could not be opened.
type unopenedError struct{ err error }

func (e *unopenedError) Error() string { return e.err.Error() }
func (e *unopenedError) Unwrap() error { return e.err }

func (d *database) startPrivate(ctx context.Context, s settings.Settings, logger zerolog.Logger) error {
	server, err := pgserver.Open(ctx, pgserver.Config{DataDir: s.Server.DataDir, Logger: logger})
	if err != nil {
		return fmt.Errorf("private PostgreSQL (database.url is not set): %w", &exitError{codeUnavailable, err})
	}
	d.Private = server
	if err := server.EnsureDatabase(ctx, privateDatabase); err != nil {
		return errors.Join(err, d.close())
	}
	d.DSN = server.DSN(privateDatabase)
	return nil
}

// prepare opens the pool, which connects on first use.
func (d *database) prepare(ctx context.Context, s settings.Settings, logger zerolog.Logger) (err error) {
	if d.Pool, err = node.OpenPool(ctx, d.DSN, s.Database, d.writes, logger); err != nil {
		return err
	}
	d.Address = node.AddressOf(d.Pool)
	return nil
}

// connect opens the pool and pings the server.
func (d *database) connect(ctx context.Context, s settings.Settings, logger zerolog.Logger) error {
	if err := d.prepare(ctx, s, logger); err != nil {
		return err
	}
	return node.Connect(ctx, d.Pool, cmp.Or(s.Source("database.url").Name, "database.url"))
}

// close closes the pool, and stops the private server if this process was its last user.
func (d *database) close() error {
	if d.Pool != nil {
		d.Pool.Close()
	}
	if d.Private == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeDeadline)
	defer cancel()
	return d.Private.Close(ctx)
}

// ensureSchema migrates or checks the schema, as need requires.
func (d *database) ensureSchema(ctx context.Context, need schemaNeed, logger zerolog.Logger) error {
	if need == schemaAny {
		return nil
	}
	checking, cancel := context.WithTimeout(ctx, statementDeadline)
	defer cancel()
	schema, err := node.ReadSchema(checking, d.Pool)
	if need == schemaReadable && err != nil && db.KindOf(err) == db.KindForbidden {
		return nil
	}
	if err != nil {
		return err
	}
	if need == schemaMigrate && schema.Version < migrations.Latest() {
		_, err := migrations.Up(ctx, d.DSN) // the migrations have their own deadline
		return err
	}
	return node.AcceptSchema(schema, logger)
}
