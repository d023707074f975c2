package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/dev/fake"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/migrations"
)

const (
	// requester is jobs.requested_by of every job the demo enqueues.
	requester = "belfry demo"
	// stageMark is the comment that marks the demo's own schema.
	stageMark = "made by belfry demo; the next demo drops it"
	// stageLock is the advisory lock of a running demo: "demo" in ASCII.
	stageLock = 0x64656d6f
	// stageConnections is the number of the demo's own connections. One holds the lock.
	stageConnections = 4
)

// errNotOurs reports that the database contains objects that no demo created. Nothing was changed.
var errNotOurs = errors.New("the demo does not touch other schemas and jobs")

// errBusy reports that another demo runs in the same database.
var errBusy = errors.New("another demo is running in this database")

// stage is the state of one demo: its database, its runners and its report.
type stage struct {
	Config

	screen  *screen
	dsn     string
	pool    *pgxpool.Pool
	unlock  func(context.Context)
	hitAt   int64 // channels read when the runner is killed; at 2*hitAt the job is aborted
	runners []*runner
	heir    *runner // took over from the killed runner
	job     int64
	fakes   *fake.Server
	extra   []string // variables of later processes
	report  *Report
}

// open creates the database if it does not exist, takes the lock, and creates an empty, migrated
// schema. The caller calls close also after an error.
func (s *stage) open(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.patience())
	defer cancel()
	if err := s.free(ctx); err != nil {
		return err
	}
	if err := s.createDatabase(ctx); err != nil {
		return err
	}
	var err error
	if s.dsn, err = db.WithDatabase(s.DSN, s.Database); err != nil {
		return err
	}
	config, err := pgxpool.ParseConfig(s.dsn)
	if err != nil {
		return errors.New("the database's address cannot be given another database name") // the text may contain a password
	}
	config.MaxConns = stageConnections
	config.ConnConfig.ConnectTimeout = s.Server.Config().ConnConfig.ConnectTimeout
	config.ConnConfig.RuntimeParams["application_name"] = requester
	if s.pool, err = db.Open(ctx, config, zerolog.Nop()); err != nil { // the runners report a pooler
		return fmt.Errorf("connect to database %s: %w", s.Database, err)
	}
	if err := s.clear(ctx); err != nil {
		return fmt.Errorf("database %s: %w", s.Database, err)
	}
	if _, err := migrations.Up(ctx, s.dsn); err != nil {
		return err
	}
	if _, err := s.pool.Exec(ctx, queries.routes); err != nil {
		return fmt.Errorf("set routes: %w", err)
	}
	return scan(ctx, s.pool, queries.serverVersion, nil, &s.report.Database.Version)
}

func (s *stage) createDatabase(ctx context.Context) error {
	var exists bool
	if err := scan(ctx, s.Server, queries.databaseExists, pgx.StrictNamedArgs{"name": s.Database}, &exists); err != nil || exists {
		return err
	}
	_, err := s.Server.Exec(ctx, render(queries.databaseCreate, map[string]string{"name": pgx.Identifier{s.Database}.Sanitize()}))
	switch {
	case err != nil && db.MadeMeanwhile(err):
		return nil
	case db.ClassOf(err) == db.Forbidden:
		return fmt.Errorf(`create database %s: %w
the demo needs a database of its own; three ways out:
  1. ALTER ROLE … CREATEDB for the role that belfry connects as
  2. CREATE DATABASE %[1]s OWNER … as a role with CREATEDB
  3. leave database.url unset: belfry then runs a private PostgreSQL`, s.Database, err)
	case err != nil:
		return fmt.Errorf("create database %s: %w", s.Database, err)
	}
	return nil
}

// clear takes the lock and drops the schema of the last demo. It returns an error if the database
// contains other objects (D3).
func (s *stage) clear(ctx context.Context) error {
	tx, err := s.pool.Begin(ctx)
	if err != nil {
		return err
	}
	s.unlock = func(ctx context.Context) { _ = tx.Rollback(ctx) } // nothing was written in it
	var ours, schema, jobs bool
	var mark *string
	if err := scan(ctx, tx, queries.stageLock, pgx.StrictNamedArgs{"key": int64(stageLock)}, &ours); err != nil {
		return err
	}
	if !ours {
		return errBusy
	}
	if err := scan(ctx, s.pool, queries.stageContent, nil, &schema, &mark, &jobs); err != nil {
		return err
	}
	if schema && (mark == nil || *mark != stageMark) {
		return fmt.Errorf("it has a belfry schema that no demo created: %w; choose another database with --database", errNotOurs)
	}
	var foreign *string
	if jobs {
		if err := scan(ctx, s.pool, queries.stageForeignJobs,
			pgx.StrictNamedArgs{"ours": []string{requester, visitor, "schedule demo-news", "schedule demo-evening",
				"schedule demo-hourly"}}, &foreign); err != nil {
			return err
		}
	}
	if foreign != nil {
		return fmt.Errorf(
			"it contains jobs that the demo did not request (%s): %w; choose another database with --database, or drop this one", *foreign,
			errNotOurs)
	}
	_, err = s.pool.Exec(ctx, queries.stageClear)
	return err
}

// close ends the runners and gives lock and connections back. ctx may be over.
func (s *stage) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.patience())
	defer cancel()
	var errs []error
	for _, r := range s.runners {
		if !r.gone() {
			_ = r.cmd.Process.Kill() // it may end by itself in this moment
		}
		_, err := r.exit(ctx)
		errs = append(errs, err)
	}
	if s.fakes != nil {
		errs = append(errs, s.fakes.Close())
	}
	if s.unlock != nil {
		s.unlock(ctx)
	}
	if s.pool != nil {
		s.pool.Close()
	}
	return errors.Join(errs...)
}

// snapshot is the state of a job.
type snapshot struct {
	Status       string
	Cursor       string
	Bound        string
	Fence        int64
	Chunks       int64
	ChannelsRead int64
	RowsWritten  int64
}

// inMiddle reports whether a job is after its first and before its last chunk.
func (l snapshot) inMiddle() bool {
	return l.Status != processed && l.Chunks > 0 && l.Cursor != "" && l.Cursor != l.Bound
}

// The statuses of a job that the demo compares.
const (
	running   = "RUNNING"
	processed = "PROCESSED"
	aborted   = "ABORTED"
)

func (s *stage) snapshot(ctx context.Context) (l snapshot, err error) {
	err = row(ctx, s.pool, queries.jobSnapshot, pgx.StrictNamedArgs{"id": s.job}, &l)
	return l, err
}

// verify compares the rows of a job with the channels that match its audience, up to its bound, or
// with atCursor up to its cursor.
func verify(ctx context.Context, q querier, id int64, atCursor bool) (j jobReport, err error) {
	err = row(ctx, q, queries.verify, pgx.StrictNamedArgs{"id": id, "at_cursor": atCursor}, &j)
	return j, err
}

// pollEvery is the interval between checks of a condition.
const pollEvery = 2 * time.Millisecond

// await polls until done returns true. It returns an error when the runner ends first; nil means that
// it waits for no runner.
func (s *stage) await(ctx context.Context, r *runner, condition string, done func(context.Context) (bool, error)) error {
	again := time.NewTicker(pollEvery)
	defer again.Stop()
	for {
		ended := r != nil && r.gone()
		ok, err := done(ctx)
		switch {
		case err != nil:
			return fmt.Errorf("wait until %s: %w", condition, err)
		case ok:
			return nil
		case ended:
			return r.complaint("ended before " + condition)
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w", condition, context.Cause(ctx))
		}
	}
}

// until polls the job until done returns true. It returns an error when the runner ends first.
func (s *stage) until(ctx context.Context, r *runner, condition string, done func(snapshot) bool) (l snapshot, err error) {
	err = s.await(ctx, r, "the job "+condition, func(ctx context.Context) (_ bool, err error) {
		l, err = s.snapshot(ctx)
		return err == nil && done(l), err
	})
	if err != nil {
		err = fmt.Errorf("the job is %s: %w", l.Status, err)
	}
	return l, err
}

// untilRead waits until the job has read n channels or is finished.
func (s *stage) untilRead(ctx context.Context, r *runner, n int64) (snapshot, error) {
	return s.until(ctx, r, fmt.Sprintf("has read %s channels", grouped(n)), func(l snapshot) bool {
		return l.Chunks > 0 && l.ChannelsRead >= n || l.Status == processed
	})
}

// settled waits until all sessions of the job's runs have ended, and returns the state of the job.
func (s *stage) settled(ctx context.Context) (snapshot, error) {
	err := s.await(ctx, nil, "the sessions of the job end", func(ctx context.Context) (bool, error) {
		var n int
		err := scan(ctx, s.pool, queries.runSessions, pgx.StrictNamedArgs{"id": s.job}, &n)
		return n == 0, err
	})
	if err != nil {
		return snapshot{}, err
	}
	return s.snapshot(ctx)
}

// querier is a pool, a connection or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// scan reads the values of a statement's only row.
func scan(ctx context.Context, q querier, statement string, args pgx.StrictNamedArgs, into ...any) error {
	if err := q.QueryRow(ctx, statement, args).Scan(into...); err != nil {
		return fmt.Errorf("%s: %w", db.QueryName(queries, statement), err)
	}
	return nil
}

// row is scan for a struct, by the names of the columns.
func row[T any](ctx context.Context, q querier, statement string, args pgx.StrictNamedArgs, into *T) (err error) {
	if *into, err = db.One[T](ctx, q, statement, args); err != nil {
		return fmt.Errorf("%s: %w", db.QueryName(queries, statement), err)
	}
	return nil
}

// render fills the {{marks}} of a statement with numbers and quoted text.
func render(sql string, marks map[string]string) string {
	for mark, text := range marks {
		sql = strings.ReplaceAll(sql, "{{"+mark+"}}", text)
	}
	return sql
}
