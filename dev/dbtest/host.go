package dbtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
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

	"github.com/belfryhq/belfry/internal/pgserver"
	"github.com/belfryhq/belfry/migrations"
)

// Environment variables.
const (
	databaseURLEnv = "BELFRY_TEST_DATABASE_URL" // a server to use instead of a private one
	binDirEnv      = "BELFRY_TEST_PG_BINDIR"    // the PostgreSQL for private servers, instead of the newest
)

const (
	templatePrefix = "belfry_template_"
	templateLock   = 0x62656c5f74706c // "bel_tpl"
	keepFor        = 24 * time.Hour
	adminPoolSize  = 4
)

// SQLSTATEs.
const (
	codeNoDatabase = "3D000" // invalid_catalog_name
)

// environment opens the server when the first test needs it.
type environment struct {
	mu   sync.Mutex
	host *host
	err  error
}

// shared is the server of all tests in this process. Tests reach it through
// functions that take nothing but t, so it cannot live anywhere else; Main
// closes it.
var shared environment //nolint:gochecknoglobals // see above

// open returns the server, starting it and making the template the first time.
// A failure is final: the other tests would only wait for the same one.
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
	server   *pgserver.Server // nil when BELFRY_TEST_DATABASE_URL is set
	url      string           // nonempty when it is
	admin    *pgxpool.Pool    // to the database postgres
	template string

	mu       sync.Mutex
	free     []*clone // that the next tests may use
	restorer restorer
}

// openHost connects to the server at url, or to a private one if url is empty.
func openHost(ctx context.Context, url string) (*host, error) {
	h := &host{url: url, template: templateName()}
	if url == "" {
		dir, err := privateDir()
		if err != nil {
			return nil, err
		}
		config, err := serverConfig(ctx, dir)
		if err != nil {
			return nil, err
		}
		if h.server, err = pgserver.Open(ctx, config); err != nil {
			return nil, err
		}
	}
	err := h.connect(ctx)
	if err == nil {
		err = h.prepareTemplate(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("dbtest: %w", err), h.close(ctx))
	}
	return h, nil
}

func (h *host) connect(ctx context.Context) error {
	dsn, err := h.dsn("postgres")
	if err != nil {
		return err
	}
	h.admin, err = openPool(ctx, dsn, adminPoolSize)
	if err != nil {
		return err
	}
	if err := h.admin.Ping(ctx); err != nil {
		return fmt.Errorf("connect to the test server: %w", err)
	}
	return nil
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

// serverConfig describes a server for tests in dir: a stock one, but for what commits
// promise and how many may connect.
func serverConfig(ctx context.Context, dir string) (pgserver.Config, error) {
	config := pgserver.Config{DataDir: dir, Stock: true, Settings: map[string]string{
		"max_wal_size": "256MB", // the directory may be in memory, and stays
		// Every package and every test runs beside others, each with some connections.
		"max_connections": strconv.Itoa(max(300, 60*runtime.NumCPU())),
	}}
	if binDir := os.Getenv(binDirEnv); binDir != "" {
		in, err := pgserver.InstallAt(ctx, binDir)
		if err != nil {
			return pgserver.Config{}, fmt.Errorf("%s: %w", binDirEnv, err)
		}
		config.Install = &in
	}
	return config, nil
}

// dsn is the connection string for one database of the server.
func (h *host) dsn(database string) (string, error) {
	if h.server != nil {
		return h.server.DSN(database), nil
	}
	if !strings.HasPrefix(h.url, "postgres://") && !strings.HasPrefix(h.url, "postgresql://") {
		return h.url + " dbname=" + database, nil // of repeated keywords the last counts
	}
	u, err := url.Parse(h.url)
	if err != nil {
		return "", fmt.Errorf("%s: %w", databaseURLEnv, err)
	}
	u.Path = "/" + database
	return u.String(), nil
}

// howToStart says how to look at a kept database when its server has stopped.
func (h *host) howToStart() string {
	if h.server == nil {
		return ""
	}
	u, err := url.Parse(h.server.DSN("postgres"))
	if err != nil {
		return ""
	}
	return fmt.Sprintf("\nits server stops with the last test; to look inside, as the owner of the directory:"+
		"\n  %s -D '%s' -o \"-c listen_addresses= -k '%s'\" -l /dev/null start",
		filepath.Join(h.server.Install().BinDir, "pg_ctl"), h.server.DataDir(), u.Query().Get("host"))
}

// templateName depends on every byte of the migrations.
func templateName() string {
	hash := sha256.New()
	err := fs.WalkDir(migrations.FS, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(migrations.FS, path)
		fmt.Fprintf(hash, "%s %d\n%s", path, len(text), text)
		return err
	})
	if err != nil {
		panic(fmt.Sprintf("dbtest: read embedded migrations: %v", err))
	}
	return templatePrefix + hex.EncodeToString(hash.Sum(nil)[:8])
}

// prepareTemplate makes the template unless it exists, notes that it is in use,
// and drops what nobody used for a day.
func (h *host) prepareTemplate(ctx context.Context) (err error) {
	conn, err := h.admin.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	key := pgx.StrictNamedArgs{"key": int64(templateLock)}
	if _, err := conn.Exec(ctx, queries.templateLock, key); err != nil {
		return fmt.Errorf("lock templates: %w", err)
	}
	defer func() {
		if _, unlockErr := conn.Exec(ctx, queries.templateUnlock, key); unlockErr != nil {
			_ = conn.Conn().Close(ctx) // the lock ends with its session
			err = errors.Join(err, fmt.Errorf("unlock templates: %w", unlockErr))
		}
	}()
	var used string
	err = conn.QueryRow(ctx, queries.templateFind, pgx.StrictNamedArgs{"name": h.template}).Scan(&used)
	if errors.Is(err, pgx.ErrNoRows) {
		err = h.makeTemplate(ctx, conn)
	}
	if err != nil {
		return fmt.Errorf("template database: %w", err)
	}
	// Not each time: the note needs a lock that clones have to wait for.
	if at, err := usedAt(used); err != nil || time.Since(at) > time.Hour {
		note := usedNote + strconv.FormatInt(time.Now().Unix(), 10)
		if _, err := conn.Exec(ctx, "COMMENT ON DATABASE "+quote(h.template)+" IS '"+note+"'"); err != nil {
			return fmt.Errorf("template database: %w", err)
		}
	}
	return h.prune(ctx, conn)
}

// makeTemplate migrates a new database and then gives it the template's name.
func (h *host) makeTemplate(ctx context.Context, conn *pgxpool.Conn) error {
	unfinished := h.template + "_new"
	dsn, err := h.dsn(unfinished)
	if err != nil {
		return err
	}
	for _, statement := range []string{
		"DROP DATABASE IF EXISTS " + quote(unfinished) + " (FORCE)",
		"CREATE DATABASE " + quote(unfinished),
	} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return err
		}
	}
	if _, err := migrations.Up(ctx, dsn); err != nil {
		return err
	}
	for _, statement := range []string{
		// A database with connections cannot be cloned.
		"ALTER DATABASE " + quote(unfinished) + " ALLOW_CONNECTIONS false",
		"ALTER DATABASE " + quote(unfinished) + " RENAME TO " + quote(h.template),
	} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// prune drops databases that were made, and templates that were last used, more
// than a day ago. Those that are in use or belong to somebody else stay. The
// caller holds the template lock.
func (h *host) prune(ctx context.Context, conn *pgxpool.Conn) error {
	rows, err := conn.Query(ctx, queries.leftoverList,
		pgx.StrictNamedArgs{"databases": databasePrefix, "templates": templatePrefix})
	if err != nil {
		return fmt.Errorf("list left-over databases: %w", err)
	}
	type leftover struct{ Name, Comment string }
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[leftover])
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
		var refused *pgconn.PgError
		if err != nil && !errors.As(err, &refused) {
			return fmt.Errorf("drop left-over database %s: %w", l.Name, err)
		}
	}
	return nil
}

// usedNote begins the comment of a template; seconds since 1970 follow.
const usedNote = "belfry test template, last used at "

func usedAt(comment string) (time.Time, error) {
	unix, err := strconv.ParseInt(strings.TrimPrefix(comment, usedNote), 10, 64)
	return time.Unix(unix, 0), err
}

// clone makes a database like the template. A template that another process
// pruned meanwhile is made again, once.
func (h *host) clone(ctx context.Context, name string) error {
	statement := "CREATE DATABASE " + quote(name) + " TEMPLATE " + quote(h.template) + " STRATEGY file_copy"
	_, err := h.admin.Exec(ctx, statement)
	if hasCode(err, codeNoDatabase) {
		if err := h.prepareTemplate(ctx); err != nil {
			return err
		}
		_, err = h.admin.Exec(ctx, statement)
	}
	if err != nil {
		return fmt.Errorf("clone template database: %w", err)
	}
	return nil
}

// adopt lets messages leave a clone.
func adopt(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, queries.cloneAdopt)
	return err
}

func (h *host) create(ctx context.Context, name string) error {
	if _, err := h.admin.Exec(ctx, "CREATE DATABASE "+quote(name)+" TEMPLATE template0 STRATEGY file_copy"); err != nil {
		return fmt.Errorf("create database: %w", err)
	}
	return nil
}

// drop drops a test's database, with whatever connections other processes of the
// test have left in it.
func (h *host) drop(ctx context.Context, name string) error {
	if _, err := h.admin.Exec(ctx, "DROP DATABASE IF EXISTS "+quote(name)+" (FORCE)"); err != nil {
		return fmt.Errorf("drop database: %w", err)
	}
	return nil
}

func hasCode(err error, code string) bool {
	var answer *pgconn.PgError
	return errors.As(err, &answer) && answer.Code == code
}
