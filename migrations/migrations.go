// Package migrations contains belfry's schema as embedded SQL and applies it.
//
// Each change is a pair of plain SQL files, NNNN_title.up.sql and
// NNNN_title.down.sql, run by goose in one transaction each and recorded in
// belfry.schema_migrations. Everything lives in the schema "belfry".
//
// Several nodes may migrate at once: a transaction-level advisory lock, held for
// the whole of Up or Down, lets one node work at a time; the next node then finds
// no pending migration. It is a transaction's lock, not a session's, so it works
// through PgBouncer in transaction mode and ends with its holder's connection.
//
// Down removes data. It is for development and for undoing a release at once,
// never part of normal operation.
package migrations

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
)

// FS holds the migration files. dbtest hashes it to name its template database.
//
//go:embed *.sql
var FS embed.FS

// lockKey is the advisory lock that serialises migrating nodes: "belfry" in ASCII.
const lockKey = 0x62656c667279

// versionTable is goose's bookkeeping.
const versionTable = "belfry.schema_migrations"

// statementTimeout limits one migration, so that none hangs forever. Building an index on a large table
// may take long.
const statementTimeout = time.Hour

// Config has the options of migrations.
type Config struct {
	// LockTimeout limits the wait for another migrating node, whose lock any login can take, and for each
	// lock of a table; then the error is a *HeldError. It is at most half of the remaining time of the
	// context.
	LockTimeout time.Duration
}

// DefaultConfig returns a Config that waits 30 seconds.
func DefaultConfig() Config { return Config{LockTimeout: 30 * time.Second} }

// Status is one migration, and the time at which this database applied it.
type Status struct {
	Version int64      `json:"version"`
	Title   string     `json:"title"`
	Applied *time.Time `json:"applied_at"` // nil if it is pending
}

// ErrOlder reports a schema that is missing, or older than this belfry.
var ErrOlder = errors.New("the database schema is older than this belfry")

// ErrNewer reports that a newer belfry migrated the database to a version that this binary does not
// know.
var ErrNewer = errors.New("the database schema is newer than this belfry")

// Up is Config.Up with the default Config.
func Up(ctx context.Context, dsn string) ([]int64, error) { return DefaultConfig().Up(ctx, dsn) }

// Down is Config.Down with the default Config.
func Down(ctx context.Context, dsn string, to int64) ([]int64, error) {
	return DefaultConfig().Down(ctx, dsn, to)
}

// List is Config.List with the default Config.
func List(ctx context.Context, dsn string) ([]Status, error) { return DefaultConfig().List(ctx, dsn) }

// Up applies every pending migration to the database at dsn and returns the
// versions it applied, oldest first. It returns none if the schema is current.
func (c Config) Up(ctx context.Context, dsn string) ([]int64, error) {
	var applied []int64
	err := c.withProvider(ctx, dsn, primary, func(p *goose.Provider) error {
		if err := rejectNewer(ctx, p); err != nil {
			return err
		}
		results, err := p.Up(ctx)
		for _, r := range results {
			applied = append(applied, r.Source.Version)
		}
		return err
	})
	if err != nil {
		return applied, fmt.Errorf("migrate up: %w", err)
	}
	return applied, nil
}

// Down undoes migrations down to, and not including, version to and returns the
// versions it undid, newest first. Zero removes everything, data included.
func (c Config) Down(ctx context.Context, dsn string, to int64) ([]int64, error) {
	var undone []int64
	err := c.withProvider(ctx, dsn, primary, func(p *goose.Provider) error {
		if err := rejectNewer(ctx, p); err != nil {
			return err
		}
		results, err := p.DownTo(ctx, to)
		for _, r := range results {
			undone = append(undone, r.Source.Version)
		}
		return err
	})
	if err != nil {
		return undone, fmt.Errorf("migrate down to %d: %w", to, err)
	}
	return undone, nil
}

// List returns every migration this binary knows, oldest first, with the time
// this database applied it. It only creates the schema belfry and its bookkeeping table if
// they are missing. List, Up and Down need two connections: one holds the lock.
func (c Config) List(ctx context.Context, dsn string) ([]Status, error) {
	var list []Status
	err := c.withProvider(ctx, dsn, nil, func(p *goose.Provider) error {
		states, err := p.Status(ctx)
		if err != nil {
			return err
		}
		for _, s := range states {
			st := Status{Version: s.Source.Version, Title: title(s.Source.Version)}
			if s.State == goose.StateApplied {
				at := s.AppliedAt.UTC()
				st.Applied = &at
			}
			list = append(list, st)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("migration status: %w", err)
	}
	return list, nil
}

// Latest returns the newest version that this binary knows.
func Latest() int64 {
	versions, _ := files()
	return versions[len(versions)-1]
}

// Check compares the version of a database's schema with the binary's. It returns an error that is ErrOlder
// or ErrNewer if they differ. Version 0 means that the database has no schema.
func Check(have int64) error {
	switch latest := Latest(); {
	case have == 0:
		return &olderError{"this database has no belfry schema yet; create it with `belfry migrate up`"}
	case have < latest:
		return &olderError{fmt.Sprintf("the schema is at version %d, this belfry needs %d; update it with `belfry migrate up`", have, latest)}
	case have > latest:
		return fmt.Errorf("%w: it is at version %d, this belfry knows up to %d; use the newer belfry", ErrNewer, have, latest)
	}
	return nil
}

// olderError is ErrOlder with a text.
type olderError struct{ text string }

func (e *olderError) Error() string        { return e.text }
func (e *olderError) Is(target error) bool { return target == ErrOlder }

func rejectNewer(ctx context.Context, p *goose.Provider) error {
	have, err := p.GetDBVersion(ctx)
	if err != nil {
		return err
	}
	if err := Check(have); errors.Is(err, ErrNewer) {
		return err
	}
	return nil
}

// primary rejects a standby, so that pgx tries the next host of the URL.
func primary(_ context.Context, conn *pgconn.PgConn) error {
	if conn.ParameterStatus("in_hot_standby") == "on" {
		return pgconn.ErrStandbyConnection
	}
	return nil
}

// withProvider opens the database on a primary, unless the URL has target_session_attrs, takes the lock,
// and calls do with a provider.
func (c Config) withProvider(ctx context.Context, dsn string, fits pgconn.ValidateConnectFunc, do func(*goose.Provider) error) (err error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return fmt.Errorf("parse database url: %w", err)
	}
	if config.ValidateConnect == nil {
		config.ValidateConnect = fits
	}
	if config.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement { // a pooler in transaction mode may lose prepared statements
		config.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	config.RuntimeParams["client_encoding"] = "UTF8"
	db := stdlib.OpenDB(*config, stdlib.OptionAfterConnect(func(_ context.Context, conn *pgx.Conn) error {
		if encoding := conn.PgConn().ParameterStatus("server_encoding"); encoding != "UTF8" {
			return fmt.Errorf("the database's encoding is %s, and belfry needs UTF8", encoding)
		}
		return nil
	}))
	defer func() { err = errors.Join(err, db.Close()) }()

	// goose uses other connections than the lock.
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // releases the lock; the transaction has written nothing
	bounded := Config{LockTimeout: c.wait(ctx)}
	if _, err := tx.ExecContext(ctx,
		fmt.Sprintf("SET LOCAL idle_in_transaction_session_timeout = 0; SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = %d",
			bounded.LockTimeout.Milliseconds())); err != nil {
		return err
	}
	//sql:allow migrations stands alone
	if _, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock($1)", int64(lockKey)); err != nil {
		return bounded.explainLock(ctx, db, err, true)
	}
	if err := bounded.createSchema(ctx, db); err != nil {
		return explainRights(ctx, db, bounded.explainLock(ctx, db, err, false))
	}
	provider, err := bounded.newProvider(db)
	if err != nil {
		return err
	}
	return explainRights(ctx, db, bounded.explainLock(ctx, db, do(provider), false))
}

// createSchema creates the schema and its bookkeeping table if they are missing. A role without the
// privilege can still use existing ones.
func (c Config) createSchema(ctx context.Context, db *sql.DB) (err error) {
	var schema, table bool
	//sql:allow migrations stands alone
	err = db.QueryRowContext(ctx, "SELECT to_regnamespace('belfry') IS NOT NULL, to_regclass($1) IS NOT NULL",
		versionTable).Scan(&schema, &table)
	if err != nil || schema && table {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // no effect after a commit
	if err := c.begin(ctx, tx); err != nil {
		return err
	}
	if !schema {
		if _, err := tx.ExecContext(ctx, "CREATE SCHEMA belfry"); err != nil {
			return err
		}
	}
	if !table { // goose would use a transaction that may be read-only
		store, err := database.NewStore(database.DialectPostgres, versionTable)
		if err != nil {
			return err
		}
		if err := errors.Join(store.CreateVersionTable(ctx, tx), store.Insert(ctx, tx, database.InsertRequest{})); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// begin overrides the role's defaults of a new transaction. It must be a separate query, because the
// server parses all statements of a query before it executes the first.
func (c Config) begin(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx,
		fmt.Sprintf("SET TRANSACTION READ WRITE; SET LOCAL standard_conforming_strings = on; SET LOCAL row_security = off; SET "+
			"LOCAL statement_timeout = %d; SET LOCAL lock_timeout = %d",
			statementTimeout.Milliseconds(), c.LockTimeout.Milliseconds()))
	return err
}

func (c Config) newProvider(db *sql.DB) (*goose.Provider, error) {
	versions, pairs := files()
	steps := make([]*goose.Migration, 0, len(versions))
	for _, v := range versions {
		steps = append(steps, goose.NewGoMigration(v, c.script(pairs[v].up), c.script(pairs[v].down)))
	}
	return goose.NewProvider(goose.DialectPostgres, db, nil,
		goose.WithGoMigrations(steps...),
		goose.WithDisableGlobalRegistry(true),
		goose.WithTableName(versionTable))
}

// script runs one file in goose's transaction. Without arguments pgx uses the simple protocol, so that a
// file may contain any number of statements and functions.
func (c Config) script(file string) *goose.GoFunc {
	return &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
		text, err := fs.ReadFile(FS, file)
		if err != nil {
			return err
		}
		if err := c.begin(ctx, tx); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, string(text)); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		return nil
	}}
}

type pair struct{ title, up, down string }

// files lists the embedded pairs by version. It panics if a file is not named NNNN_title.up.sql or
// .down.sql or has no other half, which is a programming error.
func files() ([]int64, map[int64]pair) {
	must := func(ok bool, problem, file string) {
		if !ok {
			panic("migrations: " + problem + " " + file)
		}
	}
	names, err := fs.Glob(FS, "*.up.sql")
	must(err == nil && len(names) > 0, "no embedded files", "*.up.sql")
	var versions []int64
	pairs := make(map[int64]pair, len(names))
	for _, up := range names { // Glob sorts: versions rise
		stem := strings.TrimSuffix(up, ".up.sql")
		number, name, ok := strings.Cut(stem, "_")
		version, err := strconv.ParseInt(number, 10, 64)
		must(ok && err == nil, "misnamed file", up)
		down := stem + ".down.sql"
		_, err = fs.Stat(FS, path.Clean(down))
		must(err == nil, "missing file", down)
		versions = append(versions, version)
		pairs[version] = pair{title: strings.ReplaceAll(name, "_", " "), up: up, down: down}
	}
	return versions, pairs
}

func title(version int64) string {
	_, pairs := files()
	return pairs[version].title
}
