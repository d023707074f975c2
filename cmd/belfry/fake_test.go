package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/commands"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/dev/fake"
	"github.com/belfryhq/belfry/internal/config"
)

// Everybody among generated channels is reached through the fakes: browsers as well.
func TestLong_FakeTakesEveryGeneratedChannel(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	server, err := fake.Start(t.Context(), fake.DefaultConfig())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	text, err := commands.Senders(server)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "fake.yaml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	environ := []string{"BELFRY_DATABASE_URL=" + db.DSN, "BELFRY_CONFIG=" + file}
	for _, args := range [][]string{
		{"channels", "generate", "10000", "--fake", strings.TrimPrefix(server.URL(), "http://")},
		{"enqueue", "--type", "push", "--category", "operator_notice", "--title", "Hello", "--body", "there", "--everyone"},
		{"run", "--deliver"},
	} {
		r := command(t, environ, args...)
		require.Equal(t, codeDone, r.code, "%v: %s", args, r.stderr)
	}
	require.Equal(t, count(t, db, "belfry.channels WHERE active"), count(t, db, "belfry.messages WHERE status = 'SENT'"))
	require.Equal(t, count(t, db, "belfry.channels WHERE active AND platform = 'web'"), server.Summary().Of(fake.WebPush).Accepted)
}

// startFake starts `belfry fake` on free ports and returns its URL without TLS.
func startFake(t *testing.T, args ...string) (*process, string) {
	t.Helper()
	args = append([]string{"fake", "--listen", "127.0.0.1:0"}, args...)
	p := start(t, nil, args...)
	p.says(t, "the fakes are ready; seed 7; Ctrl-C ends them\n")
	address, url := regexp.MustCompile(`http://127\.0\.0\.1:[0-9]+`), ""
	require.Eventually(t, func() bool { // the two streams arrive by themselves
		url = address.FindString(p.stdout.String() + p.stderr.String())
		return url != ""
	}, patience, 5*time.Millisecond)
	return p, url
}

// askFake makes a request of it and returns the status.
func askFake(t *testing.T, method, url, body string) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	_, err = io.Copy(io.Discard, response.Body)
	require.NoError(t, err)
	return response.StatusCode
}

func TestFake_CountsUntilASignal(t *testing.T) {
	t.Parallel()
	p, url := startFake(t, "--seed", "7", "--fault", "{for: sms, status: 503, count: 2}", "--honour-keys")
	for _, status := range []int{503, 503, 401} {
		require.Equal(t, status, askFake(t, http.MethodPost, url+"/sms", `{"to":"+82","text":"x"}`))
	}
	p.terminate(t)
	require.Equal(t, codeDone, p.exit(t), p.stderr.String())
	require.Contains(t, p.stdout.String(), "\nsenders:\n")
	require.Regexp(t, `(?m)^PROVIDER  CALLS  ACCEPTED  KEYS  DUPLICATES  REPEATS  REFUSED  DROPPED  UNANSWERED  EARLY  REFUSED BY CODE$`, p.stdout.String())
	require.Regexp(t, `(?m)^sms           3         0     0           0        0        3        0           0      0  503 2, unauthorized 1$`, p.stdout.String())
	require.Regexp(t, `(?m)^all           3 `, p.stdout.String())
}

func TestFake_JSON(t *testing.T) {
	t.Parallel()
	p, url := startFake(t, "--seed", "7", "--json")
	require.Equal(t, 204, askFake(t, http.MethodPut, url+"/faults", "[{for: sms, status: 500}]"))
	require.Equal(t, 500, askFake(t, http.MethodPost, url+"/sms", "{}"))
	p.terminate(t)
	require.Equal(t, codeDone, p.exit(t), p.stderr.String())
	var s fake.Summary
	require.NoError(t, json.Unmarshal([]byte(p.stdout.String()), &s))
	require.Equal(t, uint64(7), s.Seed)
	require.Equal(t, map[string]int64{"500": 1}, s.Of(fake.SMS).Refused)
	require.Contains(t, p.stderr.String(), "\nsenders:\n")
}

// The senders go to a file that --config takes after the main one.
func TestFake_WritesAFileThatConfigTakes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "fake.yaml")
	for range 2 { // its own file it replaces
		p := start(t, nil, "fake", "--listen", "127.0.0.1:0", "--seed", "7", "--write", file)
		p.says(t, "the fakes are ready; seed 7; Ctrl-C ends them\n")
		info, err := os.Stat(file)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), "it has credentials")
		require.Contains(t, p.stderr.String(), "senders written to "+file)
		r := command(t, nil, "--config", filepath.Join("..", "..", config.DefaultFile), "--config", file, "config", "check")
		require.Equal(t, codeDone, r.code, r.stderr)
		p.terminate(t)
		require.Equal(t, codeDone, p.exit(t), p.stderr.String())
	}
	mine := filepath.Join(dir, "mine.yaml")
	require.NoError(t, os.WriteFile(mine, []byte("senders: []\n"), 0o600))
	p := start(t, nil, "fake", "--listen", "127.0.0.1:0", "--write", mine)
	require.Equal(t, codeUsage, p.exit(t), p.stderr.String())
	require.Contains(t, p.stderr.String(), "--write: "+mine+" was not written by belfry fake; name another file, or remove it")
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 2, "fake.yaml and mine.yaml: %v", left)
}

// A port that is taken and wrong flags are said, each with its exit code.
func TestFake_Refuses(t *testing.T) {
	t.Parallel()
	_, url := startFake(t, "--seed", "7")
	for _, c := range []struct {
		code code
		want string
		args []string
	}{
		{codeFailure, "belfry: listen: ", []string{"--listen", strings.TrimPrefix(url, "http://")}},
		{codeUsage, `invalid argument "8925" for "--listen" flag: allowed values: HOST:PORT, such as 127.0.0.1:8925; port 0 selects a free port`, []string{"--listen", "8925"}},
		{codeUsage, `invalid argument "{for: fcm, do: explode}" for "--fault" flag: do: "explode" is not allowed; allowed values: hang, reset,`, []string{"--fault", "{for: sms, do: hang}", "--fault", "{for: fcm, do: explode}"}},
		{codeUsage, "fake takes no arguments", []string{"news"}},
	} {
		p := start(t, nil, append([]string{"fake"}, c.args...)...)
		require.Equal(t, c.code, p.exit(t), p.stderr.String())
		require.Contains(t, p.stderr.String(), c.want)
	}
}
