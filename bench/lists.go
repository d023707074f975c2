package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/admin/console"
	"github.com/belfryhq/belfry/job"
)

// looks are what operators look at: an operation, and what it is given. {job} is a job that has
// messages, another one each time, {old} one in the older half, {grouped} one of a group.
var looks = []string{
	"jobs list", "jobs list before={old}", "jobs list status=FAILED", "jobs list status=RUNNING", "jobs list status=PENDING before={old}",
	"jobs list status=FAILED status=ABORTED lane=lane-7", "jobs list lane=rare", "jobs list lane=nobody's", "jobs list category=activity", "jobs list type=inbox",
	"jobs list lane=lane-3 category=question status=FAILED", "jobs list lane=lane-4 category=question", "jobs list lane=lane-6 category=question", "jobs list group={grouped}",
	"jobs list type=push status=EXPIRED before={old}", "jobs list since=200d until=199d", "jobs list until=300d status=FAILED lane=lane-3",
	"jobs list awaiting_approval=on", "jobs show id={job}", "jobs runs id={job}", "jobs events id={job}", "jobs skips id={job}", "jobs revisions id={job}",
	"lanes list", "lanes events", "lanes events lane=n500", "categories list", "categories events", "senders list", "senders events", "schedules list", "schedules events",
	"dead-letters list", "dead-letters list before={job}:5", "dead-letters list job={job}", "dead-letters list medium=push", "dead-letters list dead_reason=permanent", "dead-letters list dead_reason=exhausted medium=push", "dead-letters list sender=nobody", "dead-letters list category=activity", "dead-letters errors",
	"dead-letters show job={job} channel=3", "dead-letters events", "transport status", "transport events",
	"status", "upcoming", "events list", "events list by=kim of=job", "limits list", "limits events", "tokens list", "tokens events", "users list", "users events", "sessions list", "channels segment list", "channels opt-outs channel=3",
}

// pages are those of the console, as looks have it.
var pages = []string{
	"/", "/jobs", "/jobs?status=FAILED&lane=lane-7", "/jobs/{job}", "/jobs/{job}/runs", "/abort?id={job}", "/upcoming", "/lanes", "/schedules", "/senders", "/categories",
	"/dead-letters", "/dead-letters?dead_reason=permanent", "/dead-letters/errors", "/events", "/channels/show?channel={channel}", "/enqueue", "/transport/status",
}

// looksEach is how often each is looked at, after a first time.
const looksEach = 40

// lists fills the tables of the past and looks at them as operators do, one after the other.
// What is measured is an operation in the process that serves it, its JSON left out. The database
// is not what others can measure in afterwards.
func lists(ctx context.Context, e *env, r *result) {
	e.seed(ctx)
	operations := make(map[string]admin.Operation)
	for _, o := range admin.Operations() {
		operations[o.Name] = o
	}
	on := &admin.Env{DB: e.pool, Jobs: job.NewStore(e.pool), Channels: e.store, Actor: application, Role: admin.Admin}
	r.Table = &table{Columns: []string{"look", "p50 ms", "p95 ms", "longest ms"}}
	var slowest float64
	for _, look := range looks {
		var took []float64
		for n := range looksEach + 1 {
			o, in := e.looking(operations, look, int64(n))
			began := time.Now()
			_, err := o.Run(ctx, on, in)
			if err != nil {
				e.check(fmt.Errorf("%s: %w", look, err))
			}
			if n > 0 { // the first prepares statements
				took = append(took, milliseconds(time.Since(began)))
			}
		}
		r.Table.Rows = append(r.Table.Rows, []any{look, percentile(took, 50), percentile(took, 95), percentile(took, 100)})
		slowest = max(slowest, percentile(took, 95))
	}
	r.figure("slowest_p95", "the slowest look, p95", slowest, unitMS, atMost(50))
	r.figure("looks", "kinds of looks", float64(len(looks)), unitCount)
	r.figure("slowest_page_p95", "the slowest page, p95", e.readPages(ctx, on, r.Table), unitMS, atMost(200))
	r.note("%s jobs, %s messages", grouped(e.jobs), grouped(e.history))
}

// readPages reads the pages of the console as somebody does who is signed in, through everything
// but the network, and returns the slowest one's p95.
func (e *env) readPages(ctx context.Context, on *admin.Env, t *table) (slowest float64) {
	served := api.New(api.Options{
		Operations: admin.Operations(), Env: *on,
		Authenticate: func(context.Context, string) (admin.Identity, error) {
			return admin.Identity{Name: application, Role: admin.Admin}, nil
		},
		Pages: func(served http.Handler, at string) http.Handler {
			return console.New(served, at, admin.Operations(), api.Environment{})
		},
		Log: zerolog.Nop(),
	})
	for _, page := range pages {
		var took []float64
		for n := range looksEach + 1 {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.numbered(page, int64(n)), nil)
			e.check(err)
			req.Header.Set("Authorization", "Bearer x")
			answer := httptest.NewRecorder()
			began := time.Now()
			served.ServeHTTP(answer, req)
			if n > 0 { // the first parses templates and prepares statements
				took = append(took, milliseconds(time.Since(began)))
			}
			e.demand(answer.Code == http.StatusOK, "%s: %d", page, answer.Code)
		}
		t.Rows = append(t.Rows, []any{page, percentile(took, 50), percentile(took, 95), percentile(took, 100)})
		slowest = max(slowest, percentile(took, 95))
	}
	return slowest
}

// numbered is a look with the ids of the nth time.
func (e *env) numbered(look string, n int64) string {
	return strings.NewReplacer(
		"{job}", strconv.FormatInt((1+n*(e.history/1000)/(looksEach+1))*e.every(), 10),
		"{old}", strconv.FormatInt(e.jobs/2-n, 10),
		"{grouped}", strconv.FormatInt(10*(e.jobs/20-n), 10),
		"{channel}", strconv.FormatInt(3+n, 10),
	).Replace(look)
}

// every is how many jobs there are to one that has messages.
func (e *env) every() int64 { return max(1, e.jobs*9/10/(e.history/1000)) }

// looking is the operation of a look, and its input the nth time.
func (e *env) looking(operations map[string]admin.Operation, look string, n int64) (admin.Operation, any) {
	look = e.numbered(look, n)
	name, given := look, []string(nil)
	if i := strings.IndexByte(look, '='); i >= 0 {
		i = strings.LastIndexByte(look[:i], ' ')
		name, given = look[:i], strings.Fields(look[i:])
	}
	o := operations[name]
	e.demand(o.Name == name, "there is no operation %q", name)
	in := o.NewInput()
	for _, text := range given {
		key, value, _ := strings.Cut(text, "=")
		found := false
		for _, p := range o.Params() {
			if p.Name == key {
				found = true
				e.check(p.Set(in, value))
			}
		}
		e.demand(found, "%s has no parameter %q", name, key)
	}
	e.check(o.Check(in, time.Now()))
	return o, in
}
