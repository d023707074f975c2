package dbtest

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/internal/pgserver"
)

// preparedSince is the first minor version of PgBouncer 1 with prepared statements in transaction
// mode.
const preparedSince = 21

// poolerPort is part of the name of the pooler's Unix socket; it does not listen on TCP.
const poolerPort = 6432

// PgBouncer is a pooler in transaction mode for one PostgreSQL server, reached
// through a Unix socket.
type PgBouncer struct {
	*service

	Version  string         // such as "1.18.0"
	behind   *pgconn.Config // the server
	settings map[string]string
}

// StartPgBouncer starts a pooler for one test, which is skipped if none is
// installed. It takes about 20 ms.
//
// The pooler connects to the DSN's server with its user and password. Clients can use every
// database of the server without a password. Settings are added to the [pgbouncer] section of
// its configuration and override these:
//
//   - pool_mode transaction, default_pool_size 20, max_client_conn 500;
//   - max_prepared_statements 0, so that all versions behave like versions before
//     1.21: pgx needs default_query_exec_mode=exec;
//   - ignore_startup_parameters extra_float_digits;
//   - server_login_retry 0.1 s, so that a restarted PostgreSQL is detected at once.
//
// A setting that the installed version does not have fails the test.
func StartPgBouncer(t testing.TB, dsn string, settings map[string]string) *PgBouncer {
	t.Helper()
	program := findService(t, "pgbouncer", "pgbouncer")
	version, minor := poolerVersion(t, program)
	behind, err := pgconn.ParseConfig(dsn)
	require.NoError(t, err)
	credential, err := pgserver.Credential()
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
	if behind.TLSConfig != nil {
		all["server_tls_sslmode"] = "require"
	}
	if minor >= preparedSince {
		all["max_prepared_statements"] = "0"
	}
	b := &PgBouncer{Version: version, behind: behind, settings: all, service: &service{
		program: program, args: []string{filepath.Join(dir, "pgbouncer.ini")}, dir: dir, credential: credential,
	}}
	b.Configure(t, settings)
	b.ask = b.askConsole
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
	require.NoError(t, os.WriteFile(config, []byte(poolerConfig(b.behind, b.settings)), 0o600))
	give(t, b.credential, config)
}

// Churn returns settings with which a server connection is closed after one transaction: the backend
// of a client has ended when its COMMIT returns.
func Churn() map[string]string {
	return map[string]string{"server_lifetime": "0"}
}

// DSN returns a connection URL for a database through the pooler. The database
// pgbouncer is the pooler's own console (SHOW, RECONNECT, KILL …), which supports only the
// simple protocol.
func (b *PgBouncer) DSN(database string) string {
	u := url.URL{Scheme: "postgres", User: url.User(b.behind.User), Path: "/" + database,
		RawQuery: url.Values{"host": {b.dir}, "port": {strconv.Itoa(poolerPort)}}.Encode()}
	return u.String()
}

// askConsole connects to the console. The socket is in the pooler's own directory, so that only the
// pooler can answer.
func (b *PgBouncer) askConsole(ctx context.Context, _ int) error {
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
