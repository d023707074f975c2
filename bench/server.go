package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/bench"
	"github.com/belfryhq/belfry/internal/cities"
	"github.com/belfryhq/belfry/internal/pgserver"
	"github.com/belfryhq/belfry/internal/sqlfile"
	"github.com/belfryhq/belfry/migrations"
)

//go:embed queries.sql
var queriesSQL string

var queries = sqlfile.MustParse(queriesSQL)

const (
	openTimeout  = 5 * time.Minute
	closeTimeout = 2 * time.Minute
	// connections is what each side may open at most.
	connections = 12
)

// env is a private server that a run measures on: a stock one, or one tuned as belfry's
// own server for users is.
type env struct {
	config
	stock bool

	server *pgserver.Server
	dsn    string        // belfry's database
	pool   *pgxpool.Pool // the bench's own
	who    *channels.Store
	filled bool
	closes []func(context.Context) error // undone in reverse order
}

func openEnv(ctx context.Context, c config, stock bool) (*env, error) {
	e := &env{config: c, stock: stock}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if err := e.open(ctx); err != nil {
		return nil, errors.Join(err, e.close())
	}
	return e, nil
}

func (e *env) open(ctx context.Context) error {
	dir, err := os.MkdirTemp(e.dir, "belfry-bench-")
	if err != nil {
		return fmt.Errorf("private PostgreSQL: %w", err)
	}
	e.onClose(func(context.Context) error { return os.RemoveAll(dir) })
	if os.Geteuid() == 0 {
		if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // the server's account has to pass through
			return fmt.Errorf("private PostgreSQL: %w", err)
		}
	}
	data, err := pgserver.ReachableDir(dir)
	if err != nil {
		return fmt.Errorf("private PostgreSQL: %w", err)
	}
	if data != dir {
		e.onClose(func(context.Context) error { return os.RemoveAll(data) })
	}
	settings := pgserver.DefaultConfig()
	settings.DataDir, settings.Stock, settings.Logger = data, e.stock, zerolog.Nop()
	if e.server, err = pgserver.Open(ctx, settings); err != nil {
		return fmt.Errorf("private PostgreSQL: %w", err)
	}
	e.onClose(e.server.Close)
	if e.dsn, err = e.database(ctx, "belfry"); err != nil {
		return err
	}
	if _, err := migrations.Up(ctx, e.dsn); err != nil {
		return err
	}
	if e.pool, err = e.connect(ctx, e.dsn, nil); err != nil {
		return err
	}
	e.who, err = channels.New(channels.DefaultConfig())
	return err
}

// close undoes what was opened, even when the run was interrupted.
func (e *env) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	var problems []error
	for i := len(e.closes) - 1; i >= 0; i-- {
		problems = append(problems, e.closes[i](ctx))
	}
	e.closes = nil
	return errors.Join(problems...)
}

func (e *env) onClose(f func(context.Context) error) { e.closes = append(e.closes, f) }

func (e *env) tell(format string, args ...any) { fmt.Fprintf(e.progress, format+"\n", args...) }

// database makes sure of a database on the server and returns its connection string.
func (e *env) database(ctx context.Context, name string) (string, error) {
	if err := e.server.EnsureDatabase(ctx, name); err != nil {
		return "", err
	}
	return e.server.DSN(name), nil
}

// connect opens a pool that ends with the run.
func (e *env) connect(ctx context.Context, dsn string, tracer pgx.QueryTracer) (*pgxpool.Pool, error) {
	c, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	c.MaxConns = connections
	c.ConnConfig.Tracer = tracer
	pool, err := pgxpool.NewWithConfig(ctx, c)
	if err != nil {
		return nil, err
	}
	e.onClose(func(context.Context) error { pool.Close(); return nil })
	return pool, nil
}

func (e *env) describe(ctx context.Context) (bench.Postgres, error) {
	rows, err := e.pool.Query(ctx, queries.SQL("ServerDescribe"))
	if err != nil {
		return bench.Postgres{}, err
	}
	p, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[bench.Postgres])
	p.Private = true
	return p, err
}

// do runs statements that return nothing.
func (e *env) do(ctx context.Context, pool *pgxpool.Pool, names ...string) error {
	for _, name := range names {
		if _, err := pool.Exec(ctx, queries.SQL(name)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// fill generates the channels, once: a few more than messages, because some of them are
// not active.
func (e *env) fill(ctx context.Context) error {
	if e.filled {
		return nil
	}
	e.tell("  generating %d channels", e.messages)
	if _, err := cities.Generate(ctx, e.who, e.pool, e.messages, cities.Options{Seed: 1}); err != nil {
		return err
	}
	e.filled = true
	return nil
}
