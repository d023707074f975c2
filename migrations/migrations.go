// Package migrations contains belfry's schema as embedded SQL and applies it.
//
// Each change is a pair of plain SQL files, NNNN_title.up.sql and
// NNNN_title.down.sql, run by goose in one transaction each, except files that only
// build indexes concurrently, and recorded in belfry.schema_migrations. Everything
// lives in the schema "belfry".
//
// Several nodes may migrate at once: a transaction-level advisory lock, held for
// the whole of Up or Down, lets one node work at a time; the next node then finds
// no pending migration. It is a transaction's lock, not a session's, so it works
// through PgBouncer in transaction mode and ends with its holder's connection.
//
// A release and the release before it run side by side on one schema. A migration
// therefore expands: it adds what the new release needs and leaves everything that
// the release before uses. The next release may contract: remove what only the
// releases before this one used, and raise belfry.usable_from(), so that they
// reject the schema (see Schema). The header of a migration declares the locks that
// it takes on existing tables (see Lock). A table is locked in short attempts, so
// that statements wait for half a second behind a migration that waits, and for a
// little more than a second if an autovacuum has the table.
//
// Down removes data. It is for development and for undoing a release at once,
// never part of normal operation.
package migrations

import (
	"cmp"
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
	// LockTimeout limits the wait for another migrating node, whose lock any login can take, and the attempts
	// of the migrations to lock tables; then the error is a *HeldError. It is at most half of the remaining
	// time of the context.
	LockTimeout time.Duration

	files fs.FS // nil means FS
}

// DefaultConfig returns a Config that waits 30 seconds.
func DefaultConfig() Config { return Config{LockTimeout: 30 * time.Second} }

// Status is one migration, and the time at which this database applied it.
type Status struct {
	Version int64      `json:"version"`
	Title   string     `json:"title"`
	Applied *time.Time `json:"applied_at"` // nil if it is pending
}

// Up is Config.Up with the default Config.
func Up(ctx context.Context, dsn string) ([]int64, error) { return DefaultConfig().Up(ctx, dsn) }

// Down is Config.Down with the default Config.
func Down(ctx context.Context, dsn string, to int64) ([]int64, error) {
	return DefaultConfig().Down(ctx, dsn, to)
}

// List is Config.List with the default Config.
func List(ctx context.Context, dsn string) ([]Status, error) { return DefaultConfig().List(ctx, dsn) }

// Up applies every pending migration to the database at dsn and returns the
// versions it applied, oldest first. It returns none if the schema is current, or
// newer and usable by this binary.
func (c Config) Up(ctx context.Context, dsn string) ([]int64, error) {
	var applied []int64
	err := c.withProvider(ctx, dsn, primary, func(db *sql.DB, p *goose.Provider) error {
		if schema, err := c.readSchema(ctx, db, p); err != nil || schema.Version > c.latest() {
			return cmp.Or(err, schema.Check())
		}
		results, err := p.Up(ctx)
		applied = appendVersions(applied, results, err)
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
	err := c.withProvider(ctx, dsn, primary, func(db *sql.DB, p *goose.Provider) error {
		if schema, err := c.readSchema(ctx, db, p); err != nil || schema.Version > c.latest() {
			return cmp.Or(err, fmt.Errorf("%w: it is at version %d, and this belfry knows up to %d; undo its migrations with the newer belfry",
				ErrNewer, schema.Version, c.latest()))
		}
		results, err := p.DownTo(ctx, to)
		undone = appendVersions(undone, results, err)
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
	err := c.withProvider(ctx, dsn, nil, func(_ *sql.DB, p *goose.Provider) error {
		list = nil // of an attempt before
		states, err := p.Status(ctx)
		if err != nil {
			return err
		}
		_, pairs := files(c.source())
		for _, s := range states {
			st := Status{Version: s.Source.Version, Title: pairs[s.Source.Version].title}
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

// Pending returns the number of migrations in a list that are not applied.
func Pending(list []Status) (n int64) {
	for _, s := range list {
		if s.Applied == nil {
			n++
		}
	}
	return n
}

// Latest returns the newest version that this binary knows.
func Latest() int64 { return Config{}.latest() }

func (c Config) latest() int64 {
	versions, _ := files(c.source())
	return versions[len(versions)-1]
}

// source returns the migration files.
func (c Config) source() fs.FS {
	if c.files == nil {
		return FS
	}
	return c.files
}

// appendVersions appends the versions of the migrations that goose ran, also before err.
func appendVersions(versions []int64, results []*goose.MigrationResult, err error) []int64 {
	var partial *goose.PartialError
	if errors.As(err, &partial) {
		results = partial.Applied
	}
	for _, r := range results {
		versions = append(versions, r.Source.Version)
	}
	return versions
}

// primary rejects a standby, so that pgx tries the next host of the URL.
func primary(_ context.Context, conn *pgconn.PgConn) error {
	if conn.ParameterStatus("in_hot_standby") == "on" {
		return pgconn.ErrStandbyConnection
	}
	return nil
}

// withProvider opens the database on a primary, unless the URL has target_session_attrs, takes the lock,
// and calls do with a provider. It calls do again if a table is locked.
func (c Config) withProvider(ctx context.Context, dsn string, fits pgconn.ValidateConnectFunc,
	do func(*sql.DB, *goose.Provider) error) (err error) {
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
	bounded := Config{LockTimeout: c.wait(ctx), files: c.files}
	if _, err := tx.ExecContext(ctx,
		fmt.Sprintf("SET LOCAL idle_in_transaction_session_timeout = 0; SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = %d",
			bounded.LockTimeout.Milliseconds())); err != nil {
		return err
	}
	// Without a parameter pgx uses the simple protocol. The extended one leaves an open portal, whose snapshot
	// CREATE INDEX CONCURRENTLY would wait for.
	//sql:allow migrations stands alone
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("SELECT pg_advisory_xact_lock(%d)", int64(lockKey))); err != nil {
		return bounded.explainLock(ctx, db, err, true)
	}
	if err := bounded.createSchema(ctx, db); err != nil {
		return explainRights(ctx, db, bounded.explainLock(ctx, db, err, false))
	}
	err = bounded.retryLocks(ctx, db, func(attempt Config) error {
		provider, err := attempt.newProvider(db)
		if err := cmp.Or(err, attempt.awaitVersions(ctx, db)); err != nil {
			return err
		}
		return do(db, provider)
	})
	return explainRights(ctx, db, bounded.explainLock(ctx, db, err, false))
}

// awaitVersions waits for a lock of the bookkeeping table, which goose reads without a limit.
func (c Config) awaitVersions(ctx context.Context, db *sql.DB) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // it has written nothing
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("SET LOCAL lock_timeout = %d", c.LockTimeout.Milliseconds())); err != nil {
		return err
	}
	//sql:allow migrations stands alone
	_, err = tx.ExecContext(ctx, "LOCK TABLE ONLY "+versionTable+" IN ACCESS SHARE MODE")
	return err
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
	if err := c.begin(ctx, tx, c.LockTimeout); err != nil {
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
// server parses all statements of a query before it executes the first. A deadlock_timeout that is shorter
// than the attempts lets PostgreSQL cancel an autovacuum that holds the table.
func (c Config) begin(ctx context.Context, tx *sql.Tx, lockTimeout time.Duration) error {
	_, err := tx.ExecContext(ctx,
		fmt.Sprintf("SET TRANSACTION READ WRITE; SET LOCAL standard_conforming_strings = on; SET LOCAL row_security = off; SET "+
			"LOCAL statement_timeout = %d; SET LOCAL lock_timeout = %d; SELECT set_config('deadlock_timeout', '%dms', true) "+
			"WHERE has_parameter_privilege('deadlock_timeout', 'SET')",
			statementTimeout.Milliseconds(), max(lockTimeout.Milliseconds(), 1), deadlockTimeout.Milliseconds()))
	return err
}

func (c Config) newProvider(db *sql.DB) (*goose.Provider, error) {
	versions, pairs := files(c.source())
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
// file may contain any number of statements and functions. The locks that the file declares share the time of
// one attempt, because the first blocks statements while the migration waits for the last.
//
// A file of CREATE INDEX CONCURRENTLY runs its statements without a transaction and without a limit on locks:
// they wait for other transactions, but no statement of the foreground waits for them.
func (c Config) script(file string) *goose.GoFunc {
	text, err := fs.ReadFile(c.source(), file)
	wait := c.LockTimeout
	if wait <= lockAttempt { // a longer one is for autovacuum
		wait /= time.Duration(max(len(locksOf(string(text))), 1))
	}
	if concurrent := statementsOf(string(text)); len(concurrent) > 0 {
		return &goose.GoFunc{RunDB: func(ctx context.Context, db *sql.DB) error {
			for _, statement := range concurrent {
				if _, err := db.ExecContext(ctx, statement); err != nil {
					return fmt.Errorf("%s: %w", file, err)
				}
			}
			return nil
		}}
	}
	return &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
		if err != nil {
			return err
		}
		if err := c.begin(ctx, tx, wait); err != nil {
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
func files(source fs.FS) ([]int64, map[int64]pair) {
	must := func(ok bool, problem, file string) {
		if !ok {
			panic("migrations: " + problem + " " + file)
		}
	}
	names, err := fs.Glob(source, "*.up.sql")
	must(err == nil && len(names) > 0, "no embedded files", "*.up.sql")
	var versions []int64
	pairs := make(map[int64]pair, len(names))
	for _, up := range names { // Glob sorts: versions rise
		stem := strings.TrimSuffix(up, ".up.sql")
		number, name, ok := strings.Cut(stem, "_")
		version, err := strconv.ParseInt(number, 10, 64)
		must(ok && err == nil, "misnamed file", up)
		down := stem + ".down.sql"
		_, err = fs.Stat(source, path.Clean(down))
		must(err == nil, "missing file", down)
		versions = append(versions, version)
		pairs[version] = pair{title: strings.ReplaceAll(name, "_", " "), up: up, down: down}
	}
	return versions, pairs
}
