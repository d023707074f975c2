package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/belfryhq/belfry/admin/operation"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

func TestAPI_DoesWhatTheOperationsDo(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	a := b.call(t, "operator", "POST", "/lanes/night/pause", `{"reason": "wrong data"}`)
	require.Equal(t, http.StatusOK, a.status, a.text)
	var lane job.Lane
	require.NoError(t, json.Unmarshal([]byte(a.text), &lane))
	require.Equal(t, "the-operator", lane.PausedBy, "who has the token, whatever the process is")
	require.Equal(t, "wrong data", lane.PauseReason)
	require.Equal(t, http.StatusOK, b.call(t, "operator", "POST", "/lanes/night/resume", "").status, "no body is no field")

	a = b.call(t, "viewer", "GET", "/lanes/events?lane=night&limit=1", "")
	require.Equal(t, http.StatusOK, a.status, a.text)
	var events []job.ControlEvent
	require.NoError(t, json.Unmarshal([]byte(a.text), &events))
	require.Len(t, events, 1)
	link := a.header.Get("Link")
	require.Regexp(t, `^</api/v1/lanes/events\?lane=night&limit=1&page_token=[\w-]+>; rel="next"$`, link)
	next, _, _ := strings.Cut(strings.TrimPrefix(link, "</api/v1"), ">")
	a = b.call(t, "viewer", "GET", next, "")
	require.NoError(t, json.Unmarshal([]byte(a.text), &events))
	require.Len(t, events, 1)
	require.Empty(t, a.header.Get("Link"), "that was the last")

	a = b.call(t, "admin", "PATCH", "/limits", `{"priority": 7, "duty_cycle": "50%", "chunk_target": "20ms", "health_checks": true}`)
	require.Equal(t, http.StatusOK, a.status, a.text)
	require.Contains(t, a.text, `"priority":7`)
	a = b.call(t, "admin", "PATCH", "/limits", `{"priority": null, "duty_cycle": 0.25}`)
	require.Contains(t, a.text, `"priority":null`)
	a = b.call(t, "operator", "PATCH", "/categories/popular_content", `{"route": ["push", "sms"], "quiet_hours": "21:00-08:00", "cap": null}`)
	require.Equal(t, http.StatusOK, a.status, a.text)
	require.Contains(t, a.text, `"route":["push","sms"]`)
}

// What is sent to somebody is recorded with whose token it was, whatever the body says.
func TestAPI_WhatIsSentIsAnEvent(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.exec(t, `INSERT INTO belfry.channels (external_id, platform) VALUES ('u1', 'ios');
		INSERT INTO belfry.jobs (type, category, title) VALUES ('push', 'operator_notice', 'Hello')`)
	for path, body := range map[string]string{"/send": `{"external_id": "u1", "title": "Hi"}`, "/jobs/1/test-send": `{"to": "u1"}`} {
		a := b.call(t, "author", "POST", path, strings.Replace(body, "}", `, "requested_by": "kim"}`, 1))
		require.Equal(t, http.StatusUnprocessableEntity, a.status, a.text)
		a = b.call(t, "author", "POST", path, body)
		require.Equal(t, http.StatusOK, a.status, a.text)
	}
	var events []job.ControlEvent
	a := b.call(t, "viewer", "GET", "/events?of=channel", "")
	require.NoError(t, json.Unmarshal([]byte(a.text), &events), a.text)
	require.Len(t, events, 2)
	for _, e := range events {
		require.Equal(t, []string{"the-author", "1", "sent_to"}, []string{e.Actor, e.Name, e.Kind})
		require.NotContains(t, string(e.Detail), "Hi")
	}
}

// A new operation needs its definition and nothing else.
func TestAPI_ServesWhateverIsDefined(t *testing.T) {
	t.Parallel()
	type input struct {
		Name  string   `arg:"NAME"`
		Loud  bool     `flag:"loud" help:"louder"`
		Tags  []string `flag:"tag" help:"some"`
		Level *int     `flag:"level" min:"1" max:"3" help:"how"`
	}
	type output struct {
		Said  string   `json:"said"`
		Tags  []string `json:"tags"`
		Level int      `json:"level"`
	}
	say := func(_ context.Context, env *operation.Env, in input) (output, error) {
		out := output{Said: env.Actor + " greets " + in.Name, Tags: in.Tags}
		if in.Loud {
			out.Said += "!"
		}
		if in.Level != nil {
			out.Level = *in.Level
		}
		return out, nil
	}
	text := func(*text.Doc, input, output) {}
	b := setup(t, func(c *api.Options) {
		c.Operations = []operation.Operation{
			operation.Define(operation.Operation{Name: "people greet", Short: "Greet", Role: operation.Author, Changes: true}, say, text),
			operation.Define(operation.Operation{Name: "people show", Short: "Look", Role: operation.Viewer}, say, text),
		}
	})
	a := b.call(t, "author", "POST", "/people/Ann/greet", `{"loud": true, "tag": ["a,b", "c"], "level": 2}`)
	result, receipt, _ := strings.Cut(a.text, `,"receipt":`)
	require.JSONEq(t, `{"said": "the-author greets Ann!", "tags": ["a,b", "c"], "level": 2}`, result+"}")
	require.Regexp(t, `^\{"asked_at":"20.*","in_force_since":"20.*","concerned":1\}\}\s*$`, receipt)
	a = b.call(t, "author", "POST", "/people/a%2F..%20c/greet", "")
	require.Contains(t, a.text, "greets a/.. c")
	a = b.call(t, "viewer", "GET", "/people/Ann?loud=on&tag=a&tag=c&level=3", "")
	require.JSONEq(t, `{"said": "the-viewer greets Ann!", "tags": ["a", "c"], "level": 3}`, a.text)
	a = b.call(t, "viewer", "GET", "/people/Ann?level=4&loud=maybe", "")
	require.Equal(t, []api.Fault{
		{Location: "query.level", Message: "allowed values: whole numbers from 1 to 3"},
		{Location: "query.loud", Message: "allowed values: on, off"},
	}, a.problem(t).Errors)
}

// Every kind of bad input is refused by name, and nothing of it is done.
func TestAPI_RefusesBadInput(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	const pause = "/lanes/night/pause"
	for _, test := range []struct {
		method, path, body string
		status             int
		location, message  string
	}{
		{"GET", "/lanes?colour=red", "", 422, "query.colour", "is not known; this operation has no parameters in the query"},
		{"GET", "/lanes/events?limt=3", "", 422, "query.limt", `is not known; allowed: lane, limit, before, page_token; did you mean limit?`},
		{"GET", "/lanes/events?limit=0", "", 422, "query.limit", "allowed values: whole numbers from 1 to 1000"},
		{"GET", "/lanes/events?limit=1&limit=2", "", 422, "query.limit", "is given more than once"},
		{"GET", "/lanes/events?lane=%00", "", 422, "query.lane", "is not a text; allowed values: UTF-8 without NUL"},
		{"GET", "/lanes/events?lane=%ff", "", 422, "query.lane", "is not a text; allowed values: UTF-8 without NUL"},
		{"GET", "/lanes/events?lane=%zz", "", 400, "", ""},
		{"GET", "/lanes/events?a;b", "", 400, "", ""},
		{"GET", "/lanes", "{}", 400, "", ""},
		{"POST", pause + "?reason=x", "", 422, "query.reason", "is not known; this operation has no parameters in the query"},
		{"POST", pause, `{"actor": "root"}`, 422, "body.actor", "is not known; allowed: if_version, reason"},
		{"POST", pause, `{"reason": 1}`, 422, "body.reason", "1 is not allowed; allowed values: strings"},
		{"POST", pause, `{"reason": null}`, 422, "body.reason", "null is not allowed; allowed values: strings"},
		{"POST", pause, `{"reason": ["x"]}`, 422, "body.reason", `["x"] is not allowed; allowed values: strings`},
		{"POST", pause, `{"reason": "a\u0000b"}`, 422, "body.reason", "is not a text; allowed values: UTF-8 without NUL"},
		{"POST", "/lanes/%00/pause", "", 422, "path.lane", "is not a text; allowed values: UTF-8 without NUL"},
		{"POST", "/lanes/" + strings.Repeat("x", 300) + "/pause", "", 422, "path.lane", ""},
		{"POST", "/schedules/s/add", `{"query": "SELECT 1"}`, 422, "body.query", ""}, // as the daemon's role: no token's to say
		{"POST", "/enqueue", `{"requested_by": "root"}`, 422, "body.requested_by", ""},
		{"POST", "/schedules/s/add", `{"query_role": "postgres"}`, 422, "body.query_role", ""},
		{"PATCH", "/limits", `{"priority": "7"}`, 422, "body.priority", `"7" is not allowed; allowed values: 0 to 1000, or none`},
		{"PATCH", "/limits", `{"priority": 1e3}`, 422, "body.priority", `"1e3" is not allowed; allowed values: 0 to 1000, or none`},
		{"PATCH", "/limits", `{"health_checks": null}`, 422, "body.health_checks", `null is not allowed; allowed values: on (required), off`},
		{"PATCH", "/limits", `{"priorty": 3}`, 422, "body.priorty", ""},
		{"PATCH", "/categories/popular_content", `{"route": "push"}`, 422, "body.route", `"push" is not allowed; allowed values: arrays of strings`},
		{"PATCH", "/categories/popular_content", `{"route": [1]}`, 422, "body.route", ""},
		{"PATCH", "/categories/popular_content", `{"quiet_hours": "late"}`, 422, "body.quiet_hours", ""},
		{"PATCH", "/categories/populr_content", `{"cap": null}`, 404, "path.category", ""},
		{"POST", "/channels/opt-out", `{"channel": 99}`, 404, "", ""},
		{"POST", "/channels/opt-out", `{}`, 422, "", ""},
		{"POST", "/categories/popular_content/add", ``, 409, "", ""},
		{"POST", pause, `[]`, 400, "", ""},
		{"POST", pause, `{"reason": "a", "reason": "b"}`, 400, "", ""},
		{"POST", pause, `{} {}`, 400, "", ""},
		{"POST", pause, `{"reason": "`, 400, "", ""},
		{"POST", pause, "{\"reason\": \"\xff\"}", 400, "", ""},
		{"POST", pause, `{"reason": "` + strings.Repeat("x", 1<<20) + `"}`, 413, "", ""},
	} {
		name := fmt.Sprintf("%s %.60s %.60s", test.method, test.path, test.body)
		a := b.call(t, "admin", test.method, test.path, test.body)
		require.Equal(t, test.status, a.status, "%s: %s", name, a.text)
		p := a.problem(t)
		require.NotEmpty(t, p.Detail)
		if test.location == "" {
			continue
		}
		require.Len(t, p.Errors, 1, name)
		require.Equal(t, test.location, p.Errors[0].Location, name)
		if test.message != "" {
			require.Equal(t, test.message, p.Errors[0].Message, name)
		}
	}
	for _, header := range []string{"text/plain", "application/json; charset=latin1", "", "application/x-www-form-urlencoded"} {
		a := b.call(t, "admin", "POST", pause, `{}`, "Content-Type", header)
		require.Equal(t, http.StatusUnsupportedMediaType, a.status, header)
	}
	require.Equal(t, http.StatusUnsupportedMediaType, b.call(t, "admin", "POST", pause, `{}`, "Content-Encoding", "gzip").status)
	require.Equal(t, "[]", b.call(t, "viewer", "GET", "/lanes", "").text, "nothing of all that was done")
}

// Paths lead to their operation or nowhere.
func TestAPI_PathsAndMethods(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	for _, path := range []string{
		"", "/", "/lane", "/lanes/", "//lanes", "/lanes/../lanes", "/lanes/./events", "/%2e%2e/lanes", "/lanes//pause", "/../../etc/passwd", "/openapi.yaml", "/docs",
	} {
		a := b.call(t, "admin", "GET", path, "")
		require.Equal(t, http.StatusNotFound, a.status, path)
		a.problem(t)
	}
	a := b.call(t, "admin", "DELETE", "/lanes", "")
	require.Equal(t, http.StatusMethodNotAllowed, a.status)
	a.problem(t)
	require.Equal(t, "GET, HEAD", a.header.Get("Allow"))
	a = b.call(t, "admin", "GET", "/lanes/night/pause", "")
	require.Equal(t, http.StatusMethodNotAllowed, a.status)
	require.Equal(t, "POST", a.header.Get("Allow"))
	require.Equal(t, http.StatusMethodNotAllowed, b.call(t, "admin", "TRACE", "/lanes", "").status)
	a = b.call(t, "admin", "GET", "/lanes", "")
	for name, want := range map[string]string{
		"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store",
		"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'", "Content-Type": "application/json",
	} {
		require.Equal(t, want, a.header.Get(name), name)
	}
}

// A page of another site has a browser send nothing that is done.
func TestAPI_RefusesOtherSites(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	for _, header := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Origin", "https://evil.example"}} {
		a := b.call(t, "admin", "POST", "/lanes/night/pause", "", header...)
		require.Equal(t, http.StatusForbidden, a.status, header)
		a.problem(t)
	}
	require.Equal(t, "[]", b.call(t, "viewer", "GET", "/lanes", "").text)
}

// What is no place in a list is refused by the parameter's name, whichever list it is.
func TestAPI_RefusesMalformedCursors(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	lists := 0
	for _, o := range read(t) {
		for _, p := range o.Parameters {
			if p.In != "query" || !slices.Contains(operation.Pagers(), p.Name) || o.ID == "jobs-skips" { // whose places are keys, which may be any text
				continue
			}
			lists++
			for _, value := range []string{"", "x", "17x", "1:2:3", "1.2.3", "1:", ":1", ".", "--1", "0x1", "1,2", "99999999999999999999"} {
				a := b.call(t, "admin", o.method, filled(o.path)+"?"+url.Values{p.Name: {value}}.Encode(), "", "Accept", "text/html") // so that no stream begins
				require.Equal(t, http.StatusUnprocessableEntity, a.status, "%s %q: %s", o.ID, value, a.text)
				require.Equal(t, "query."+p.Name, a.problem(t).Errors[0].Location)
			}
		}
	}
	require.GreaterOrEqual(t, lists, 14)
}

// A token is good for the list whose Link had it, once, and not beside where a page begins otherwise.
func TestAPI_RefusesPageTokens(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	lists := 0
	for _, o := range read(t) {
		paged := false
		for _, p := range o.Parameters {
			paged = paged || p.Name == "page_token"
		}
		if !paged {
			continue
		}
		lists++
		for _, token := range []string{"", "x", "17", "====", api.TokenOf("nobody's list", "17"), api.TokenOf(strings.ReplaceAll(o.ID, "-", " "), ""), "bGFuZXMgZXZlbnRz"} {
			a := b.call(t, "admin", o.method, filled(o.path)+"?"+url.Values{"page_token": {token}}.Encode(), "")
			require.Equal(t, http.StatusUnprocessableEntity, a.status, "%s %q: %s", o.ID, token, a.text)
			require.Equal(t, "query.page_token", a.problem(t).Errors[0].Location)
			require.Contains(t, a.text, "is not a token of this list")
		}
	}
	require.GreaterOrEqual(t, lists, 14)
	good := api.TokenOf("lanes events", "17")
	require.Equal(t, http.StatusOK, b.call(t, "viewer", "GET", "/lanes/events?page_token="+good, "").status)
	for query, why := range map[string]string{
		"/lanes/events?before=3&page_token=" + good: "is not given beside before", "/lanes/events?page_token=" + good + "&page_token=" + good: "more than once",
		"/lanes/events?page_token=" + api.TokenOf("lanes events", "x"): "is not a token of this list", "/senders/events?page_token=" + good: "is not a token of this list",
		"/lanes?page_token=" + good: "is not known", "/lanes/events?pagetoken=1": "page_token",
	} {
		a := b.call(t, "viewer", "GET", query, "")
		require.Equal(t, http.StatusUnprocessableEntity, a.status, query)
		require.Contains(t, a.problem(t).Errors[0].Message, why, query)
	}
}

// filled is a path of the document whose parameters are 1.
func filled(path string) string { return regexp.MustCompile(`\{\w+\}`).ReplaceAllString(path, "1") }

// leads reports whether a path of the document takes a request's path.
func leads(template, path string) bool {
	parts, given := strings.Split(template, "/"), strings.Split(path, "/")
	return len(parts) == len(given) && !slices.ContainsFunc(parts, func(part string) bool {
		at := given[0]
		given = given[1:]
		return part != at && !strings.HasPrefix(part, "{")
	})
}

// Each path with each method and each role: who is nobody learns of no method, a method that a path
// has not is answered with those that it has, and what a role may not do is refused before its input is
// read.
func TestAPI_EachRoleDoesWhatItMay(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	document := read(t)
	for path, want := range map[string]map[string]int{ // whoever has a token signs in as whoever has none
		"/login": {"GET": 200, "POST": 422, "PATCH": 405}, "/logout": {"GET": 405, "POST": 200}, "/login/oidc": {"GET": 404, "POST": 405}, "/login/oidc/callback": {"GET": 404, "POST": 405},
	} {
		for method, status := range want {
			for _, role := range roles() {
				require.Equal(t, status, b.call(t, role, method, path, "").status, "%s %s as %q", method, path, role)
			}
		}
	}
	operations := operation.WithQuestions(admin.Operations())
	require.Len(t, document, len(operations)+5, "and to sign in and out")
	for _, o := range operations {
		at := document[strings.ReplaceAll(o.Name, " ", "-")]
		for _, role := range roles() {
			requireRoleOf(t, b, o, at.method, filled(at.path), role)
		}
	}
}

// roles are those of tokens, and none.
func roles() []string { return []string{"", "viewer", "author", "operator", "admin"} }

// A path answers to no other methods than those of the operations at it.
func TestLong_APIEachPathHasItsMethods(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	document := read(t)
	for _, o := range operation.WithQuestions(admin.Operations()) {
		path := filled(document[strings.ReplaceAll(o.Name, " ", "-")].path)
		var allowed []string
		for _, other := range document {
			if leads(other.path, path) && !slices.Contains(allowed, other.method) {
				allowed = append(allowed, other.method)
			}
		}
		slices.Sort(allowed)
		allow := strings.NewReplacer("GET", "GET, HEAD", "PATCH, POST", "POST, PATCH").Replace(strings.Join(allowed, ", "))
		for _, method := range []string{"GET", "POST", "PATCH", "PUT", "DELETE"} {
			if slices.Contains(allowed, method) {
				continue
			}
			for _, role := range roles() {
				name := fmt.Sprintf("%s %s as %q", method, path, role)
				a := b.call(t, role, method, path, "")
				if role == "" {
					require.Equal(t, http.StatusUnauthorized, a.status, name)
					continue
				}
				require.Equal(t, http.StatusMethodNotAllowed, a.status, name)
				require.Equal(t, allow, a.header.Get("Allow"), name)
			}
		}
	}
}

// requireRoleOf asks for an operation, with nothing that it may need, as a role.
func requireRoleOf(t *testing.T, b *bundle, o operation.Operation, method, path, role string) {
	t.Helper()
	var has operation.Role
	if role != "" {
		require.NoError(t, has.UnmarshalText([]byte(role)))
	}
	query, body := "", ""
	if has < o.Role {
		query, body = "?no;query", map[bool]string{true: "{"}[o.Changes]
	}
	a := b.call(t, role, method, path+query, body, "Accept", "text/html") // as which there are no streams: none begins
	switch {
	case role == "":
		require.Equal(t, http.StatusUnauthorized, a.status, o.Name)
		require.Equal(t, `Bearer realm="belfry"`, a.header.Get("WWW-Authenticate"))
	case has < o.Role:
		require.Equal(t, http.StatusForbidden, a.status, "%s as %s: %s", o.Name, role, a.text)
		require.Contains(t, a.problem(t).Detail, "needs the role "+o.Role.String())
	case o.Item() != nil:
		require.Contains(t, []int{http.StatusNotAcceptable, http.StatusUnprocessableEntity}, a.status, "%s as %s: %s", o.Name, role, a.text)
	default: // what it is about is not there, or it misses something
		require.Contains(t, []int{http.StatusOK, http.StatusNotFound, http.StatusConflict, http.StatusUnprocessableEntity}, a.status, "%s as %s: %s", o.Name, role, a.text)
	}
}

func TestAPI_ReadOnlyRefusesActs(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Options) { c.ReadOnly = true })
	a := b.call(t, "admin", "POST", "/lanes/night/pause", "")
	require.Equal(t, http.StatusForbidden, a.status)
	require.Contains(t, a.problem(t).Detail, "api.read_only")
	require.Equal(t, "[]", b.call(t, "admin", "GET", "/lanes", "").text)
}

// Each kind of error has its status, and says what is known and no more.
func TestAPI_ErrorsByKind(t *testing.T) {
	t.Parallel()
	type input struct{}
	var next error
	b := setup(t, func(c *api.Options) {
		c.Operations = []operation.Operation{operation.Define(operation.Operation{Name: "thing do", Short: "Do", Role: operation.Operator, Changes: true},
			func(context.Context, *operation.Env, input) (map[string]int, error) {
				if next == nil {
					panic("something odd")
				}
				return nil, next
			}, func(*text.Doc, input, map[string]int) {})}
	})
	for _, test := range []struct {
		err    error
		status int
		detail string
	}{
		{errors.New("secret internals"), 500, "belfry's log has the error"},
		{fmt.Errorf("at the commit: %w", context.DeadlineExceeded), 500, "may or may not have taken effect"},
		{fmt.Errorf("%w: %w", job.ErrUnreachable, context.DeadlineExceeded), 500, "may or may not have taken effect"},
		{&pgconn.PgError{Code: "57P01", Message: "terminating"}, 500, "may or may not have taken effect"},
		{&pgconn.PgError{Code: "57P03", Message: "starting up"}, 503, "the database does not answer"},
		{&pgconn.PgError{Code: "57014", Message: "statement timeout"}, 503, "took too long"},
		{&pgconn.PgError{Code: "25006", Message: "read-only transaction"}, 503, "standby"},
		{&pgconn.PgError{Code: "42501", Message: "permission denied for table jobs"}, 403, "permission denied for table jobs"},
		{fmt.Errorf("job 7: %w", job.ErrNotFound), 404, "job 7: no such job"},
		{&job.WrongStatusError{JobID: 7, Act: "abort", Status: job.Aborted, Needs: []job.Status{job.Pending}}, 409, "job 7 is ABORTED; abort needs a job that is PENDING"},
		{fmt.Errorf("x: %w", job.ErrLocked), 409, "locked by another session"},
	} {
		next = test.err
		a := b.call(t, "operator", "POST", "/thing/do", "")
		require.Equal(t, test.status, a.status, "%v: %s", test.err, a.text)
		p := a.problem(t)
		require.Contains(t, p.Detail, test.detail)
		require.NotContains(t, a.text, "secret")
		require.Equal(t, test.status == 503, a.header.Get("Retry-After") != "")
		require.Equal(t, test.status == 403, p.Next != "", "a role of the database that lacks a right")
	}
	next = nil
	a := b.call(t, "operator", "POST", "/thing/do", "")
	require.Equal(t, http.StatusInternalServerError, a.status)
	a.problem(t)
	require.Equal(t, 1, strings.Count(b.log.String(), "panic in an operation of the API"))
	require.NotContains(t, b.log.String(), `"reason":{`, "the text of the error")
}

// A schedule without an audience is for everyone, in its preview too.
func TestAPI_PreviewsAScheduleWithoutAnAudience(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.exec(t, `INSERT INTO belfry.schedules (name, every, template) VALUES ('digest', '1 hour', '{"type": "inbox", "category": "operator_notice", "title": "x"}')`)
	got := b.call(t, "operator", "GET", "/schedules/digest/preview", "")
	require.Equal(t, http.StatusOK, got.status, got.text)
	require.Contains(t, got.text, `"audience":{"kind":"everyone"}`)
}
