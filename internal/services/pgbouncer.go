package services

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

// preparedSince is the minor version of PgBouncer 1 that first carried prepared
// statements in transaction mode.
const preparedSince = 21

// poolerPort names the pooler's Unix socket; it listens on no TCP port.
const poolerPort = 6432

// PgBouncer is a pooler in transaction mode before one PostgreSQL server, reached
// through a Unix socket.
type PgBouncer struct {
	*process

	Version  string // as the program reports it: "1.18.0"
	user     string
	server   *pgconn.Config
	settings map[string]string
}

// StartPgBouncer starts a pooler for one test, which is skipped if none is
// installed. It takes some 20 ms.
//
// The DSN's server, user and password are those of the pooler's server
// connections; every database of that server can be reached, and clients need no
// password. Settings are added to the [pgbouncer] section of its configuration,
// over these:
//
//   - pool_mode transaction, default_pool_size 20, max_client_conn 500;
//   - max_prepared_statements 0, so that all versions behave like those before
//     1.21: pgx has to be told not to prepare (default_query_exec_mode=exec);
//   - ignore_startup_parameters extra_float_digits;
//   - server_login_retry 0.1 s, so that a restarted PostgreSQL is found at once.
//
// A setting that the installed version does not have fails the test.
func StartPgBouncer(t testing.TB, dsn string, settings map[string]string) *PgBouncer {
	t.Helper()
	program := find(t, "pgbouncer", "pgbouncer")
	version, minor := poolerVersion(t, program)
	server, err := pgconn.ParseConfig(dsn)
	require.NoError(t, err)
	credential, err := poolerCredential(server)
	require.NoError(t, err)
	dir := makeDir(t, "pgb", credential)
	all := map[string]string{
		"unix_socket_dir":           dir,
		"unix_socket_mode":          "0700",
		"listen_port":               strconv.Itoa(poolerPort),
		"auth_type":                 "any",
		"pool_mode":                 "transaction",
		"default_pool_size":         "20",
		"max_client_conn":           "500",
		"ignore_startup_parameters": "extra_float_digits",
		"server_login_retry":        "0.1",
	}
	if server.TLSConfig != nil {
		all["server_tls_sslmode"] = "require"
	}
	if minor >= preparedSince {
		all["max_prepared_statements"] = "0"
	}
	b := &PgBouncer{Version: version, user: server.User, server: server, settings: all, process: &process{
		program: program, args: []string{filepath.Join(dir, "pgbouncer.ini")}, dir: dir, credential: credential,
	}}
	b.Configure(t, settings)
	b.answers = func(ctx context.Context, _ int) error { return b.ask(ctx) }
	require.NoError(t, b.Start(t.Context()))
	require.NotContains(t, b.logTail(), "unknown parameter", "pgbouncer %s", version)
	b.endWith(t)
	return b
}

// Configure changes settings from the next Start on.
func (b *PgBouncer) Configure(t testing.TB, settings map[string]string) {
	t.Helper()
	maps.Copy(b.settings, settings)
	config := b.args[0]
	require.NoError(t, os.WriteFile(config, []byte(poolerConfig(b.server, b.settings)), 0o600))
	if b.credential != nil {
		require.NoError(t, os.Chown(config, int(b.credential.Uid), int(b.credential.Gid)))
	}
}

// Churn returns settings with which a server connection serves one transaction and
// is then closed: the backend that a client had is gone when its COMMIT returns.
func Churn() map[string]string {
	return map[string]string{"server_lifetime": "0"}
}

// DSN returns a connection URL for a database through the pooler. The database
// pgbouncer is the pooler's own console (SHOW, RECONNECT, KILL …), which speaks the
// simple protocol only.
func (b *PgBouncer) DSN(database string) string {
	u := url.URL{Scheme: "postgres", User: url.User(b.user), Path: "/" + database,
		RawQuery: url.Values{"host": {b.dir}, "port": {strconv.Itoa(poolerPort)}}.Encode()}
	return u.String()
}

// ask connects to the console. The socket is in the pooler's own directory, so
// nobody else can answer.
func (b *PgBouncer) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	conn, err := pgconn.Connect(ctx, b.DSN("pgbouncer"))
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

func poolerConfig(server *pgconn.Config, settings map[string]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "[databases]\n* = host=%s port=%d user=%s", quoted(server.Host), server.Port, quoted(server.User))
	if server.Password != "" {
		fmt.Fprintf(&b, " password=%s", quoted(server.Password))
	}
	b.WriteString("\n[pgbouncer]\n")
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&b, "%s = %s\n", name, settings[name])
	}
	return b.String()
}

func quoted(value string) string { return "'" + strings.ReplaceAll(value, "'", "''") + "'" }

var poolerVersionPattern = regexp.MustCompile(`(?i)^pgbouncer (1\.(\d+)\S*)`)

func poolerVersion(t testing.TB, program string) (version string, minor int) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), program, "--version").Output()
	require.NoError(t, err)
	m := poolerVersionPattern.FindStringSubmatch(string(out))
	require.NotNil(t, m, "%s --version: %s", program, out)
	minor, err = strconv.Atoi(m[2])
	require.NoError(t, err)
	return m[1], minor
}

// poolerCredential returns nil unless this process is root, as which PgBouncer
// refuses to run; then the owner of the server's socket, who may pass through its
// directory, and for a server without one nobody.
func poolerCredential(server *pgconn.Config) (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil //nolint:nilnil // nil is the credential of everybody but root
	}
	if strings.HasPrefix(server.Host, "/") {
		info, err := os.Stat(filepath.Join(server.Host, ".s.PGSQL."+strconv.Itoa(int(server.Port))))
		if err != nil {
			return nil, fmt.Errorf("the server's socket: %w", err)
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Uid != 0 {
			return &syscall.Credential{Uid: stat.Uid, Gid: stat.Gid}, nil
		}
	}
	account, err := user.Lookup("nobody")
	if err != nil {
		return nil, fmt.Errorf("an account to run pgbouncer as: %w", err)
	}
	uid, errU := strconv.ParseUint(account.Uid, 10, 32)
	gid, errG := strconv.ParseUint(account.Gid, 10, 32)
	if err := errors.Join(errU, errG); err != nil {
		return nil, fmt.Errorf("account nobody: %w", err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}
