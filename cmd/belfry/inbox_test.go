package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/text"
)

const centreServed = "the notification centre is served"

// readable is a database in which channel 4711 has two notifications.
func readable(t *testing.T) *dbtest.DB {
	t.Helper()
	db := newKept(t)
	require.NoError(t, execEach(db,
		`INSERT INTO belfry.channels (id, external_id, platform) OVERRIDING SYSTEM VALUE VALUES (4711, 'user-4711', 'ios')`,
		`INSERT INTO belfry.jobs (type, category, title, priority) VALUES ('inbox', 'operator_notice', 'Maintenance was yesterday', 0)`,
		`INSERT INTO belfry.jobs (type, category, title, priority) VALUES ('inbox', 'operator_notice', 'Maintenance tonight', -1)`))
	r := command(t, []string{"BELFRY_DATABASE_URL=" + db.DSN}, "run")
	require.Equal(t, codeDone, r.code, r.stderr)
	return db
}

// readerKey is the key of the tokens of readers.
const readerKey = "ssssssssssssssssssssssssssssssss"

// centre is the environment of a process that serves the notification centre, and signs tokens of channels.
func centre(t *testing.T, dsn string, settings ...string) (environ []string, tokenOf func(channel int64) string) {
	t.Helper()
	environ = append([]string{
		"BELFRY_DATABASE_URL=" + dsn, "BELFRY_INBOX_LISTEN=127.0.0.1:0", "BELFRY_INBOX_AUDIENCE=inbox",
		`BELFRY_INBOX_KEYS=[{"id": "a", "algorithm": "HS256", "key": "` + readerKey + `"}]`,
	}, settings...)
	return environ, func(channel int64) string {
		t.Helper()
		token := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"aud": "inbox", "sub": text.Int(channel), "exp": time.Now().Add(30 * time.Minute).Unix()})
		token.Header["kid"] = "a"
		signed, err := token.SignedString([]byte(readerKey))
		require.NoError(t, err)
		return signed
	}
}

// centre waits until a process serves the notification centre and returns its URL.
func (p *process) centre(t *testing.T) string {
	t.Helper()
	p.says(t, centreServed)
	url, _ := p.logged(t, centreServed)[0]["detail"].(string)
	return url
}

// The session of docs/notification-centre.md runs, with a role that has the profile inbox alone.
func TestDocs_TheSessionWithTheNotificationCentreRuns(t *testing.T) {
	t.Parallel()
	if exec.CommandContext(t.Context(), "curl", "--fail-with-body", "--version").Run() != nil ||
		exec.CommandContext(t.Context(), "openssl", "pkeyutl", "-help").Run() != nil {
		t.Skip("there is no curl of 2021 or later, or no openssl")
	}
	page, dir := pages(t)["docs/notification-centre.md"], t.TempDir()
	shells, db := blocks(page, "sh"), readable(t)
	role := withProfiles(t, db, "", "inbox")
	require.Len(t, shells, 5)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	bash := func(script string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, "bash", "-euc", "set -o pipefail; "+script)
		cmd.Dir = dir
		return cmd
	}
	shell := func(script string) string {
		t.Helper()
		out, err := bash(script).CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	shell(shells[0])
	config := filepath.Join(dir, "belfry.yaml")
	text := strings.NewReplacer("/etc/belfry/", "", ":8471", ":0").Replace(blocks(page, "yaml")[0])
	require.NoError(t, os.WriteFile(config, []byte(text), 0o600))
	p := start(t, []string{"BELFRY_DATABASE_URL=" + role.DSN}, "serve", "--config", config)
	url := p.centre(t)
	require.Contains(t, shells[3], "http://127.0.0.1:8471/v1")
	out := shell(shells[2] + "\n" + strings.ReplaceAll(shells[3], "http://127.0.0.1:8471/v1", url))
	for line := range strings.SplitSeq(blocks(page, "json")[0], "\n") {
		require.Contains(t, out, strings.TrimSpace(strings.NewReplacer(`": `, `":`, `, "`, `,"`).Replace(strings.TrimSuffix(line, ","))), out)
	}
	require.Contains(t, out, `{"category":"popular_content","medium":"push","opted_out":true,"receives":false}`)
	require.Equal(t, http.StatusNotFound, answered(t, "GET", strings.TrimSuffix(url, "/v1")+"/api/v1/lanes", "x"), "operators' access is elsewhere")

	// The live session runs until the server stops, which ends it without an error.
	var printed dbtest.Buffer
	live := bash(shells[2] + "\n" + strings.ReplaceAll(shells[4], "http://127.0.0.1:8471/v1", url))
	live.Stdout, live.Stderr = &printed, &printed
	require.NoError(t, live.Start())
	for i, line := range strings.Split(blocks(page, "text")[0], "\n") {
		line = strings.TrimSpace(line)
		require.Eventually(t, func() bool { return strings.Contains(printed.String(), line) }, patience, 5*time.Millisecond, "no %s", line)
		if i == 0 {
			require.NoError(t, execEach(db, blocks(page, "sql")...))
		}
	}
	p.terminate(t)
	require.Equal(t, codeDone, p.exit(t), p.stderr.String())
	require.NoError(t, live.Wait(), printed.String())
}

// streamed opens an event stream. The function waits for a line with a text, or for the end.
func streamed(t *testing.T, url string) func(want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	require.NoError(t, err)
	res, err := new(http.Transport).RoundTrip(req)
	require.NoError(t, err)
	t.Cleanup(func() { _ = res.Body.Close() })
	require.Equal(t, http.StatusOK, res.StatusCode)
	return lines(t, res.Body)
}

// lines waits for a line of a stream with a text, or for the end.
func lines(t *testing.T, r io.Reader) func(want string) {
	t.Helper()
	scanner := bufio.NewScanner(r)
	return func(want string) {
		t.Helper()
		for scanner.Scan() {
			if strings.Contains(scanner.Text(), want) {
				return
			}
		}
		require.Equal(t, "EOF", want)
		require.NoError(t, scanner.Err())
	}
}

// A server and a daemon serve operators and readers at two addresses.
func TestProcess_ServesReadersBesideOperators(t *testing.T) {
	t.Parallel()
	db := readable(t)
	environ, tokenOf := centre(t, db.DSN)
	reader := tokenOf(4711)
	operator := newToken(t, environ, "operator")
	for _, name := range []string{"serve", "daemon"} {
		p := start(t, environ, name, "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0")
		api := p.served(t)
		url, metrics := p.centre(t), p.shown(t)+"/metrics"
		require.Equal(t, http.StatusOK, answered(t, "GET", url+"/inbox", reader))
		require.Equal(t, http.StatusOK, answered(t, "GET", api+"/lanes", operator))
		require.Equal(t, http.StatusUnauthorized, answered(t, "GET", url+"/inbox", operator))
		require.Equal(t, http.StatusUnauthorized, answered(t, "GET", api+"/lanes", reader))
		require.Equal(t, http.StatusUnauthorized, answered(t, "GET", api+"/inbox", reader))
		require.Equal(t, http.StatusUnauthorized, answered(t, "GET", url+"/stream?access_token=x", ""))
		stream := streamed(t, url+"/stream?access_token="+reader)
		stream(`"type":"reload"`)
		require.NoError(t, execEach(db, `SELECT belfry.notify(4711, 'activity', 'Ann likes your post', route => '{}')`))
		stream(`"title":"Ann likes your post"`)
		require.Equal(t, http.StatusNoContent, answered(t, "POST", url+"/inbox/seen", reader))
		stream(`"type":"read"`)
		for _, pattern := range []string{
			`^belfry_inbox_streams 1$`, `^belfry_inbox_events_total\{type="new"\} 1$`, `^belfry_inbox_events_total\{type="reload"\} 1$`,
			`^belfry_inbox_streams_ended_total\{reason="too_slow"\} 0$`,
		} {
			becomes(t, p, metrics, http.StatusOK, "(?m)"+pattern)
		}
		p.terminate(t)
		stream("EOF")
		require.Equal(t, codeDone, p.exit(t), p.stderr.String())
		require.NotContains(t, p.stderr.String(), readerKey)
		require.NotContains(t, p.stderr.String(), reader, "the token in a URL is not logged")
	}
	r := command(t, environ, "config", "show", "--json")
	require.Equal(t, codeDone, r.code)
	require.Contains(t, r.stdout, `"id": "a"`)
	require.NotContains(t, r.stdout, readerKey)

	busy, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer busy.Close() //nolint:errcheck // the test ends
	poor := withProfiles(t, db, "", "operate")
	for _, c := range []struct {
		setting, want string
		code          code
	}{
		{"BELFRY_DATABASE_URL=" + poor.DSN, "lacks rights for inbox.listen; `belfry roles --for inbox` prints them", codeConfiguration},
		{"BELFRY_INBOX_LISTEN=" + busy.Addr().String(), "inbox.listen: ", codeUnavailable},
		{"BELFRY_INBOX_LISTEN=0.0.0.0:0", "inbox.tls.cert_file: is empty, and inbox.listen 0.0.0.0:0 is beyond this machine", codeConfiguration},
		{"BELFRY_INBOX_AUDIENCE=", "inbox.audience: is empty", codeConfiguration},
		{`BELFRY_INBOX_KEYS=[{"id": "a", "algorithm": "ES256", "key_file": "/nowhere"}]`, "inbox.keys[0].key_file: ", codeConfiguration},
	} {
		name, _, _ := strings.Cut(c.setting, "=")
		var changed []string
		for _, e := range environ {
			if !strings.HasPrefix(e, name+"=") {
				changed = append(changed, e)
			}
		}
		r := command(t, append(changed, c.setting), "serve", "--listen", "127.0.0.1:0")
		require.Equal(t, c.code, r.code, "%s: %s", c.setting, r.stderr)
		require.Contains(t, r.stderr, c.want, fmt.Sprint(c.setting))
	}
}
