package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/cities"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/pgserver"
	"github.com/belfryhq/belfry/migrations"
)

const (
	// closeTimeout bounds removing what was made.
	closeTimeout = 2 * time.Minute
	// connections is what each side may open at most: two runners or a relay, a listener,
	// and the bench itself.
	connections = 12
	// application is how the bench is called on the server. The job does not take sessions
	// of that name for others at work.
	application = "belfry bench"
)

// env is a server, and a database on it with channels, that benchmarks measure on. What its
// methods cannot do fails the attempt that they are part of.
type env struct {
	config
	*failure

	admin  string // connection string of the server
	dsn    string // of the database
	pool   *pgxpool.Pool
	store  *channels.Store
	size   int64                         // channels
	active int64                         // channels that a job to everyone reaches
	closes []func(context.Context) error // undone in reverse order
}

// open makes the database on the server that was given, or on a private one: a stock one, or
// one tuned as belfry's own server for users is. The caller closes env also when it fails.
func (e *env) open(ctx context.Context, stock bool) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	if e.admin = e.databaseURL; e.admin == "" {
		e.startServer(ctx, stock)
	}
	e.dsn = e.database(ctx)
	e.pool = e.connect(ctx, e.dsn, application, nil)
	e.fill(ctx)
}

// fill makes the schema and channels in the database.
func (e *env) fill(ctx context.Context) {
	_, err := migrations.Up(ctx, e.dsn)
	e.check(err)
	e.store, err = channels.New(channels.DefaultConfig())
	e.check(err)
	e.say("generating %s channels at real cities", grouped(e.size))
	_, err = cities.Generate(ctx, e.store, e.pool, e.size, cities.Options{Seed: 1})
	e.check(err)
	e.do(ctx, e.pool, queries.channelsVacuum)
	e.look(ctx, e.pool, queries.channelsActive, nil, &e.active)
}

// close undoes what was opened, even when the run was interrupted.
func (e *env) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	var errs []error
	for i := len(e.closes) - 1; i >= 0; i-- {
		errs = append(errs, e.closes[i](ctx))
	}
	e.check(errors.Join(errs...))
}

func (e *env) onClose(f func(context.Context) error) { e.closes = append(e.closes, f) }

func (e *env) say(format string, args ...any) { fmt.Fprintf(e.progress, format+"\n", args...) }

// tempDir makes a directory that ends with the run.
func (e *env) tempDir(name string) string {
	dir, err := os.MkdirTemp(e.dir, name)
	e.check(err)
	e.onClose(func(context.Context) error { return os.RemoveAll(dir) })
	e.check(os.Chmod(dir, 0o755))
	return dir
}

// startServer starts a durable server in a temporary directory of its own.
func (e *env) startServer(ctx context.Context, stock bool) {
	defer e.within("private PostgreSQL")
	data, err := pgserver.ReachableDir(e.tempDir("belfry-bench-"))
	e.check(err)
	e.onClose(func(context.Context) error { return os.RemoveAll(data) })
	server, err := pgserver.Open(ctx, pgserver.Config{DataDir: data, Durable: true, Stock: stock})
	e.check(err)
	e.onClose(server.Close)
	e.admin = server.DSN("postgres")
}

// database makes a database of a new name on the server, which is dropped at the end, and
// returns its connection string.
func (e *env) database(ctx context.Context) string {
	name := "belfry_bench_" + strings.ToLower(rand.Text()[:8])
	administer := func(ctx context.Context, what, statement string) error {
		conn, err := pgx.Connect(ctx, e.admin)
		if err == nil {
			_, err = conn.Exec(ctx, strings.ReplaceAll(statement, "{{database}}", pgx.Identifier{name}.Sanitize()))
			err = errors.Join(err, conn.Close(ctx))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	}
	e.check(administer(ctx, "make a database of its own", queries.databaseCreate))
	e.onClose(func(ctx context.Context) error { return administer(ctx, "drop database "+name, queries.databaseDrop) })
	dsn, err := db.WithDatabase(e.admin, name)
	e.check(err)
	return dsn
}

// connect opens a pool that ends with the run.
func (e *env) connect(ctx context.Context, dsn, name string, tracer pgx.QueryTracer) *pgxpool.Pool {
	c, err := pgxpool.ParseConfig(dsn)
	e.check(err)
	c.MaxConns = connections
	c.ConnConfig.Tracer = tracer
	c.ConnConfig.RuntimeParams["application_name"] = name
	pool, err := pgxpool.NewWithConfig(ctx, c)
	e.check(err)
	e.onClose(func(context.Context) error { pool.Close(); return nil })
	return pool
}

// do runs statements that return nothing.
func (e *env) do(ctx context.Context, pool *pgxpool.Pool, statements ...string) {
	for _, statement := range statements {
		if _, err := pool.Exec(ctx, statement); err != nil {
			e.check(fmt.Errorf("%s: %w", db.QueryName(queries, statement), err))
		}
	}
}

// look reads the one row of a statement.
func (e *env) look(ctx context.Context, pool *pgxpool.Pool, statement string, args pgx.StrictNamedArgs, to ...any) {
	if err := pool.QueryRow(ctx, statement, args).Scan(to...); err != nil {
		e.check(fmt.Errorf("%s: %w", db.QueryName(queries, statement), err))
	}
}

// checkpoint leaves nothing to write from the measurement before. Without the role
// pg_checkpoint measurements are noisier.
func (e *env) checkpoint(ctx context.Context) {
	if _, err := e.pool.Exec(ctx, queries.serverCheckpoint); db.Code(err) != "42501" { // insufficient_privilege
		e.check(err)
	}
}

// clear makes level ground: the outbox is empty and nothing is left to write to disk.
func (e *env) clear(ctx context.Context) {
	e.do(ctx, e.pool, queries.outboxEmpty)
	e.checkpoint(ctx)
}

// start runs what runs until its context ends, or until one of them fails. stop ends it,
// waits, and is to be deferred or called; again it does nothing more.
func (e *env) start(ctx context.Context, runs ...func(context.Context) error) (running context.Context, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	all, running := errgroup.WithContext(ctx)
	for _, run := range runs {
		all.Go(func() error { return run(running) })
	}
	return running, func() {
		cancel()
		e.check(all.Wait())
	}
}
