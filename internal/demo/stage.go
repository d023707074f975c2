package demo

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/fake"
	"github.com/belfryhq/belfry/migrations"
)

const (
	// requester is jobs.requested_by of every job the demo enqueues.
	requester = "belfry demo"
	// stageMark is the comment by which the demo knows its own schema.
	stageMark = "made by belfry demo; the next demo drops it"
	// stageLock is the advisory lock of a running demo: "demo" in ASCII.
	stageLock = 0x64656d6f
	// stageConnections are the demo's own: one holds the lock.
	stageConnections = 4
)

// ErrNotOurs reports that the database holds something the demo did not make.
// Nothing was changed.
var ErrNotOurs = errors.New("the demo does not touch what it did not make")

// ErrBusy reports that another demo runs in the same database.
var ErrBusy = errors.New("another demo is running in this database")

// stage is one demonstration: its database, its runners, and what was seen.
type stage struct {
	Config

	screen  *screen
	dsn     string
	pool    *pgxpool.Pool
	lock    pgx.Tx
	hitAt   int64 // channels read when a job is killed or aborted
	runners []*runner
	jobs    []int64 // in the order they were enqueued
	fakes   *fake.Server
	extra   []string // variables of the processes that are started
	report  *Report
}

// open makes the database if need be, takes the lock, and leaves an empty, migrated
// schema. What it opened, close closes, also after an error.
func (s *stage) open(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.patience())
	defer cancel()
	if err := s.createDatabase(ctx); err != nil {
		return err
	}
	var err error
	if s.dsn, err = withDatabase(s.DSN, s.Database); err != nil {
		return err
	}
	config, err := pgxpool.ParseConfig(s.dsn)
	if err != nil {
		return errors.New("the database's address cannot be given another database name") // the text may hold a password
	}
	config.MaxConns = stageConnections
	config.ConnConfig.ConnectTimeout = s.Server.Config().ConnConfig.ConnectTimeout
	config.ConnConfig.RuntimeParams["application_name"] = requester
	if s.pool, err = db.Open(ctx, config, zerolog.Nop()); err != nil { // what the runners say of a pooler is enough
		return fmt.Errorf("connect to database %s: %w", s.Database, err)
	}
	if err := s.takeLock(ctx); err != nil {
		return err
	}
	if err := s.clear(ctx); err != nil {
		return err
	}
	if _, err := migrations.Up(ctx, s.dsn); err != nil {
		return err
	}
	if _, err := s.pool.Exec(ctx, queries.SQL("Routes")); err != nil {
		return fmt.Errorf("set routes: %w", err)
	}
	return s.pool.QueryRow(ctx, queries.SQL("ServerVersion")).Scan(&s.report.Database.Version)
}

func (s *stage) createDatabase(ctx context.Context) error {
	var exists bool
	if err := s.Server.QueryRow(ctx, queries.SQL("DatabaseExists"), pgx.StrictNamedArgs{"name": s.Database}).Scan(&exists); err != nil {
		return fmt.Errorf("look for database %s: %w", s.Database, err)
	}
	if exists {
		return nil
	}
	_, err := s.Server.Exec(ctx, render("DatabaseCreate", map[string]string{"name": pgx.Identifier{s.Database}.Sanitize()}))
	switch {
	case err != nil && db.MadeMeanwhile(err):
		return nil
	case db.ClassOf(err) == db.Forbidden:
		return fmt.Errorf(`make database %s: %w
the demo wants a database of its own; three ways out:
  1. ALTER ROLE … CREATEDB for the role that belfry connects as
  2. CREATE DATABASE %[1]s OWNER … by somebody who may
  3. leave database.url unset: belfry then runs a private PostgreSQL`, s.Database, err)
	case err != nil:
		return fmt.Errorf("make database %s: %w", s.Database, err)
	}
	return nil
}

func (s *stage) takeLock(ctx context.Context) error {
	tx, err := s.pool.Begin(ctx)
	if err != nil {
		return fmt.Errorf("connect to database %s: %w", s.Database, err)
	}
	s.lock = tx
	var ours bool
	if err := tx.QueryRow(ctx, queries.SQL("StageLock"), pgx.StrictNamedArgs{"key": int64(stageLock)}).Scan(&ours); err != nil {
		return fmt.Errorf("lock database %s: %w", s.Database, err)
	}
	if !ours {
		return fmt.Errorf("database %s: %w", s.Database, ErrBusy)
	}
	return nil
}

// clear drops what the last demo left, if that is all there is (D3).
func (s *stage) clear(ctx context.Context) error {
	var schema, jobs bool
	var mark *string
	if err := s.pool.QueryRow(ctx, queries.SQL("StageLook")).Scan(&schema, &mark, &jobs); err != nil {
		return fmt.Errorf("look at database %s: %w", s.Database, err)
	}
	if schema && (mark == nil || *mark != stageMark) {
		return fmt.Errorf("database %s has a belfry schema, and no demo made it: %w; choose another database with --database", s.Database, ErrNotOurs)
	}
	if jobs {
		if err := s.refuseForeignJobs(ctx); err != nil {
			return err
		}
	}
	if _, err := s.pool.Exec(ctx, queries.SQL("StageClear")); err != nil {
		return fmt.Errorf("clear database %s: %w", s.Database, err)
	}
	return nil
}

func (s *stage) refuseForeignJobs(ctx context.Context) error {
	rows, err := s.pool.Query(ctx, queries.SQL("StageForeignJobs"), pgx.StrictNamedArgs{"me": requester})
	if err != nil {
		return fmt.Errorf("look at database %s: %w", s.Database, err)
	}
	type foreign struct {
		ID int64
		By string
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[foreign])
	if err != nil {
		return fmt.Errorf("look at database %s: %w", s.Database, err)
	}
	if len(list) == 0 {
		return nil
	}
	names := make([]string, 0, len(list))
	for _, j := range list {
		names = append(names, fmt.Sprintf("job %d, requested by %s", j.ID, j.By))
	}
	return fmt.Errorf("database %s holds jobs that are not the demo's (%s): %w; choose another database with --database, or drop this one",
		s.Database, strings.Join(names, "; "), ErrNotOurs)
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
		if _, err := r.exit(ctx); err != nil {
			errs = append(errs, err)
		}
	}
	errs = append(errs, s.closeFakes())
	if s.lock != nil {
		_ = s.lock.Rollback(ctx) // nothing was written in it
	}
	if s.pool != nil {
		s.pool.Close()
	}
	return errors.Join(errs...)
}

// withDatabase returns a connection string, URL or keywords, with another database.
func withDatabase(dsn, name string) (string, error) {
	if !strings.HasPrefix(dsn, "postgres://") && !strings.HasPrefix(dsn, "postgresql://") {
		return dsn + " dbname=" + name, nil // the last setting counts
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return "", errors.New("the database's address is no URL") // the text may hold a password
	}
	u.Path = "/" + name
	query := u.Query()
	query.Del("dbname")
	query.Del("database")
	u.RawQuery = strings.ReplaceAll(query.Encode(), "+", "%20") // libpq takes a + for a +
	return u.String(), nil
}

// look is how far a job is.
type look struct {
	Status       string
	Cursor       string
	Bound        string
	Fence        int64
	Chunks       int64
	ChannelsRead int64
	RowsWritten  int64
	Runner       string
	ScheduleAt   time.Time
	StartedAt    *time.Time
}

// inMiddle reports whether a job is after its first and before its last chunk.
func (l look) inMiddle() bool {
	return l.Status != processed && l.Chunks > 0 && l.Cursor != "" && l.Cursor != l.Bound
}

// The statuses of a job that the demo decides by.
const (
	running   = "RUNNING"
	processed = "PROCESSED"
	aborted   = "ABORTED"
)

func (s *stage) look(ctx context.Context, id int64) (look, error) {
	rows, err := s.pool.Query(ctx, queries.SQL("JobLook"), pgx.StrictNamedArgs{"id": id})
	if err != nil {
		return look{}, fmt.Errorf("look at job %d: %w", id, err)
	}
	l, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[look])
	if err != nil {
		return look{}, fmt.Errorf("look at job %d: %w", id, err)
	}
	return l, nil
}

// lookEvery is how often a job's row is looked at while something is waited for.
const lookEvery = 2 * time.Millisecond

// until looks at a job until done says so, as long as the runner lives.
func (s *stage) until(ctx context.Context, r *runner, id int64, what string, done func(look) bool) (look, error) {
	again := time.NewTicker(lookEvery)
	defer again.Stop()
	for {
		ended := r.gone()
		l, err := s.look(ctx, id)
		if err != nil || done(l) {
			return l, err
		}
		if ended {
			return l, r.complaint(fmt.Sprintf("ended before job %d %s; the job is %s", id, what, l.Status))
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return l, fmt.Errorf("wait until job %d %s (it is %s, %d channels read): %w", id, what, l.Status, l.ChannelsRead, context.Cause(ctx))
		}
	}
}

// untilSettled waits until the server has no session of a run of the job left.
func (s *stage) untilSettled(ctx context.Context, id int64) error {
	again := time.NewTicker(lookEvery)
	defer again.Stop()
	for {
		var n int
		if err := s.pool.QueryRow(ctx, queries.SQL("RunSessions"), pgx.StrictNamedArgs{"id": id}).Scan(&n); err != nil {
			return fmt.Errorf("look for sessions of job %d: %w", id, err)
		}
		if n == 0 {
			return nil
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for the sessions of job %d to end: %w", id, context.Cause(ctx))
		}
	}
}

// enqueue shows a statement, runs it, and returns the new jobs.
func (s *stage) enqueue(ctx context.Context, statement string) ([]int64, error) {
	s.screen.sql(statement)
	rows, err := s.pool.Query(ctx, statement)
	if err != nil {
		return nil, fmt.Errorf("enqueue: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("enqueue: %w", err)
	}
	s.jobs = append(s.jobs, ids...)
	return ids, nil
}

// render fills the {{marks}} of a statement with numbers and quoted text.
func render(name string, marks map[string]string) string {
	sql := queries.SQL(name)
	for mark, text := range marks {
		sql = strings.ReplaceAll(sql, "{{"+mark+"}}", text)
	}
	return sql
}

// literal quotes text for SQL.
func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
