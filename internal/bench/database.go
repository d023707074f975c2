package bench

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/cities"
	"github.com/belfryhq/belfry/internal/pgserver"
	"github.com/belfryhq/belfry/internal/sqlfile"
	"github.com/belfryhq/belfry/migrations"
)

//go:embed queries.sql
var queriesSQL string

var queries = sqlfile.MustParse(queriesSQL)

const (
	// openTimeout bounds making the database, closeTimeout removing it.
	openTimeout  = 3 * time.Minute
	closeTimeout = 2 * time.Minute
	// poolSize leaves room for two runners, a listener and the bench itself.
	poolSize = 8
)

// env is what the benchmarks of one run share.
type env struct {
	Config

	dsn    string
	pool   *pgxpool.Pool
	store  *channels.Store // belfry.channels
	filled bool
	active int64                         // channels that a job to everyone reaches, once filled
	closes []func(context.Context) error // undone in reverse order
}

// openEnv makes the database. On an error it leaves nothing behind.
func openEnv(ctx context.Context, c Config) (*env, error) {
	e := &env{Config: c}
	e.Progress = zerolog.SyncWriter(c.Progress) // runners warn from goroutines of their own
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	var err error
	if c.DatabaseURL == "" {
		err = e.startPrivate(ctx)
	} else {
		err = e.makeDatabase(ctx)
	}
	if err == nil {
		err = e.connect(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, e.close())
	}
	return e, nil
}

// close undoes what openEnv and the benchmarks did, even when the run was
// interrupted.
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

// startPrivate starts a durable stock server in a temporary directory of its own.
func (e *env) startPrivate(ctx context.Context) error {
	dir, err := os.MkdirTemp(e.Dir, "belfry-bench-")
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
	config := pgserver.DefaultConfig()
	config.DataDir, config.Stock = data, true
	server, err := pgserver.Open(ctx, config)
	if err != nil {
		return fmt.Errorf("private PostgreSQL: %w", err)
	}
	e.onClose(server.Close)
	const database = "belfry_bench"
	if err := server.EnsureDatabase(ctx, database); err != nil {
		return err
	}
	e.dsn = server.DSN(database)
	return nil
}

// makeDatabase makes a database of a new name on the given server.
func (e *env) makeDatabase(ctx context.Context) error {
	var random [4]byte
	_, _ = rand.Read(random[:]) // documented never to fail
	name := "belfry_bench_" + hex.EncodeToString(random[:])
	if err := e.administer(ctx, "DatabaseCreate", name); err != nil {
		return fmt.Errorf("make a database of its own: %w", err)
	}
	e.onClose(func(ctx context.Context) error {
		if err := e.administer(ctx, "DatabaseDrop", name); err != nil {
			return fmt.Errorf("drop database %s: %w", name, err)
		}
		return nil
	})
	var err error
	e.dsn, err = withDatabase(e.DatabaseURL, name)
	return err
}

// administer runs a statement on a database, connected to the one that was given.
func (e *env) administer(ctx context.Context, statement, database string) error {
	conn, err := pgx.Connect(ctx, e.DatabaseURL)
	if err != nil {
		return err
	}
	sql := strings.ReplaceAll(queries.Get(statement).SQL, "{{database}}", pgx.Identifier{database}.Sanitize())
	_, err = conn.Exec(ctx, sql)
	return errors.Join(err, conn.Close(ctx))
}

// withDatabase is the connection string of another database of the same server.
func withDatabase(dsn, database string) (string, error) {
	if !strings.HasPrefix(dsn, "postgres://") && !strings.HasPrefix(dsn, "postgresql://") {
		return dsn + " dbname=" + database, nil // of repeated keywords the last counts
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return "", errors.New("database-url: is not a valid URL") // its text may hold a password
	}
	u.Path = "/" + database
	return u.String(), nil
}

func (e *env) connect(ctx context.Context) error {
	if _, err := migrations.Up(ctx, e.dsn); err != nil {
		return err
	}
	config, err := pgxpool.ParseConfig(e.dsn)
	if err != nil {
		return err
	}
	config.MaxConns = poolSize
	config.ConnConfig.RuntimeParams["application_name"] = "belfry bench" // so that the job does not take the bench for others at work
	config.ConnConfig.ConnectTimeout = openTimeout
	if e.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return err
	}
	e.onClose(func(context.Context) error { e.pool.Close(); return nil })
	e.store, err = channels.New(channels.DefaultConfig())
	return err
}

func (e *env) describe(ctx context.Context) (Postgres, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	rows, err := e.pool.Query(ctx, queries.SQL("ServerDescribe"))
	if err != nil {
		return Postgres{}, err
	}
	p, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Postgres])
	p.Private = e.DatabaseURL == ""
	return p, err
}

func (e *env) progress(format string, args ...any) { fmt.Fprintf(e.Progress, format+"\n", args...) }

// fill generates the channels, once.
func (e *env) fill(ctx context.Context) error {
	if e.filled {
		return nil
	}
	e.progress("generating %s channels at real cities", grouped(e.Channels))
	if _, err := cities.Generate(ctx, e.store, e.pool, e.Channels, cities.Options{Seed: 1}); err != nil {
		return err
	}
	if _, err := e.pool.Exec(ctx, queries.SQL("ChannelsVacuum")); err != nil {
		return fmt.Errorf("vacuum channels: %w", err)
	}
	var highest int64
	if err := e.pool.QueryRow(ctx, queries.SQL("ChannelsActive")).Scan(&e.active, &highest); err != nil {
		return fmt.Errorf("count channels: %w", err)
	}
	e.filled = true
	return nil
}

// clear makes level ground: both outbox tables are empty and nothing is left to
// write to disk.
func (e *env) clear(ctx context.Context) error {
	if _, err := e.pool.Exec(ctx, queries.SQL("OutboxEmpty")); err != nil {
		return fmt.Errorf("empty the outbox: %w", err)
	}
	_, err := e.pool.Exec(ctx, queries.SQL("ServerCheckpoint"))
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.Code == "42501" { // insufficient_privilege
		return nil
	}
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}
