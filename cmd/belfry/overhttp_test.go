package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/belfryhq/belfry/admin/access"
	"github.com/belfryhq/belfry/admin/operation"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/node/settings"
)

// serveHere serves the operations of this process's command line on a database, to a token of
// somebody.
func serveHere(t testing.TB, environ []string, db *dbtest.DB, who string) string {
	t.Helper()
	a := newApp(io.Discard, io.Discard, environ)
	s, err := settings.Load(config.Input{Environ: environ}, nil)
	require.NoError(t, err)
	env, err := a.env(s, &database{Pool: db.Pool}, job.NewStore(db.Pool))
	require.NoError(t, err)
	server := httptest.NewServer(api.New(api.Options{
		Operations: admin.Operations(), Env: *env, Log: zerolog.Nop(),
		Authenticate: func(context.Context, string) (access.Identity, error) {
			return access.Identity{Name: who, Role: operation.Admin}, nil
		},
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// scenes are the lines of testdata/overhttp.txt, which says what they are.
func scenes(t *testing.T) (lines []string) {
	t.Helper()
	text, err := os.ReadFile("testdata/overhttp.txt")
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			lines = append(lines, line)
		}
	}
	return lines
}

// What differs from run to run.
var volatile = regexp.MustCompile(`--plan [A-Za-z0-9_-]{16,}|"token": ?"[A-Za-z0-9_-]+"|"database_oid": \d+|in database \d+|belfry_[A-Za-z0-9_-]{20,}|[A-Za-z0-9_-]{43}|belfry_test_\w+|20\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?|done at \d\d:\d\d:\d\d|[0-9a-f]{8}-[0-9a-f-]{27}|(\d+h)?\d*m?[0-9.]+m?s\b|\d+h\d+m\b|"in_ms": \d+|"(keys|sent)_per_second": ?(null|[0-9.]+)|"connections": \d+|connections +\d+|"(due_in|[a-z_]*seconds|age)[a-z_]*": [0-9.]+`)

// plain is a text without what differs from run to run, and the widths of columns that have it.
func plain(text string) string {
	return regexp.MustCompile(` {3,}`).ReplaceAllString(volatile.ReplaceAllString(text, "…"), "  ")
}

// stage is a database with two channels.
func stage(t *testing.T) *dbtest.DB {
	t.Helper()
	db := dbtest.New(t)
	_, err := db.Pool.Exec(t.Context(), `INSERT INTO belfry.channels (external_id, platform) VALUES ('u1', 'ios'), ('u2', 'android')`)
	require.NoError(t, err)
	return db
}

// recorded are the events of a database, without their times.
func recorded(t *testing.T, db *dbtest.DB) string {
	t.Helper()
	var text string
	require.NoError(t, db.Pool.QueryRow(t.Context(), `SELECT coalesce(string_agg(line, E'\n'), '') FROM (
		SELECT format('%s %s %s %s %s %s', subject, name, kind, actor, reason, detail) AS line FROM belfry.events ORDER BY id) AS e`).Scan(&text))
	var ofJobs string
	require.NoError(t, db.Pool.QueryRow(t.Context(), `SELECT coalesce(string_agg(line, E'\n'), '') FROM (
		SELECT format('job %s %s %s %s %s', job_id, kind, actor, reason, detail) AS line FROM belfry.job_events ORDER BY id) AS e`).Scan(&ofJobs))
	return plain(text + "\n" + ofJobs)
}

// elsewhere are the operations that no scene does, and what does them.
var elsewhere = map[string]string{
	"doctor": "is about the process that looks: TestDoctor_LooksAtTheProcess",
}

// I14: an operation has the same result, the same error and the same events at the command line and
// over HTTP.
func TestLong_OperationsAreTheSameOverHTTP(t *testing.T) {
	t.Parallel()
	here, there := stage(t), stage(t)
	environ := []string{"BELFRY_DATABASE_URL=" + here.DSN}
	url := serveHere(t, nil, there, newApp(nil, nil, nil).whoami())
	root, done := newRootCommand(newApp(io.Discard, io.Discard, nil)), make(map[string]bool)
	for i, line := range scenes(t) {
		if statement, is := strings.CutPrefix(line, "sql "); is {
			for _, db := range []*dbtest.DB{here, there} {
				_, err := db.Pool.Exec(t.Context(), statement)
				require.NoError(t, err, statement)
			}
			continue
		}
		line, refused := strings.CutPrefix(line, "! ")
		line, withPlan := strings.CutPrefix(line, "planned ")
		o, rest := operationOf(t, root, strings.Fields(line))
		forms := [][]string{nil, {"--json"}}
		if o.Changes || refused || done[o.Name] {
			forms = forms[i%2 : i%2+1] // an act is done once, and both forms of a look are seen once
		}
		for _, form := range forms {
			args := append(strings.Fields(line), form...)
			onHTTP := append(rest, form...)
			if withPlan {
				args, onHTTP = planned(t, environ, args), append(onHTTP, "--plan", tokenOverHTTP(t, url, o, onHTTP))
			}
			want := command(t, environ, args...)
			require.Equal(t, refused, want.code != codeDone, "%s: %s", line, want.stderr)
			if !strings.Contains(want.stderr, "say --yes") { // a request over HTTP is the answer
				sameOverHTTP(t, url, o, onHTTP, want)
			}
		}
		done[o.Name] = done[o.Name] || !refused
	}
	require.Equal(t, recorded(t, here), recorded(t, there))
}

// tokenOf is the token of the plan of a command line.
func tokenOf(t *testing.T, environ, args []string) string {
	t.Helper()
	var out struct{ Plan operation.Plan }
	r := command(t, environ, append(slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return arg == "--json" }), "--dry-run", "--json")...)
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &out), r.stderr)
	return out.Plan.Token
}

// tokenOverHTTP is the token of the plan of an operation over HTTP.
func tokenOverHTTP(t *testing.T, url string, o operation.Operation, args []string) string {
	t.Helper()
	in := o.NewInput()
	cmd := newOperationCommandOn(newApp(io.Discard, io.Discard, nil), o, in)
	require.NoError(t, cmd.ParseFlags(append(slices.Clone(args), "--dry-run")))
	require.NoError(t, cmd.Args(cmd, cmd.Flags().Args()))
	var out struct{ Plan operation.Plan }
	_, body, _ := overHTTP(t, url, o, in)
	require.NoError(t, json.Unmarshal(body, &out), "%s", body)
	return out.Plan.Token
}

// overHTTP sends a request for an operation.
func overHTTP(t *testing.T, url string, o operation.Operation, in any) (status int, body []byte, header http.Header) {
	t.Helper()
	req := requestFor(t, url, o, in)
	req.Header.Set("Authorization", "Bearer any")
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	body, err = io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	return res.StatusCode, body, res.Header
}

// requestFor returns the HTTP request of an operation with an input, as docs/api.md describes it.
func requestFor(t *testing.T, root string, o operation.Operation, in any) *http.Request {
	t.Helper()
	method, path, query, fields := http.MethodPost, api.PathOf(o), url.Values{}, make(map[string]json.RawMessage)
	switch {
	case !o.Changes:
		method = http.MethodGet
	case o.Noun() != "" && o.Verb() == "set":
		method = http.MethodPatch
	}
	for _, p := range o.Params() {
		texts, err := textsOf(p, in, o)
		require.NoError(t, err)
		raw, err := p.JSON(in, o)
		require.NoError(t, err)
		switch in := "{" + p.Name + "}"; {
		case raw == nil:
		case strings.Contains(path, in):
			path = strings.Replace(path, in, url.PathEscape(texts[0]), 1)
		case o.Changes:
			fields[p.Name] = raw
		default:
			query[p.Name] = texts
		}
	}
	body, err := json.Marshal(fields)
	require.NoError(t, err)
	if len(fields) == 0 {
		body = nil
	}
	req, err := http.NewRequestWithContext(t.Context(), method, root+api.Prefix+path+"?"+query.Encode(), bytes.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	return req
}

// nextPage returns the parameter of the page that a Link header names, "" without one.
func nextPage(t *testing.T, header http.Header) string {
	t.Helper()
	_, token, _ := strings.Cut(header.Get("Link"), "page_token=")
	token, _, _ = strings.Cut(token, ">")
	token, _, _ = strings.Cut(token, "&")
	text, err := base64.RawURLEncoding.DecodeString(token)
	require.NoError(t, err)
	_, begins, _ := strings.Cut(string(text), "\x00")
	return begins
}

// planned is a command line with the token of its plan.
func planned(t *testing.T, environ, args []string) []string {
	t.Helper()
	return append(slices.Clone(args), "--plan", tokenOf(t, environ, args))
}

func TestOperations_EachHasAScene(t *testing.T) {
	t.Parallel()
	root, done := newRootCommand(newApp(io.Discard, io.Discard, nil)), make(map[string]bool)
	for _, line := range scenes(t) {
		if !strings.HasPrefix(line, "sql ") && !strings.HasPrefix(line, "! ") {
			line = strings.TrimPrefix(line, "planned ")
			o, _ := operationOf(t, root, strings.Fields(line))
			done[o.Name] = true
		}
	}
	var left []string
	for _, o := range admin.Operations() {
		if !done[o.Name] {
			left = append(left, o.Name)
		}
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(elsewhere)), left, "a scene does each operation, or elsewhere says what does")
}

// sameRefused compares an error at the command line with the problem of the API, which calls
// parameters by their names.
func sameRefused(t *testing.T, o operation.Operation, line, stderr string, body []byte) {
	t.Helper()
	var told api.Problem
	require.NoError(t, json.Unmarshal(body, &told), line)
	said := []string{told.Detail}
	if len(told.Errors) > 0 {
		said = nil // which is that the request was not understood
	}
	for _, fault := range told.Errors {
		said = append(said, fault.Message)
	}
	for _, text := range said {
		require.Equal(t, o.WithNames(text), text, "%s: a caller of the API has no flags", line)
		first, _, _ := strings.Cut(withFlags(o, text), "\n")
		if !strings.Contains(first, "belfry's log has the error") {
			require.Contains(t, plain(stderr), plain(first), line)
		}
	}
}

// operationOf is the operation that a command line does, and what is given to it.
func operationOf(t *testing.T, root *cobra.Command, args []string) (o operation.Operation, rest []string) {
	t.Helper()
	cmd, rest, err := root.Find(args)
	require.NoError(t, err)
	require.NotEmpty(t, cmd.Annotations[operationAnnotation], args)
	return operationNamed(cmd.Annotations[operationAnnotation]), slices.Clip(rest)
}

// sameOverHTTP does an operation over HTTP with the parameters of a command line, and compares the
// results.
func sameOverHTTP(t *testing.T, url string, o operation.Operation, args []string, want result) {
	t.Helper()
	line := o.Name + " " + strings.Join(args, " ")
	var shown bytes.Buffer
	a := newApp(&shown, io.Discard, nil)
	in := o.NewInput()
	cmd := newOperationCommandOn(a, o, in)
	if cmd.ParseFlags(args) != nil || cmd.Args(cmd, cmd.Flags().Args()) != nil {
		require.Equal(t, codeUsage, want.code, "%s: %s", line, want.stderr) // the command line is wrong by itself
		return
	}
	status, body, header := overHTTP(t, url, o, in)
	form := outputOf(cmd)
	switch {
	case status != http.StatusOK:
		require.GreaterOrEqual(t, status, http.StatusBadRequest, line)
		require.NotEqual(t, codeDone, want.code, "%s: %s", line, body)
		sameRefused(t, o, line, want.stderr, body)
		return
	case o.Item() != nil && !form.json(): // which it is not over bare HTTP
		return
	case o.Item() != nil:
		shown.Write(body)
	case form.json():
		shown.WriteString(reindented(t, body))
	default:
		out, err := o.ReadResult(body, nextPage(t, header))
		require.NoError(t, err, line)
		require.Equal(t, want.code != codeDone, operationOptions{commandOptions: a.options(cmd), operation: o, input: in, out: form}.show(out) != nil, line)
	}
	require.Equal(t, plain(want.stdout), plain(shown.String()), line)
}

func reindented(t *testing.T, body []byte) string {
	t.Helper()
	var out strings.Builder
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	require.NoError(t, e.Encode(json.RawMessage(body)))
	return out.String()
}

// withFlags returns a text of the API with the flags of parameters instead of their names.
func withFlags(o operation.Operation, text string) string {
	for _, p := range o.Params() {
		if !p.Local && p.Place == operation.Flag {
			text = strings.ReplaceAll(text, "`"+p.Name+"`", "--"+p.Flag)
		}
	}
	return text
}

// textsOf returns the value of a parameter as texts that Set takes, or none for the default.
func textsOf(p operation.Param, in any, o operation.Operation) ([]string, error) {
	raw, err := p.JSON(in, o)
	if raw == nil || err != nil {
		return nil, err
	}
	items := []json.RawMessage{raw}
	if raw[0] == '[' {
		if err := json.Unmarshal(raw, &items); err != nil {
			return nil, err
		}
	}
	texts := make([]string, len(items))
	for i, item := range items {
		if json.Unmarshal(item, &texts[i]) != nil { // a number, a boolean or an object
			texts[i] = string(item)
		}
	}
	return texts, nil
}
