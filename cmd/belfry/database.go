package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/pgserver"
	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/migrations"
	"github.com/belfryhq/belfry/node"
	"github.com/belfryhq/belfry/node/settings"
)

// statementDeadline bounds the statements of a short command: no command waits
// without end on a database that has stopped answering.
const statementDeadline = 30 * time.Second

// closeDeadline bounds giving the private server up, its shutdown included.
const closeDeadline = time.Minute

// privateDatabase is the database that belfry uses in its private server.
const privateDatabase = "belfry"

// schemaNeed is what a command asks of the schema.
type schemaNeed int

const (
	schemaCurrent schemaNeed = iota // refuse a database that is not migrated
	schemaMigrate                   // migrate it
	schemaAny                       // take it as it is
)

// database is an open connection pool, and the private server beneath it if
// there is one.
type database struct {
	Pool    *pgxpool.Pool
	DSN     string
	Private *pgserver.Server // nil: the database was given
	Address address

	writes bool // a standby will not do
}

// address is what may be shown of where a database is.
type address struct {
	Host     string `json:"host"` // with the port; the socket's directory if it is local
	Database string `json:"database"`
	User     string `json:"user"`
}

func (a address) String() string {
	return fmt.Sprintf("%s (database %s, user %s)", a.Host, a.Database, a.User)
}

// open connects to the configured database, or starts the private server, which
// is always migrated because nobody else would. The caller closes the result.
func (a *app) open(ctx context.Context, s settings.Settings, need schemaNeed, logger zerolog.Logger) (*database, error) {
	return a.opened(ctx, &database{DSN: s.Database.URL}, s, need, logger)
}

// privateFlag is the flag of the processes that work by themselves.
func privateFlag(a *app, cmd *cobra.Command) {
	cmd.Flags().BoolVar(&a.private, "private", false, "without database.url, work on the private PostgreSQL where there is no terminal, too")
}

// checkPrivate refuses the private server to a process that works by itself without a terminal, unless
// --private asks for it: cron and systemd have no BELFRY_DATABASE_URL of a shell, and nothing
// would ever be sent. At a terminal it says where the process works.
func (a *app) checkPrivate(s settings.Settings) error {
	if s.Database.URL != "" {
		return nil
	}
	dir := s.Server.DataDir
	if dir == "" {
		var err error
		if dir, err = pgserver.DefaultDataDir(); err != nil {
			return &exitError{codeConfiguration, err}
		}
	}
	_, shown := terminal(a.stderr, a.environ)
	switch {
	case shown:
		a.remark("on the private PostgreSQL in %s (database.url is not set)", dir)
	case !a.private:
		return &exitError{codeConfiguration, fmt.Errorf("database.url is not set: set BELFRY_DATABASE_URL or database.url of the configuration file; or --private, to work on the private PostgreSQL in %s", dir)}
	}
	return nil
}

// openPrimary is open for what writes: to it a standby is a server that does not answer,
// until it is promoted.
func (a *app) openPrimary(ctx context.Context, s settings.Settings, need schemaNeed, logger zerolog.Logger) (*database, error) {
	return a.opened(ctx, &database{DSN: s.Database.URL, writes: true}, s, need, logger)
}

func (a *app) opened(ctx context.Context, db *database, s settings.Settings, need schemaNeed, logger zerolog.Logger) (*database, error) {
	if db.DSN == "" {
		if err := db.startPrivate(ctx, s, logger); err != nil {
			return nil, err
		}
		if need == schemaCurrent {
			need = schemaMigrate
		}
	}
	err := db.connect(ctx, s, logger)
	if err == nil {
		err = db.ensureSchema(ctx, need)
	}
	if err != nil {
		return nil, errors.Join(err, db.close())
	}
	return db, nil
}

// withDatabase opens the database, a standby only for a command that only reads, calls do
// with a deadline (none if zero), and closes.
func (a *app) withDatabase(cmd *cobra.Command, need schemaNeed, limit time.Duration,
	do func(ctx context.Context, s settings.Settings, db *database) error,
) (err error) {
	s, err := a.settings(cmd)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	db, err := a.opened(ctx, &database{DSN: s.Database.URL, writes: !onlyReads(cmd)}, s, need, a.briefLogger(s))
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

func (d *database) startPrivate(ctx context.Context, s settings.Settings, logger zerolog.Logger) error {
	server, err := pgserver.Open(ctx, pgserver.Config{DataDir: s.Server.DataDir, Durable: true, Logger: logger})
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

// prepare opens the pool, which connects with its first use.
func (d *database) prepare(ctx context.Context, s settings.Settings, logger zerolog.Logger) (err error) {
	if d.Pool, err = node.OpenPool(ctx, d.DSN, s.Database, d.writes, logger); err != nil {
		return err
	}
	d.Address = addressOf(d.Pool.Config().ConnConfig)
	return nil
}

// connect opens the pool and has the server answer once.
func (d *database) connect(ctx context.Context, s settings.Settings, logger zerolog.Logger) error {
	if err := d.prepare(ctx, s, logger); err != nil {
		return err
	}
	if err := node.Ping(ctx, d.Pool); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if reached(err) {
			return fmt.Errorf("PostgreSQL at %s: %w", d.Address, err)
		}
		return &unreachableError{at: d.Address, from: s.Source("database.url"), err: err, waited: node.ConnectTimeout(d.Pool)}
	}
	return nil
}

// reached reports whether err is a server's answer to a statement rather than to the attempt to connect.
func reached(err error) bool {
	return errors.As(err, new(*node.UnfitError)) || errors.Is(err, db.ErrStatementPooling) ||
		db.Code(err) != "" && !errors.As(err, new(*pgconn.ConnectError)) && !node.Unreachable(err)
}

func addressOf(c *pgx.ConnConfig) address {
	host := c.Host
	if !strings.HasPrefix(host, "/") {
		host = net.JoinHostPort(host, fmt.Sprint(c.Port))
	}
	return address{Host: host, Database: c.Database, User: c.User}
}

// close ends the pool and then, if this was its last user, the private server.
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

// ensureSchema brings the schema to what a command needs, or says how to.
func (d *database) ensureSchema(ctx context.Context, need schemaNeed) error {
	if need == schemaAny {
		return nil
	}
	look, cancel := context.WithTimeout(ctx, statementDeadline)
	defer cancel()
	version, err := admin.SchemaVersion(look, d.Pool)
	if err != nil {
		return err
	}
	if need == schemaMigrate && version < migrations.Latest() {
		_, err := migrations.Up(ctx, d.DSN) // bounded by the migrations themselves
		return err
	}
	return admin.SchemaProblem(version, migrations.Latest())
}

// now returns the database's clock.
func (d *database) now(ctx context.Context) (time.Time, error) {
	return job.NewStore(d.Pool).Now(ctx)
}

// unreachableError says that no connection could be made, where to, and what to
// do about it.
type unreachableError struct {
	at     address
	from   config.Source
	err    error
	waited time.Duration
}

func (e *unreachableError) Unwrap() error {
	if loginRefused(e.err) {
		return &exitError{codeConfiguration, e.err}
	}
	return &exitError{codeUnavailable, e.err}
}

// Error names the host, the reason and the ways out.
func (e *unreachableError) Error() string {
	where := "database.url"
	if e.from.Name != "" {
		where = e.from.Name
	}
	if loginRefused(e.err) {
		remedy := "correct user and password"
		if db.Code(e.err) == db.NoSuchDatabase {
			remedy = "create that database, or correct its name"
		}
		return fmt.Sprintf("PostgreSQL refuses the login at %s: %s\n%s; the address comes from %s: postgres://user:password@host:5432/database",
			e.at, e.reason(), remedy, where)
	}
	if errors.Is(e.err, pgconn.ErrStandbyConnection) {
		return fmt.Sprintf("PostgreSQL at %s is a standby, and takes no rows before it is promoted\npoint %s at the primary, or name both hosts", e.at, where)
	}
	return fmt.Sprintf(`cannot reach PostgreSQL at %s: %s
three ways out:
  1. start that server, or open the way to it
  2. correct the address, which comes from %s: postgres://user:password@host:5432/database
  3. leave database.url unset everywhere: belfry then runs a private PostgreSQL`, e.at, e.reason(), where)
}

// reason is the kernel's or the server's own word, without the driver's.
func (e *unreachableError) reason() string {
	var server *pgconn.PgError
	var network *net.OpError
	switch {
	case errors.As(e.err, &server):
		return server.Message
	case pgconn.Timeout(e.err), errors.Is(e.err, context.DeadlineExceeded):
		return "no answer within " + printer.Short(e.waited)
	case errors.As(e.err, &network):
		return network.Err.Error()
	}
	return strings.ReplaceAll(e.err.Error(), "\n", " ")
}
