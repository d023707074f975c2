package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/channels/unsubscribe"
	"github.com/belfryhq/belfry/dev/dbtest"
)

// served waits until a process serves the API and returns its URL.
func (p *process) served(t *testing.T) string {
	t.Helper()
	const served = "the HTTP API is served"
	p.says(t, served)
	url, _ := p.logged(t, served)[0]["detail"].(string)
	return url
}

// answered sends a request with a token and returns the status; 0: there was no answer.
func answered(t *testing.T, method, url, token string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	resp, err := client.Do(req)
	if err != nil {
		return 0
	}
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode
}

// newToken makes one by the command line.
func newToken(t *testing.T, environ []string, role string) string {
	t.Helper()
	r := command(t, environ, "tokens", "create", "the-"+role, "--role", role)
	require.Equal(t, codeDone, r.code, r.stderr)
	return strings.TrimSpace(r.stdout)
}

func TestProcess_ServeAndDaemonServeTheAPI(t *testing.T) {
	t.Parallel()
	environ := []string{"BELFRY_DATABASE_URL=" + newKept(t).DSN}
	secret := newToken(t, environ, "operator")
	for _, args := range [][]string{{"serve"}, {"daemon"}, {"serve", "--read-only"}} {
		p := start(t, environ, append(args, "--listen", "127.0.0.1:0")...)
		url := p.served(t)
		require.Equal(t, http.StatusOK, answered(t, "GET", url+"/lanes", secret), args)
		require.Equal(t, http.StatusUnauthorized, answered(t, "GET", url+"/lanes", "belfry_forged"), args)
		want := http.StatusOK
		if len(args) > 1 {
			want = http.StatusForbidden
		}
		require.Equal(t, want, answered(t, "POST", url+"/lanes/night/pause", secret), args)
		require.Equal(t, http.StatusForbidden, answered(t, "PATCH", url+"/limits", secret), args)
		if args[0] == "serve" { // a daemon's reloader hears it, too
			require.NoError(t, p.Process.Signal(syscall.SIGHUP))
			require.Equal(t, http.StatusOK, answered(t, "GET", url+"/lanes", secret), "it goes on")
		}
		p.terminate(t)
		require.Equal(t, codeDone, p.exit(t), p.stderr.String())
	}
}

// A halt is done while requests for a locked table have all of the API's other connections.
func TestProcess_HaltHasConnectionsOfItsOwn(t *testing.T) {
	t.Parallel()
	db := newKept(t)
	environ := []string{"BELFRY_DATABASE_URL=" + db.DSN}
	tokens := map[string]string{}
	for _, role := range []string{"viewer", "author", "operator"} {
		tokens[role] = newToken(t, environ, role)
	}
	for _, command := range []string{"serve", "daemon"} {
		p := start(t, environ, command, "--listen", "127.0.0.1:0")
		url := p.served(t)
		tx, err := db.Pool.Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), `LOCK TABLE belfry.segments IN ACCESS EXCLUSIVE MODE`)
		require.NoError(t, err)
		var asking sync.WaitGroup
		for _, role := range []string{"viewer", "author"} {
			for range apiConnections / 2 {
				asking.Go(func() { answered(t, "GET", url+"/channels/segment", tokens[role]) })
			}
		}
		require.Eventually(t, func() bool {
			var waiting int
			require.NoError(t, tx.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks WHERE relation = 'belfry.segments'::regclass AND NOT granted`).Scan(&waiting))
			return waiting == apiConnections
		}, patience, time.Millisecond)
		require.Equal(t, http.StatusOK, answered(t, "POST", url+"/halt", tokens["operator"]), command)
		require.NoError(t, tx.Rollback(t.Context()))
		asking.Wait()
		p.terminate(t)
		require.Equal(t, codeDone, p.exit(t), p.stderr.String())
	}
}

// Links are answered by the keys of the last SIGHUP, by what serves alone and by a daemon.
func TestProcess_HangupReadsTheKeysOfLinks(t *testing.T) {
	t.Parallel()
	db := newKept(t)
	link := unsubscribe.Link{ChannelID: 4711, Category: "popular_content", Medium: "email"}
	keys := map[string]string{}
	signed := map[string]string{}
	for _, name := range []string{"older", "newer"} {
		keys[name] = strings.Repeat(name[:1], 32)
		links, err := unsubscribe.New(keys[name])
		require.NoError(t, err)
		signed[name] = "/unsubscribe/" + links.Sign(link)
	}
	for _, command := range []string{"serve", "daemon"} {
		file := filepath.Join(t.TempDir(), "keys")
		require.NoError(t, os.WriteFile(file, []byte(keys["older"]), 0o600))
		p := start(t, []string{"BELFRY_DATABASE_URL=" + db.DSN, "BELFRY_API_UNSUBSCRIBE_KEYS_FILE=" + file, "BELFRY_LOG_FORMAT=json"}, command, "--listen", "127.0.0.1:0")
		root := strings.TrimSuffix(p.served(t), "/api/v1")
		require.Equal(t, http.StatusOK, answered(t, "GET", root+signed["older"], ""))
		require.Equal(t, http.StatusNotFound, answered(t, "GET", root+signed["newer"], ""))

		p.reloaded(t, file, keys["newer"]+"\n"+keys["older"], "keys of links read again")
		require.Equal(t, http.StatusOK, answered(t, "GET", root+signed["older"], ""), command)
		require.Equal(t, http.StatusOK, answered(t, "GET", root+signed["newer"], ""), command)

		p.reloaded(t, file, "short", "keys of links refused; those before stay")
		require.Equal(t, http.StatusOK, answered(t, "GET", root+signed["newer"], ""), command)
		require.NotContains(t, p.stderr.String(), "\"short\"")
		p.terminate(t)
		require.Equal(t, codeDone, p.exit(t), p.stderr.String())
	}
}

// Tokens do not travel in the clear: beyond this machine there is TLS, or nothing.
func TestServe_RefusesToListenBeyondThisMachineWithoutTLS(t *testing.T) {
	t.Parallel()
	nowhere := "BELFRY_DATABASE_URL=postgres://127.0.0.1:1/none"
	for _, listen := range []string{":0", "0.0.0.0:0", "[::]:0", "192.0.2.1:8470", "db.example:8470"} {
		r := command(t, []string{nowhere}, "serve", "--listen", listen)
		require.Equal(t, codeConfiguration, r.code, listen)
		require.Contains(t, r.stderr, "api.tls.cert_file: is empty, and api.listen "+listen+" is beyond this machine")
		require.Contains(t, r.stderr, "api.tls.key_file")
	}
	for _, listen := range []string{"127.0.0.1:0", "[::1]:0", "localhost:0", "127.8.9.1:0"} {
		require.Equal(t, codeUnavailable, command(t, []string{nowhere}, "serve", "--listen", listen).code, "%s is this machine; the database is away", listen)
	}
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte(strings.Repeat("x", 32)), 0o600))
	declared := []string{nowhere, "BELFRY_API_PROXY_ADDRESSES=10.0.0.7", "BELFRY_API_PROXY_SECRET_FILE=" + secret}
	r := command(t, declared, "serve", "--listen", ":0")
	require.Equal(t, codeConfiguration, r.code)
	require.Contains(t, r.stderr, "api.public_url: is empty; allowed values: the URL of the proxy")
	declared = append(declared, "BELFRY_API_PUBLIC_URL=https://belfry.example.com")
	noSecret := append(slices.Clone(declared), "BELFRY_API_LISTEN=:0", "BELFRY_API_PROXY_SECRET_FILE="+secret+".none")
	r = command(t, noSecret, "config", "check")
	require.Equal(t, codeConfiguration, r.code)
	require.Contains(t, r.stderr, "api.proxy.secret_file: open "+secret+".none")
	require.Equal(t, codeUnavailable, command(t, declared, "serve", "--listen", ":0").code, "through a proxy; the database is away")
	r = command(t, []string{nowhere, "BELFRY_API_TLS_CERT_FILE=/nowhere"}, "serve", "--listen", ":0")
	require.Equal(t, codeConfiguration, r.code)
	require.Contains(t, r.stderr, "api.tls.key_file: is empty")
	r = command(t, []string{nowhere, "BELFRY_API_TLS_KEY_FILE=/nowhere"}, "serve", "--listen", "127.0.0.1:0")
	require.Equal(t, codeConfiguration, r.code)
	require.Contains(t, r.stderr, "api.tls.cert_file: is empty")
	r = command(t, []string{nowhere}, "serve", "--listen", "8470")
	require.Equal(t, codeUsage, r.code)
	require.Contains(t, r.stderr, "allowed values: HOST:PORT")
	r = command(t, []string{nowhere}, "serve")
	require.Equal(t, codeConfiguration, r.code)
	require.Contains(t, r.stderr, "api.listen: is empty")
}

// certificate writes one for 127.0.0.1 with a serial number.
func certificate(t *testing.T, dir string, serial int64) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	is := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(24 * time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	cert, err := x509.CreateCertificate(rand.Reader, is, is, &key.PublicKey, key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "key.pem"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "cert.pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o600))
}

// The certificate is read again at SIGHUP; one that cannot be used changes nothing.
func TestProcess_CertificateIsReadAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	certificate(t, dir, 1)
	p := start(t, []string{
		"BELFRY_DATABASE_URL=" + newKept(t).DSN, "BELFRY_API_TLS_CERT_FILE=" + filepath.Join(dir, "cert.pem"), "BELFRY_API_TLS_KEY_FILE=" + filepath.Join(dir, "key.pem"),
	}, "serve", "--listen", "127.0.0.1:0")
	url := p.served(t)
	require.True(t, strings.HasPrefix(url, "https://"), url)
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	serial := func() int64 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/openapi.json", nil)
		require.NoError(t, err)
		resp, err := client.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.NotEmpty(t, resp.Header.Get("Strict-Transport-Security"))
		return resp.TLS.PeerCertificates[0].SerialNumber.Int64()
	}
	require.EqualValues(t, 1, serial())
	certificate(t, dir, 2)
	require.NoError(t, p.Process.Signal(syscall.SIGHUP))
	require.Eventually(t, func() bool { return serial() == 2 }, patience, 20*time.Millisecond)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "cert.pem"), []byte("nothing"), 0o600))
	require.NoError(t, p.Process.Signal(syscall.SIGHUP))
	p.says(t, "certificate refused; the one before stays")
	require.EqualValues(t, 2, serial())
	p.terminate(t)
	require.Equal(t, codeDone, p.exit(t), p.stderr.String())
}

// A standby is enough to look, and nothing is written to it.
func TestProcess_ReadOnlyServesAStandby(t *testing.T) {
	t.Parallel()
	primary := dbtest.NewServer(t, true)
	db := dbtest.NewOn(t, primary)
	secret := newToken(t, []string{"BELFRY_DATABASE_URL=" + db.DSN}, "viewer")
	standby := dbtest.NewBackup(t, primary, true)
	environ := []string{"BELFRY_DATABASE_URL=" + standby.DSN(db.Name)}
	require.Equal(t, codeUnavailable, command(t, environ, "serve", "--listen", "127.0.0.1:0").code)
	p := start(t, environ, "serve", "--listen", "127.0.0.1:0", "--read-only")
	url := p.served(t)
	require.Equal(t, http.StatusOK, answered(t, "GET", url+"/lanes", secret))
	require.Equal(t, http.StatusForbidden, answered(t, "POST", url+"/lanes/night/pause", secret))
	p.terminate(t)
	require.Equal(t, codeDone, p.exit(t), p.stderr.String())
}

// The session of docs/api.md is one that happens.
func TestDocs_TheSessionWithTheAPIRuns(t *testing.T) {
	t.Parallel()
	if exec.CommandContext(t.Context(), "curl", "--fail-with-body", "--version").Run() != nil {
		t.Skip("there is no curl of 2021 or later")
	}
	environ := []string{"BELFRY_DATABASE_URL=" + newKept(t).DSN}
	p := start(t, environ, "serve", "--listen", "127.0.0.1:0")
	url := p.served(t)
	var session strings.Builder
	for _, block := range blocks(pages(t)["docs/api.md"], "sh")[1:] {
		session.WriteString(strings.ReplaceAll(block, "http://127.0.0.1:8470/api/v1", url) + "\n")
	}
	require.Equal(t, 1, strings.Count(session.String(), url))
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	shell := exec.CommandContext(ctx, "bash", "-euc", session.String())
	shell.Dir = t.TempDir()
	shell.Env = append([]string{"PATH=" + filepath.Dir(binary(t)) + string(filepath.ListSeparator) + os.Getenv("PATH"), mainVariable + "=1"}, environ...)
	out, err := shell.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), `"paused_by":"ann"`)
	require.Contains(t, string(out), `"cap":"3/24h"`)
	for part := range strings.SplitSeq(blocks(pages(t)["docs/api.md"], "json")[0], "\n") {
		require.Contains(t, string(out), strings.TrimSpace(strings.NewReplacer(`": `, `":`, `, "`, `,"`).Replace(strings.TrimSuffix(part, ","))))
	}
	p.terminate(t)
	require.Equal(t, codeDone, p.exit(t), p.stderr.String())
}
