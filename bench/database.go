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
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/cities"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/pgserver"
	"github.com/belfryhq/belfry/internal/sqlfile"
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

// env is a server, and a database on it with channels, that benchmarks measure on.
type env struct {
	config

	admin  string // connection string of the server
	dsn    string // of the database
	pool   *pgxpool.Pool
	store  *channels.Store
	size   int64                         // channels
	active int64                         // channels that a job to everyone reaches
	closes []func(context.Context) error // undone in reverse order
}

// openEnv makes the database on the server that was given, or on a private one: a stock one,
// or one tuned as belfry's own server for users is. On an error it leaves nothing behind.
func openEnv(ctx context.Context, c config, size int64, stock bool) (*env, error) {
	e := &env{config: c, admin: c.databaseURL, size: size}
	e.progress = zerolog.SyncWriter(c.progress) // runners warn from goroutines of their own
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	if err := e.open(ctx, stock); err != nil {
		return nil, errors.Join(err, e.close())
	}
	return e, nil
}

func (e *env) open(ctx context.Context, stock bool) (err error) {
	if e.admin == "" {
		if err := e.startServer(ctx, stock); err != nil {
			return fmt.Errorf("private PostgreSQL: %w", err)
		}
	}
	if e.dsn, err = e.database(ctx); err != nil {
		return err
	}
	if _, err = migrations.Up(ctx, e.dsn); err != nil {
		return err
	}
	if e.pool, err = e.connect(ctx, e.dsn, application, nil); err != nil {
		return err
	}
	if e.store, err = channels.New(channels.DefaultConfig()); err != nil {
		return err
	}
	e.say("generating %s channels at real cities", grouped(e.size))
	if _, err = cities.Generate(ctx, e.store, e.pool, e.size, cities.Options{Seed: 1}); err != nil {
		return err
	}
	if err := do(ctx, e.pool, queries.channelsVacuum, nil); err != nil {
		return err
	}
	return look(ctx, e.pool, queries.channelsActive, nil, &e.active)
}

// close undoes what was opened, even when the run was interrupted.
func (e *env) close() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	for i := len(e.closes) - 1; i >= 0; i-- {
		err = errors.Join(err, e.closes[i](ctx))
	}
	e.closes = nil
	return err
}

func (e *env) onClose(f func(context.Context) error) { e.closes = append(e.closes, f) }

func (e *env) say(format string, args ...any) { fmt.Fprintf(e.progress, format+"\n", args...) }

// tempDir makes a directory that ends with the run.
func (e *env) tempDir(name string) (string, error) {
	dir, err := os.MkdirTemp(e.dir, name)
	if err == nil {
		e.onClose(func(context.Context) error { return os.RemoveAll(dir) })
	}
	return dir, err
}

// startServer starts a durable server in a temporary directory of its own.
func (e *env) startServer(ctx context.Context, stock bool) error {
	dir, err := e.tempDir("belfry-bench-")
	if err != nil {
		return err
	}
	if os.Geteuid() == 0 {
		if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // the server's account has to pass through
			return err
		}
	}
	data, err := pgserver.ReachableDir(dir)
	if err != nil {
		return err
	}
	e.onClose(func(context.Context) error { return os.RemoveAll(data) })
	server, err := pgserver.Open(ctx, pgserver.Config{DataDir: data, Durable: true, Stock: stock})
	if err != nil {
		return err
	}
	e.onClose(server.Close)
	e.admin = server.DSN("postgres")
	return nil
}

// database makes a database of a new name on the server, which is dropped at the end, and
// returns its connection string.
func (e *env) database(ctx context.Context) (string, error) {
	name := "belfry_bench_" + strings.ToLower(rand.Text()[:8])
	administer := func(ctx context.Context, statement string) error {
		conn, err := pgx.Connect(ctx, e.admin)
		if err != nil {
			return err
		}
		_, err = conn.Exec(ctx, strings.ReplaceAll(statement, "{{database}}", pgx.Identifier{name}.Sanitize()))
		return errors.Join(err, conn.Close(ctx))
	}
	if err := administer(ctx, queries.databaseCreate); err != nil {
		return "", fmt.Errorf("make a database of its own: %w", err)
	}
	e.onClose(func(ctx context.Context) error {
		if err := administer(ctx, queries.databaseDrop); err != nil {
			return fmt.Errorf("drop database %s: %w", name, err)
		}
		return nil
	})
	return db.WithDatabase(e.admin, name)
}

// connect opens a pool that ends with the run.
func (e *env) connect(ctx context.Context, dsn, name string, tracer pgx.QueryTracer) (*pgxpool.Pool, error) {
	c, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	c.MaxConns = connections
	c.ConnConfig.Tracer = tracer
	c.ConnConfig.RuntimeParams["application_name"] = name
	pool, err := pgxpool.NewWithConfig(ctx, c)
	if err != nil {
		return nil, err
	}
	e.onClose(func(context.Context) error { pool.Close(); return nil })
	return pool, nil
}

func (e *env) describe(ctx context.Context) (postgres, error) {
	rows, err := e.pool.Query(ctx, queries.serverDescribe)
	if err != nil {
		return postgres{}, err
	}
	p, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[postgres])
	p.Private = e.databaseURL == ""
	return p, err
}

// do runs a statement that returns nothing.
func do(ctx context.Context, pool *pgxpool.Pool, statement string, args pgx.StrictNamedArgs) error {
	if _, err := pool.Exec(ctx, statement, args); err != nil {
		return fmt.Errorf("%s: %w", sqlfile.NameOf(queries, statement), err)
	}
	return nil
}

// look reads the one row of a statement.
func look(ctx context.Context, pool *pgxpool.Pool, statement string, args pgx.StrictNamedArgs, to ...any) error {
	if err := pool.QueryRow(ctx, statement, args).Scan(to...); err != nil {
		return fmt.Errorf("%s: %w", sqlfile.NameOf(queries, statement), err)
	}
	return nil
}

// checkpoint leaves nothing to write from the measurement before. Without the role
// pg_checkpoint measurements are noisier.
func (e *env) checkpoint(ctx context.Context) error {
	err := do(ctx, e.pool, queries.serverCheckpoint, nil)
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.Code == "42501" { // insufficient_privilege
		return nil
	}
	return err
}

// clear makes level ground: the outbox is empty and nothing is left to write to disk.
func (e *env) clear(ctx context.Context) error {
	if err := do(ctx, e.pool, queries.outboxEmpty, nil); err != nil {
		return err
	}
	return e.checkpoint(ctx)
}
