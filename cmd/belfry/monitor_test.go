package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/pgserver"
)

// shown waits until a process shows its metrics and returns the base of their URLs.
func (p *process) shown(t *testing.T) string {
	t.Helper()
	const served = "metrics are served"
	p.says(t, served)
	return fmt.Sprintf("http://%s", p.logged(t, served)[0]["detail"])
}

// fetch returns the status and the body of an answer; 0: there was none.
func fetch(t *testing.T, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(body)
}

// becomes waits until an answer has the status and matches a pattern.
func becomes(t *testing.T, p *process, url string, status int, pattern string) {
	t.Helper()
	expression, is, body := regexp.MustCompile(pattern), 0, ""
	require.Eventually(t, func() bool {
		is, body = fetch(t, url)
		return is == status && expression.MatchString(body)
	}, patience, 20*time.Millisecond, "%s is never %d and %s", url, status, pattern)
	if t.Failed() {
		t.Logf("last: %d %s\n%s", is, body, p.stderr.String())
	}
}

// A daemon that delivers shows what it has done. While PostgreSQL is stopped a scrape is
// answered, the process is live and not ready, and says so; then it is ready again.
func TestFault_ScrapeAnswersWhileTheDatabaseIsStopped(t *testing.T) {
	t.Parallel()
	server := dbtest.NewServer(t, true)
	d := deliverable(t, dbtest.NewOn(t, server), 50)
	p := start(t, d.environ("BELFRY_RUNNER_NAME=metered", "BELFRY_METRICS_COLLECT_EVERY=1s"), "daemon", "--metrics-listen", "127.0.0.1:0")
	base := p.shown(t)
	becomes(t, p, base+"/livez", http.StatusOK, "^ok\n$")
	becomes(t, p, base+"/readyz", http.StatusOK, "^ok\n$")
	for _, pattern := range []string{
		`(?m)^belfry_messages_recorded_total\{medium="push",outcome="sent"\} 50$`,
		`(?m)^belfry_provider_results_total\{result="accepted",sender="fcm"\} 50$`,
		`(?m)^belfry_job_runs_total\{outcome="processed",type="push"\} 0$`,
		`(?m)^belfry_pool_max_connections 16$`,
		`(?m)^belfry_database_away 0$`,
		`(?m)^belfry_relays_alive 1$`,
		`(?m)^belfry_jobs\{status="PENDING"\} 0$`,
		`(?m)^belfry_oldest_due_message_age_seconds\{queue="bulk"\} 0$`,
	} {
		becomes(t, p, base+"/metrics", http.StatusOK, pattern)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, server.Stop(ctx, pgserver.Fast))
	becomes(t, p, base+"/readyz", http.StatusServiceUnavailable, `^the database answered last \S+ ago\n$`)
	becomes(t, p, base+"/metrics", http.StatusOK, `(?m)^belfry_database_away 1$`)
	status, body := fetch(t, base+"/metrics")
	require.Equal(t, http.StatusOK, status)
	require.Regexp(t, `(?m)^belfry_database_outages_total [1-9]`, body)
	require.Contains(t, body, `belfry_collection_timestamp_seconds{part="jobs"} `, "the last result, and how old it is")
	status, body = fetch(t, base+"/livez")
	require.Equal(t, http.StatusOK, status, body)
	require.NoError(t, server.Start(ctx))
	d.db.Pool.Reset()
	becomes(t, p, base+"/readyz", http.StatusOK, "^ok\n$")
	becomes(t, p, base+"/metrics", http.StatusOK, `(?m)^belfry_database_away 0$`)
	p.terminate(t)
	require.Equal(t, codeDone, p.exit(t), p.stderr.String())
}

// A relay counts no runs. It is not ready while the schema is older than it.
func TestProcess_RelayIsNotReadyWithAnotherSchema(t *testing.T) {
	t.Parallel()
	d := deliverable(t, newKept(t), 1)
	p := start(t, d.environ("BELFRY_METRICS_COLLECT_EVERY=1s"), "relay", "--metrics-listen", "127.0.0.1:0")
	base := p.shown(t)
	becomes(t, p, base+"/readyz", http.StatusOK, "^ok\n$")
	_, body := fetch(t, base+"/metrics")
	require.NotContains(t, body, "belfry_job_runs_total")
	require.Contains(t, body, "belfry_messages_claimed_total")
	d.exec(`UPDATE belfry.schema_migrations SET version_id = version_id - 1 WHERE version_id > 0`)
	becomes(t, p, base+"/readyz", http.StatusServiceUnavailable, `^the schema is at version`)
	p.terminate(t)
	require.Equal(t, codeDone, p.exit(t), p.stderr.String())
}

// A process that only serves the API shows its requests, and is ready while its database is.
func TestProcess_ServeShowsItsRequests(t *testing.T) {
	t.Parallel()
	environ := []string{"BELFRY_DATABASE_URL=" + newKept(t).DSN, "BELFRY_METRICS_COLLECT_EVERY=1s"}
	secret := newToken(t, environ, "viewer")
	for _, args := range [][]string{{"serve"}, {"daemon"}} {
		p := start(t, environ, append(args, "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0")...)
		base, url := p.shown(t), p.served(t)
		becomes(t, p, base+"/readyz", http.StatusOK, "^ok\n$")
		require.Equal(t, http.StatusOK, answered(t, "GET", url+"/lanes", secret))
		require.Equal(t, http.StatusUnauthorized, answered(t, "GET", url+"/lanes", "belfry_forged"))
		require.Equal(t, http.StatusForbidden, answered(t, "POST", url+"/lanes/night/pause", secret))
		for _, pattern := range []string{
			`(?m)^belfry_api_requests_total\{code="2xx",operation="lanes list"\} 1$`,
			`(?m)^belfry_api_requests_total\{code="4xx",operation="none"\} 1$`,
			`(?m)^belfry_api_requests_total\{code="4xx",operation="lanes pause"\} 1$`,
			`(?m)^belfry_api_request_duration_seconds_count\{method="POST"\} 1$`,
			`(?m)^belfry_api_streams 0$`,
			`(?m)^belfry_jobs\{status="PENDING"\} 0$`,
		} {
			becomes(t, p, base+"/metrics", http.StatusOK, pattern)
		}
		p.terminate(t)
		require.Equal(t, codeDone, p.exit(t), p.stderr.String())
	}
}

// What cannot be listened at ends the process before anything is done, and says why.
func TestProcess_MetricsAddressInUse(t *testing.T) {
	t.Parallel()
	var config net.ListenConfig
	taken, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, taken.Close()) }()
	nowhere := "BELFRY_DATABASE_URL=postgres://127.0.0.1:1/none"
	p := start(t, []string{nowhere}, "daemon", "--metrics-listen", taken.Addr().String())
	require.Equal(t, codeUnavailable, p.exit(t))
	require.Equal(t, fmt.Sprintf("belfry: metrics.listen: %s is in use by another process; allowed values: HOST:PORT of a free port, or empty for none\n", taken.Addr()), p.stderr.String())
	p = start(t, []string{nowhere}, "daemon", "--metrics-listen", "192.0.2.1:0")
	require.Equal(t, codeConfiguration, p.exit(t))
	require.Contains(t, p.stderr.String(), "allowed values: HOST:PORT of this machine, or empty for none")
	p = start(t, []string{nowhere}, "daemon", "--metrics-listen", "9464")
	require.Equal(t, codeUsage, p.exit(t))
	require.Contains(t, strings.ReplaceAll(p.stderr.String(), "--metrics-listen", "metrics.listen"), "allowed values: HOST:PORT")
}
