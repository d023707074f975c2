package bench

import (
	"context"
	_ "embed"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/admin/access"
	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/admin/console"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/job"
)

//go:embed seed.sql
var seed string

// lists fills the database with a long history and times the lists of the API and the
// pages of the console. It reports the slowest of each.
func (e *env) lists() {
	jobs, history := size[int64](1_000_000, 1000), size[int64](20_000_000, 2000)
	e.clear()
	e.do(queries.jobsEmpty)
	_, err := e.pool.Exec(e.Context(), fmt.Sprintf("SET bench.jobs = %d; SET bench.history = %d; %s", jobs, history, seed))
	require.NoError(e, err)
	e.do("VACUUM (ANALYZE)")
	served := api.New(api.Options{
		Operations: admin.Operations(),
		Env:        operation.Env{DB: e.pool, Jobs: job.NewStore(e.pool), Channels: e.store, Actor: application, Role: operation.Admin},
		Authenticate: func(context.Context, string) (access.Identity, error) {
			return access.Identity{Name: application, Role: operation.Admin}, nil
		},
		Pages: func(served *api.Handler, at string) http.Handler {
			return console.New(served, at, admin.Operations(), api.Environment{})
		},
		Log: zerolog.Nop(),
	})
	every := max(1, jobs*9/10/(history/1000)) // one job in so many has messages
	p95 := func(url string) float64 {
		var took []float64
		for n := range int64(41) {
			at := strings.NewReplacer("{job}", strconv.FormatInt((1+n*(history/1000)/41)*every, 10),
				"{old}", strconv.FormatInt(jobs/2-n, 10), "{channel}", strconv.FormatInt(3+n, 10)).Replace(url)
			req := httptest.NewRequestWithContext(e.Context(), http.MethodGet, at, nil)
			req.Header.Set("Authorization", "Bearer x")
			answer := httptest.NewRecorder()
			began := time.Now()
			served.ServeHTTP(answer, req)
			if n > 0 { // the first parses templates and prepares statements
				took = append(took, milliseconds(time.Since(began)))
			}
			require.Equal(e, http.StatusOK, answer.Code, "%s: %s", at, answer.Body)
		}
		return percentile(took, 95)
	}
	slowest := func(name string, limit float64, urls []string) {
		e.run(name, func(e *env) {
			worst, at := 0.0, ""
			for _, url := range urls {
				if ms := p95(url); ms > worst {
					worst, at = ms, url
				}
			}
			e.Logf("the slowest is %s", at)
			e.report(worst, "p95-ms", atMost(limit))
		})
	}
	slowest("api", 50, []string{
		"/api/v1/jobs", "/api/v1/jobs?before={old}", "/api/v1/jobs?status=FAILED", "/api/v1/jobs?status=PENDING&before={old}", "/api/v1/jobs?lane=rare", "/api/v1/jobs?lane=nobodys",
		"/api/v1/jobs?lane=lane-3&category=question&status=FAILED", "/api/v1/jobs?lane=lane-6&category=question", "/api/v1/jobs?type=push&status=EXPIRED&before={old}",
		"/api/v1/jobs?since=200d&until=199d", "/api/v1/jobs/{job}", "/api/v1/jobs/{job}/runs", "/api/v1/jobs/{job}/events", "/api/v1/lanes", "/api/v1/senders", "/api/v1/events",
		"/api/v1/dead-letters", "/api/v1/dead-letters?job={job}", "/api/v1/dead-letters?dead_reason=exhausted&medium=push", "/api/v1/dead-letters?sender=nobody", "/api/v1/dead-letters/errors", "/api/v1/status", "/api/v1/upcoming",
	})
	slowest("pages", 200, []string{
		"/", "/jobs", "/jobs?status=FAILED&lane=lane-7", "/jobs/{job}", "/jobs/{job}/runs", "/abort?id={job}", "/upcoming", "/lanes", "/senders",
		"/dead-letters", "/dead-letters?dead_reason=permanent", "/dead-letters/errors", "/events", "/settings", "/channels/show?channel={channel}", "/enqueue",
	})
}
