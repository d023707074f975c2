package dbtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/pgserver"
	"github.com/belfryhq/belfry/migrations"
)

// Environment variables.
const (
	databaseURLEnv = "BELFRY_TEST_DATABASE_URL" // a server instead of a private one
	binDirEnv      = "BELFRY_TEST_PG_BINDIR"    // PostgreSQL for private servers instead of the newest
)

const (
	templatePrefix = "belfry_template_"
	templateLock   = 0x62656c5f74706c // "bel_tpl"
	keepFor        = 24 * time.Hour
	adminPoolSize  = 4
)

// environment opens the server for the first test that needs it.
type environment struct {
	mu   sync.Mutex
	host *host
	err  error
}

// shared is the server of all tests in this process. Main closes it. It is a variable because tests pass only t to
// the functions of this package.
var shared environment //nolint:gochecknoglobals // see above

// open returns the server. The first call starts it and creates the template. A failure is final, so that the other
// tests fail without waiting.
func (e *environment) open(ctx context.Context) (*host, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.host == nil && e.err == nil {
		e.host, e.err = openHost(ctx, os.Getenv(databaseURLEnv))
	}
	return e.host, e.err
}

func (e *environment) close(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.host == nil {
		return nil
	}
	h := e.host
	e.host, e.err = nil, errors.New("dbtest: already closed")
	return h.close(ctx)
}

// host is a server with a template database.
type host struct {
	server   *pgserver.Server // nil if BELFRY_TEST_DATABASE_URL is set
	url      string           // of that variable
	admin    *pgxpool.Pool    // connects to the database postgres
	template string

	mu       sync.Mutex
	free     []*clone // databases for the next tests
	restorer restorer
}

// openHost connects to the server at url, or to a private server if url is empty.
func openHost(ctx context.Context, url string) (_ *host, err error) {
	h := &host{url: url, template: templateName()}
	if url == "" {
		dir, err := privateDir()
		if err != nil {
			return nil, err
		}
		if h.server, err = pgserver.Open(ctx, serverConfig(dir, false)); err != nil {
			return nil, err
		}
	}
	dsn, err := h.dsn("postgres")
	if err == nil {
		h.admin, err = openPool(ctx, dsn, adminPoolSize)
	}
	if err == nil {
		err = h.prepareTemplate(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("dbtest: %w", err), h.close(ctx))
	}
	return h, nil
}

func (h *host) close(ctx context.Context) error {
	var problems []error
	for _, c := range h.free {
		c.Pool.Close()
		problems = append(problems, h.drop(ctx, c.Name))
	}
	if h.admin != nil {
		h.admin.Close()
	}
	if h.server != nil {
		problems = append(problems, h.server.Close(ctx))
	}
	return errors.Join(problems...)
}

// serverConfig returns the configuration of a test's server in dir: stock settings, except durability and the number
// of connections.
func serverConfig(dir string, durable bool) pgserver.Config {
	settings := map[string]string{
		"max_wal_size": "256MB", // the directory may be in memory
		// Packages and tests run in parallel, and each needs some connections.
		"max_connections": strconv.Itoa(max(300, 60*runtime.NumCPU())),
	}
	if !durable {
		maps.Copy(settings, map[string]string{
			"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off",
			"wal_level": "minimal", "max_wal_senders": "0", "checkpoint_timeout": "1h",
			// Files in the cluster's directory are removed with it. Killed servers would fill /dev/shm, which is
			// small in containers.
			"dynamic_shared_memory_type": "mmap",
			// Tests run ANALYZE and VACUUM themselves. Autovacuum would change plans and timings from run to run.
			"autovacuum": "off",
		})
	}
	return pgserver.Config{DataDir: dir, BinDir: os.Getenv(binDirEnv), Volatile: !durable, Stock: true, Settings: settings}
}

// dsn returns the connection string for one database of the server.
func (h *host) dsn(database string) (string, error) {
	if h.server != nil {
		return h.server.DSN(database), nil
	}
	if !strings.HasPrefix(h.url, "postgres://") && !strings.HasPrefix(h.url, "postgresql://") {
		return h.url + " dbname=" + database, nil // the last of repeated keywords counts
	}
	u, err := url.Parse(h.url)
	if err != nil {
		return "", fmt.Errorf("%s: %w", databaseURLEnv, err)
	}
	u.Path = "/" + database
	return u.String(), nil
}

// howToStart returns instructions for reading the database of a failed test when its server has stopped.
func (h *host) howToStart() string {
	if h.server == nil {
		return ""
	}
	return fmt.Sprintf("\nits server stops with the last test; to read it, as the owner of the directory:"+
		"\n  %s -D '%s' -o \"-c listen_addresses= -k '%s'\" -l /dev/null start",
		filepath.Join(h.server.Install().BinDir, "pg_ctl"), h.server.DataDir(), filepath.Dir(h.server.DataDir()))
}

// templateName depends on every byte of the migrations.
func templateName() string {
	hash := sha256.New()
	// Embedded files are always readable.
	_ = fs.WalkDir(migrations.FS, ".", func(path string, _ fs.DirEntry, _ error) error {
		text, _ := fs.ReadFile(migrations.FS, path) // empty for directories
		fmt.Fprintf(hash, "%s %d\n%s", path, len(text), text)
		return nil
	})
	return templatePrefix + hex.EncodeToString(hash.Sum(nil)[:8])
}

// prepareTemplate creates the template unless it exists, updates the time of its last use, and drops databases that
// were not used for a day.
func (h *host) prepareTemplate(ctx context.Context) (err error) {
	conn, err := h.admin.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("connect to the test server: %w", err)
	}
	defer conn.Release()
	// The session's end releases the lock if the unlock fails.
	key := pgx.StrictNamedArgs{"key": int64(templateLock)}
	if _, err := conn.Exec(ctx, queries.templateLock, key); err != nil {
		return fmt.Errorf("lock templates: %w", err)
	}
	defer func() {
		if _, unlockErr := conn.Exec(ctx, queries.templateUnlock, key); unlockErr != nil {
			err = errors.Join(err, unlockErr, conn.Conn().Close(ctx))
		}
	}()
	var used string
	err = conn.QueryRow(ctx, queries.templateFind, pgx.StrictNamedArgs{"name": h.template}).Scan(&used)
	if errors.Is(err, pgx.ErrNoRows) {
		err = h.makeTemplate(ctx, conn)
	}
	// The comment requires a lock that delays clones. It is written at most once an hour.
	if at, timeErr := usedAt(used); err == nil && (timeErr != nil || time.Since(at) > time.Hour) {
		note := usedNote + strconv.FormatInt(time.Now().Unix(), 10)
		_, err = conn.Exec(ctx, "COMMENT ON DATABASE "+quote(h.template)+" IS '"+note+"'")
	}
	if err != nil {
		return fmt.Errorf("template database: %w", err)
	}
	return h.prune(ctx, conn)
}

// makeTemplate migrates a new database, forbids connections to it, because they would prevent clones, and then gives
// it the template's name.
func (h *host) makeTemplate(ctx context.Context, conn *pgxpool.Conn) error {
	unfinished := h.template + "_new"
	dsn, err := h.dsn(unfinished)
	if err != nil {
		return err
	}
	run := func(statements ...string) error {
		for _, statement := range statements {
			if _, err := conn.Exec(ctx, statement); err != nil {
				return err
			}
		}
		return nil
	}
	if err := run("DROP DATABASE IF EXISTS "+quote(unfinished)+" (FORCE)", "CREATE DATABASE "+quote(unfinished)); err != nil {
		return err
	}
	if _, err := migrations.Up(ctx, dsn); err != nil {
		return err
	}
	return run("ALTER DATABASE "+quote(unfinished)+" ALLOW_CONNECTIONS false",
		"ALTER DATABASE "+quote(unfinished)+" RENAME TO "+quote(h.template))
}

// prune drops databases that were created, and templates that were last used, more than a day ago. Databases with
// connections and databases of other owners stay. The caller has the template lock.
func (h *host) prune(ctx context.Context, conn *pgxpool.Conn) error {
	type leftover struct{ Name, Comment string }
	list, err := db.Collect(ctx, conn, queries.leftoverList,
		pgx.StrictNamedArgs{"databases": databasePrefix, "templates": templatePrefix}, pgx.RowToStructByPos[leftover])
	if err != nil {
		return fmt.Errorf("list left-over databases: %w", err)
	}
	for _, l := range list {
		at, err := madeAt(l.Name)
		if strings.HasPrefix(l.Name, templatePrefix) {
			at, err = usedAt(l.Comment)
		}
		if err != nil || time.Since(at) < keepFor || l.Name == h.template {
			continue
		}
		_, err = conn.Exec(ctx, "DROP DATABASE IF EXISTS "+quote(l.Name))
		if err != nil && !errors.As(err, new(*pgconn.PgError)) {
			return fmt.Errorf("drop left-over database %s: %w", l.Name, err)
		}
	}
	return nil
}

// usedNote is the comment of a template, followed by seconds since 1970.
const usedNote = "belfry test template, last used at "

func usedAt(comment string) (time.Time, error) {
	unix, err := strconv.ParseInt(strings.TrimPrefix(comment, usedNote), 10, 64)
	return time.Unix(unix, 0), err
}

// clone creates a database from the template. If another process has dropped the template, clone creates it again,
// once. STRATEGY file_copy takes half the time of the default.
func (h *host) clone(ctx context.Context, name string) error {
	err := h.create(ctx, name, h.template)
	if db.Code(err) == db.NoSuchDatabase {
		if err := h.prepareTemplate(ctx); err != nil {
			return err
		}
		err = h.create(ctx, name, h.template)
	}
	return err
}

// adopt enables a clone to send messages.
func adopt(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, queries.cloneAdopt)
	return err
}

func (h *host) create(ctx context.Context, name, template string) error {
	_, err := h.admin.Exec(ctx, "CREATE DATABASE "+quote(name)+" TEMPLATE "+quote(template)+" STRATEGY file_copy")
	if err != nil {
		return fmt.Errorf("create database: %w", err)
	}
	return nil
}

// drop drops a test's database and ends its connections.
func (h *host) drop(ctx context.Context, name string) error {
	if _, err := h.admin.Exec(ctx, "DROP DATABASE IF EXISTS "+quote(name)+" (FORCE)"); err != nil {
		return fmt.Errorf("drop database: %w", err)
	}
	return nil
}
