package api_test

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/internal/db"
)

// things makes one of each thing that has a version.
func (b *bundle) things(t *testing.T) (jobID string) {
	t.Helper()
	b.exec(t, `INSERT INTO belfry.schedules (name, every, template) VALUES ('digest', '1 hour',
		'{"types": ["inbox"], "category": "popular_content", "title": "Ten", "audience": {"kind": "everyone"}}')`)
	return b.job(t, "Ten things")
}

func (b *bundle) job(t *testing.T, title string) string {
	t.Helper()
	var id string
	require.NoError(t, b.db.Pool.QueryRow(t.Context(), `SELECT belfry.enqueue('inbox', 'popular_content', $1)::text`, title).Scan(&id))
	return id
}

func (b *bundle) count(t *testing.T, statement string, args ...any) (n int) {
	t.Helper()
	require.NoError(t, b.db.Pool.QueryRow(t.Context(), statement, args...).Scan(&n))
	return n
}

// events counts all that was ever recorded.
func (b *bundle) events(t *testing.T) int {
	t.Helper()
	return b.count(t, `SELECT (SELECT count(*) FROM belfry.events) + (SELECT count(*) FROM belfry.job_events)`)
}

// acts are one request of each act that holds to a version, on the things of a bundle.
func acts(jobID string) map[string][3]string {
	return map[string][3]string{
		"jobs set":           {"PATCH", "/jobs/" + jobID, `"priority": 7`},
		"jobs retry-skipped": {"POST", "/jobs/" + jobID + "/retry-skipped", ``},
		"abort":              {"POST", "/abort", `"id": [` + jobID + `]`},
		"resume":             {"POST", "/resume", `"id": [` + jobID + `]`},
		"retry":              {"POST", "/retry", `"id": [` + jobID + `]`},
		"recall":             {"POST", "/recall", `"id": [` + jobID + `]`},
		"lanes pause":        {"POST", "/lanes/night/pause", ``},
		"lanes resume":       {"POST", "/lanes/night/resume", ``},
		"senders set":        {"PATCH", "/senders/fcm", `"rate_per_second": 5`},
		"senders pause":      {"POST", "/senders/fcm/pause", ``},
		"senders resume":     {"POST", "/senders/fcm/resume", ``},
		"schedules pause":    {"POST", "/schedules/digest/pause", ``},
		"schedules resume":   {"POST", "/schedules/digest/resume", ``},
		"schedules run":      {"POST", "/schedules/digest/run", ``},
		"schedules remove":   {"POST", "/schedules/digest/remove", ``},
		"schedules add":      {"POST", "/schedules/digest/add", `"every": "2h", "type": ["inbox"], "category": "popular_content", "title": "Ten", "everyone": true`},
		"categories set":     {"PATCH", "/categories/popular_content", `"cap": "3/24h"`},
		"limits set":         {"PATCH", "/limits", `"priority": 9`},
	}
}

// bodyWith is a request's body, with if_version unless it is "".
func bodyWith(fields, version string) string {
	if version != "" {
		fields = strings.TrimPrefix(fields+`, "if_version": `+version, ", ")
	}
	return "{" + fields + "}"
}

// changing are statements by which somebody else changes each thing.
func changing(jobID string) string {
	return `SELECT belfry.act('mallory', 'meanwhile');
		UPDATE belfry.jobs SET priority = 3, abort_requested = true WHERE id = ` + jobID + `;
		INSERT INTO belfry.lanes (name, paused_at, paused_by) VALUES ('night', now(), 'mallory');
		INSERT INTO belfry.senders (name, concurrency) VALUES ('fcm', 2);
		UPDATE belfry.schedules SET every = '3 hours' WHERE name = 'digest';
		UPDATE belfry.categories SET max_recipients = 9 WHERE name = 'popular_content';
		UPDATE belfry.limits SET max_skips = 3`
}

// Whatever act holds to a version does nothing when somebody changed the thing since, whether
// the header or the field says so, and the answer says who changed what.
func TestMatch_AStaleActDoesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	id := b.things(t)
	b.exec(t, `BEGIN;`+changing(id)+`;COMMIT`)
	listed := acts(id)
	for _, o := range admin.Operations() {
		if !o.Conditional() {
			continue
		}
		act, has := listed[o.Name]
		require.True(t, has, "%s holds to a version and stands in no test", o.Name)
		delete(listed, o.Name)
		before := b.events(t)
		for _, version := range []string{"", "0"} {
			headers := []string{"If-Match", `"0"`}
			if version != "" {
				headers = nil
			}
			a := b.call(t, "admin", act[0], act[1], bodyWith(act[2], version), headers...)
			require.Equal(t, http.StatusPreconditionFailed, a.status, "%s: %s", o.Name, a.text)
			p := a.problem(t)
			require.Equal(t, db.KindStale, p.Kind)
			require.NotEmpty(t, p.Changes, o.Name)
			require.Equal(t, "mallory", p.Changes[0].Actor, o.Name)
			require.Equal(t, "meanwhile", p.Changes[0].Reason, o.Name)
			require.Contains(t, p.Detail, "by mallory at ", o.Name)
			require.Contains(t, p.Detail, "nothing was done", o.Name)
			require.Contains(t, p.Next, "belfry ", o.Name)
		}
		require.Equal(t, before, b.events(t), "%s did something", o.Name)
	}
	require.Empty(t, listed)
	a := b.call(t, "operator", "PATCH", "/jobs/"+id, `{"priority": 8}`, "If-Match", `"0"`)
	require.Equal(t, []string{"priority"}, a.problem(t).Changes[0].Fields)
}

// Of several acts that hold to one version exactly one is done, also on a lane and a sender
// that have no row yet.
func TestMatch_OneOfManyActsWins(t *testing.T) {
	t.Parallel()
	const askers = 6
	b := setup(t, nil)
	id := b.things(t)
	for _, name := range []string{"jobs set", "lanes pause", "senders set", "schedules pause", "schedules run", "categories set", "limits set", "abort", "recall"} {
		act := acts(id)[name]
		tag := b.tag(t, act[1], id)
		var ready, done sync.WaitGroup
		statuses := make([]int, askers)
		begin := make(chan struct{})
		for i := range askers {
			ready.Add(1)
			body := bodyWith(act[2], "")
			if strings.Contains(body, `"priority"`) { // each asks for something else
				body = bodyWith(`"priority": `+strconv.Itoa(10+i), "")
			}
			done.Go(func() {
				ready.Done()
				<-begin
				statuses[i] = b.call(t, "admin", act[0], act[1], body, "If-Match", tag).status
			})
		}
		ready.Wait()
		close(begin)
		done.Wait()
		wins := 0
		for _, status := range statuses {
			if status == http.StatusOK {
				wins++
				continue
			}
			require.Equal(t, http.StatusPreconditionFailed, status, "%s: %v", name, statuses)
		}
		require.Equal(t, 1, wins, "%s: %v", name, statuses)
	}
}

// tag is the ETag that a thing has now: of an answer, or the version in a list.
func (b *bundle) tag(t *testing.T, path, jobID string) string {
	t.Helper()
	version := func(subject, name string) string {
		var v string
		require.NoError(t, b.db.Pool.QueryRow(t.Context(), `SELECT belfry.version($1, $2)::text`, subject, name).Scan(&v))
		return `"` + v + `"`
	}
	switch {
	case strings.HasPrefix(path, "/lanes/"):
		return version("lane", "night")
	case strings.HasPrefix(path, "/senders/"):
		return version("sender", "fcm")
	case strings.HasPrefix(path, "/categories/"):
		return version("category", "popular_content")
	case strings.HasPrefix(path, "/schedules/"):
		path = "/schedules/digest"
	case path == "/limits":
	default:
		path = "/jobs/" + jobID
	}
	a := b.call(t, "viewer", "GET", path, "")
	require.Equal(t, http.StatusOK, a.status, a.text)
	return a.header.Get("ETag")
}

// An act is answered with the version that it made, in the header and in the JSON, and the next
// one may hold to it. What merely goes on changes no version.
func TestMatch_AVersionIsOfActsAlone(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	id := b.things(t)
	first := b.tag(t, "/jobs", id)
	require.Equal(t, `"0"`, first)
	b.exec(t, `UPDATE belfry.jobs SET status = 'RUNNING', fence = 1, runner = 'r', heartbeat_at = now(), bound = '9', started_at = now() WHERE id = `+id)
	b.exec(t, `UPDATE belfry.jobs SET "cursor" = '5', chunks = 1, throttle = 'chunk_latency' WHERE id = `+id)
	require.Equal(t, first, b.tag(t, "/jobs", id), "its walk is no act")
	made := b.tag(t, "/schedules/", id)
	b.exec(t, `UPDATE belfry.schedules SET fired = 1, last_at = now(), last_fired_at = now() WHERE name = 'digest'`)
	require.Equal(t, made, b.tag(t, "/schedules/", id), "it fired by the clock")
	tag := first
	for _, act := range []string{"jobs set", "abort", "resume"} {
		request := acts(id)[act]
		a := b.call(t, "operator", request[0], request[1], bodyWith(request[2], ""), "If-Match", tag)
		require.Equal(t, http.StatusOK, a.status, "%s: %s", act, a.text)
		require.NotEqual(t, tag, a.header.Get("ETag"), act)
		tag = a.header.Get("ETag")
		require.Equal(t, tag, b.tag(t, "/jobs", id), act)
		var shown struct{ Version json.Number }
		show := b.call(t, "viewer", "GET", "/jobs/"+id, "")
		require.NoError(t, json.Unmarshal([]byte(show.text), &shown))
		require.Equal(t, tag, `"`+shown.Version.String()+`"`, act)
	}
	fired := b.call(t, "operator", "POST", "/schedules/digest/run", "{}", "If-Match", made)
	require.Equal(t, http.StatusOK, fired.status, fired.text)
	require.NotEqual(t, made, b.tag(t, "/schedules/", id), "it was fired by hand")
}

// Each form of the header is understood or refused, and nothing is done that should not be.
// Of a job that was changed since, that is said, and not only that its status does not allow the act:
// it says who did it.
func TestMatch_GoesBeforeTheStatus(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	id := b.job(t, "Ten things")
	for _, act := range []string{"recall", "resume", "retry"} {
		a := b.call(t, "operator", "POST", "/"+act, `{"id": [`+id+`]}`, "If-Match", `"0"`)
		require.Equal(t, http.StatusConflict, a.status, "%s: its status: %s", act, a.text)
	}
	require.Equal(t, http.StatusOK, b.call(t, "operator", "PATCH", "/jobs/"+id, `{"priority": 5}`).status)
	for _, act := range []string{"recall", "resume", "retry"} {
		a := b.call(t, "operator", "POST", "/"+act, `{"id": [`+id+`]}`, "If-Match", `"0"`)
		require.Equal(t, http.StatusPreconditionFailed, a.status, "%s: %s", act, a.text)
		require.Len(t, a.problem(t).Changes, 1, act)
	}
}

// An act that leaves a lane or a sender as it came leaves no row of it, though it had one to lock.
func TestMatch_LeavesNoRowOfWhatWasNeverPaused(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	rows := func() int {
		return b.count(t, `SELECT (SELECT count(*) FROM belfry.lanes) + (SELECT count(*) FROM belfry.senders)`)
	}
	for _, path := range []string{"/lanes/night", "/senders/fcm"} {
		a := b.call(t, "operator", "POST", path+"/resume", `{}`, "If-Match", `"0"`)
		require.Equal(t, http.StatusOK, a.status, a.text)
		require.Zero(t, rows(), path)
		a = b.call(t, "operator", "POST", path+"/pause", `{}`, "If-Match", `"0"`)
		require.Equal(t, http.StatusOK, a.status, a.text)
		require.Equal(t, 1, rows(), path)
		a = b.call(t, "operator", "POST", path+"/resume", `{}`, "If-Match", a.header.Get("ETag"))
		require.Equal(t, http.StatusOK, a.status, a.text)
		a = b.call(t, "operator", "POST", path+"/resume", `{}`, "If-Match", a.header.Get("ETag"))
		require.Equal(t, http.StatusOK, a.status, a.text)
		require.Equal(t, 1, rows(), "one that was there stays")
		b.exec(t, `DELETE FROM belfry.lanes; DELETE FROM belfry.senders`)
	}
	a := b.call(t, "admin", "PATCH", "/senders/apns", `{"rate_per_second": 5}`, "If-Match", `"0"`)
	require.Equal(t, http.StatusOK, a.status, a.text)
	require.Equal(t, 1, rows())
	require.Equal(t, "[]", b.call(t, "operator", "GET", "/lanes", "").text, "no lane is listed")
}

func TestMatch_Headers(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	id := b.things(t)
	for _, c := range []struct {
		header string
		status int
	}{
		{`"0"`, 200},
		{`*`, 200},
		{`"nothing-of-ours", W/"3"`, 412},
		{`W/"0"`, 412}, // strong comparison
		{`"00"`, 412},
		{`"-1"`, 412},
		{`"99999999999999999999"`, 412},
		{`"9223372036854775807"`, 412},
		{``, 400},
		{`0`, 400},
		{`"0`, 400},
		{`0"`, 400},
		{`"0" "1"`, 400},
		{`"a b"`, 400},
		{`*, "0"`, 400},
		{`w/"0"`, 400},
	} {
		fresh := b.job(t, "of "+c.header)
		a := b.call(t, "operator", "PATCH", "/jobs/"+fresh, `{"priority": 5}`, "If-Match", c.header)
		require.Equal(t, c.status, a.status, "%q: %s", c.header, a.text)
		done := b.count(t, `SELECT count(*) FROM belfry.jobs WHERE id = $1 AND priority = 5`, fresh)
		require.Equal(t, c.status == 200, done == 1, c.header)
	}
	tag := b.call(t, "operator", "PATCH", "/jobs/"+id, `{"priority": 5}`).header.Get("ETag")
	a := b.call(t, "operator", "PATCH", "/jobs/"+id, `{"priority": 6}`, "If-Match", `"7777",`+tag)
	require.Equal(t, http.StatusOK, a.status, a.text)
	for _, c := range []struct {
		method, path, body, header string
		status                     int
		says                       string
	}{
		{"PATCH", "/jobs/" + id, `{"priority": 6, "if_version": 0}`, `"0"`, 400, "give one of the two"},
		{"POST", "/abort", `{"id": [1, 2]}`, `"0"`, 422, "requires a single job"},
		{"POST", "/abort", `{"group": "` + id + `"}`, `*`, 422, "requires a single job"},
		{"POST", "/abort", `{"id": [` + id + `], "dry_run": true}`, `"0"`, 422, "excludes dry_run"},
		{"POST", "/halt", `{}`, `"0"`, 400, "no"},
		{"PATCH", "/jobs/999999", `{"priority": 6}`, `"0"`, 404, "999999"},
		{"PATCH", "/jobs/999999", `{"priority": 6}`, `*`, 404, "999999"},
		{"POST", "/schedules/none/pause", `{}`, `*`, 404, "none"},
		{"PATCH", "/categories/none", `{"cap": "3/24h"}`, `"4"`, 404, "none"},
		{"POST", "/schedules/none/add", `{"every": "2h", "type": ["inbox"], "category": "popular_content", "title": "Ten", "everyone": true}`, `*`, 412, "there is no schedule none"},
		{"POST", "/lanes/Not%20a%20lane/pause", `{}`, `"0"`, 422, "lane name"},
		{"GET", "/jobs/" + id, "", `"0"`, 200, ""},
	} {
		a := b.call(t, "admin", c.method, c.path, c.body, "If-Match", c.header)
		require.Equal(t, c.status, a.status, "%s %s: %s", c.path, c.body, a.text)
		require.Contains(t, a.text, c.says)
	}
	require.Zero(t, b.count(t, `SELECT count(*) FROM belfry.jobs WHERE status = 'ABORTED'`))
	require.Zero(t, b.count(t, `SELECT count(*) FROM belfry.schedules WHERE name = 'none'`))
}

// A request with a key that is repeated is answered as at first, though its If-Match is stale by
// then; one that was stale may be tried again with its key.
func TestMatch_WithAnIdempotencyKey(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	id := b.things(t)
	set := func(tag, key string) answer {
		return b.call(t, "operator", "PATCH", "/jobs/"+id, `{"priority": 5}`, "If-Match", tag, "Idempotency-Key", key)
	}
	first := set(`"0"`, "k-1")
	require.Equal(t, http.StatusOK, first.status, first.text)
	again := set(`"0"`, "k-1")
	require.Equal(t, http.StatusOK, again.status, again.text)
	require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
	require.Equal(t, first.header.Get("ETag"), again.header.Get("ETag"))
	require.Equal(t, first.text, again.text)
	require.Equal(t, http.StatusUnprocessableEntity, set(first.header.Get("ETag"), "k-1").status, "another request")
	require.Equal(t, http.StatusPreconditionFailed, set(`"0"`, "k-2").status)
	require.Equal(t, http.StatusPreconditionFailed, set(`"0"`, "k-2").status, "its key was freed")
}
