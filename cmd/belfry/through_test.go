package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/settings"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/migrations/dbtest"
)

// serveHere serves the operations of this process's command line on a database, to a token of
// somebody.
func serveHere(t testing.TB, environ []string, db *dbtest.DB, who string) string {
	t.Helper()
	a := &app{stdout: io.Discard, stderr: io.Discard, environ: environ, now: time.Now}
	s, err := settings.Load(config.Input{Environ: environ}, nil)
	require.NoError(t, err)
	recipients, err := channels.New(s.Channels)
	require.NoError(t, err)
	env := a.env(s, &database{Pool: db.Pool})
	env.Jobs, env.Channels, env.Carrier = job.NewStore(db.Pool), recipients, a.operated(s)
	server := httptest.NewServer(api.New(api.Options{
		Operations: admin.Operations(), Env: *env, Log: zerolog.Nop(),
		Authenticate: func(context.Context, string) (admin.Identity, error) {
			return admin.Identity{Name: who, Role: admin.Admin}, nil
		},
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// throughScripts are those that use operations alone, beside what sets the stage.
var throughScripts = []string{"acts", "audit", "categories", "dead", "edit", "forget", "jobs", "lanes", "recall", "segment", "senders", "set", "skips"}

// The scripts say the same through a server.
func TestScripts_ThroughAServer(t *testing.T) {
	t.Parallel()
	path := filepath.Dir(binary(t))
	var files []string
	for _, name := range throughScripts {
		files = append(files, filepath.Join("testdata", "script", name+".txtar"))
	}
	params := scriptParams(path)
	params.Files, params.Dir = files, ""
	setup := params.Setup
	params.Setup = func(env *testscript.Env) error {
		if err := setup(env); err != nil {
			return err
		}
		env.Values[throughKey{}] = true
		return nil
	}
	testscript.Run(t, params)
}

// throughKey marks a script whose operations are done through a server.
type throughKey struct{}

// throughHere adds the server to the environment of a script's command, if it is an operation.
// The token is of who acts.
func throughHere(ts *testscript.TestScript, environ, args []string) (environWith, argsWith []string) {
	if through, is := ts.Value(throughKey{}).(bool); !is || !through {
		return environ, args
	}
	cmd, _, err := newRootCommand(&app{stdout: io.Discard, stderr: io.Discard, environ: environ, now: time.Now}).Find(args)
	if err != nil || cmd.Annotations[operationAnnotation] == "" {
		return environ, args
	}
	tb, is := ts.Value(testKey{}).(testing.TB)
	db, isDB := ts.Value(dbKey{}).(*dbtest.DB)
	if !is || !isDB {
		return environ, args
	}
	who := (&app{environ: environ}).whoami()
	if i := slices.IndexFunc(args, func(arg string) bool { return arg == "--actor" || arg == "--requested-by" }); i >= 0 && i+1 < len(args) {
		who, args = args[i+1], slices.Concat(args[:i], args[i+2:])
	}
	return append(environ, "BELFRY_SERVER="+serveHere(tb, environ, db, who), config.TokenVariable+"=any"), args
}

// scenes are command lines that use operations as people do; each is done in three ways.
var scenes = []string{
	`enqueue --type inbox,push --category operator_notice --title Hello --everyone`,
	`enqueue --type inbox --category operator_notice --title <b>&</b> --data {"a":"<i>"} --external-id u1 --external-id nobody`,
	`enqueue --type inbox --category operator_notice --title Late --everyone --at 2026-01-01T00:00:00Z`,
	`enqueue --type inbox --category operator_notice --title Late --everyone --at 2026-01-01T00:00:00Z --yes`,
	`enqueue --type inbox --category none --title Hello --everyone`,
	`enqueue --type inbox`,
	`enqueue --city Seoul --radius 30km --preview`,
	`enqueue --type push --category operator_notice --title Hello --everyone --preview`,
	`jobs list`, `jobs list --limit 2`, `jobs list --status FAILED`, `jobs list --group 1`, `jobs list --limit 0`, `jobs list --group 99`,
	`jobs show 1`, `jobs show 99`, `jobs show x`, `jobs events 1`, `jobs revisions 1`, `jobs preview 1`, `jobs skips 1`,
	`jobs set 1 priority=5 chunk_target=50ms --reason slow`, `jobs set 1 priority=5000`, `jobs set 1 max_rows_per_second=none`, `jobs set 99 priority=1`, `jobs set 1 colour=red`,
	`abort 1 2 --dry-run`, `abort --group 1 --recall --dry-run --json`, `abort 1 2 --expect 9`, `abort 1 --as-of 2001-01-01T00:00:00Z`, `abort 1 --as-of 2999-01-01T00:00:00Z`, `abort 1 99 --expect 1`,
	`resume 1 --dry-run`, `retry 1 2 --dry-run --expect 1`, `recall 1 2 --expect 2`, `resume 1 --edit --title New --dry-run`, `abort 4 --expect 1 --reason exactly`, `resume 4 --expect 1`,
	`dead-letters discard --all --dry-run`, `dead-letters redrive --all --expect 3`, `prune --older-than 90d --dry-run`, `prune --expect 3`, `channels forget --external-id u2 --dry-run`, `channels forget 2 --expect 99`,
	`abort 1 98 99 --reason wrong`, `abort`, `abort --group 1`, `resume 1 --reason fixed`, `resume 3 --edit --title New`, `retry 1`, `recall 1`, `recall 99 98`,
	`lanes list`, `lanes pause night --reason hot`, `lanes pause night`, `lanes events`, `lanes events --limit 1`, `lanes resume night`, `lanes pause Night!`, `lanes pause`,
	`categories set popular_content cap=3/24h quiet_hours=22:00-08:00`, `categories set nothing cap=3/24h`, `categories list`, `categories events`,
	`limits list`, `limits set duty_cycle=50% chunk_target=1s`, `limits events`,
	`schedules add digest --cron @daily --type inbox --category popular_content --title Today --everyone`, `schedules list`, `schedules show digest`, `schedules next digest`,
	`timetable`, `timetable --lane night --for 7d --free 30m`, `timetable --free 30m`, `timetable --for 32d`,
	`schedules pause digest`, `schedules next digest`, `schedules run digest`, `schedules next nothing`, `schedules remove digest`, `schedules list`,
	`send --external-id u1 --title Hi`, `send 99 --title Hi`, `send`, `jobs test-send 2 --to u1`,
	`channels count --everyone`, `channels count`, `channels opt-out 1 --medium push`, `channels opt-outs 1`, `channels opt-in 1 --medium push`, `channels segment list`, `channels segment create beta`, `channels segment set beta testdata/members.txt --reason all`, `channels segment add beta testdata/no-such.txt`, `channels segment add beta testdata/members.txt --by id`, `channels segment add none testdata/members.txt`, `channels segment remove beta testdata/members.txt --dry-run`, `channels segment remove beta testdata/members.txt --json`, `channels segment drop beta`,
	`channels verify`, `channels attach users --external-id id`, `channels attach belfry.jobs --external-id id --platform x`, `channels attach users`, `channels detach`,
	`senders list`, `senders pause fcm --reason down`, `senders set fcm rate_per_second=5`, `senders resume fcm`, `senders events`,
	`dead-letters list`, `dead-letters errors`, `dead-letters redrive --all --yes`, `dead-letters show --job 1 --channel 1`, `transport status`, `transport drain`, `prune --dry-run`, `prune --older-than 90d`,
	`tokens list`, `tokens revoke nobody`,
}

// What differs from run to run.
var volatile = regexp.MustCompile(`"database_oid": \d+|in database \d+|belfry_[A-Za-z0-9_-]{20,}|belfry_test_\w+|20\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?|[0-9a-f]{8}-[0-9a-f-]{27}|(\d+h)?\d*m?[0-9.]+m?s\b|"in_ms": \d+|"connections": \d+|connections +\d+|"(due_in|[a-z_]*seconds|age)[a-z_]*": [0-9.]+`)

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
		SELECT format('%s %s %s %s %s', subject, name, kind, actor, reason) AS line FROM belfry.events ORDER BY id) AS e`).Scan(&text))
	var ofJobs string
	require.NoError(t, db.Pool.QueryRow(t.Context(), `SELECT coalesce(string_agg(line, E'\n'), '') FROM (
		SELECT format('job %s %s %s %s', job_id, kind, actor, reason) AS line FROM belfry.job_events ORDER BY id) AS e`).Scan(&ofJobs))
	return text + "\n" + ofJobs
}

// I14: an operation has the same result, the same error and the same events at the command line,
// through a server, and over bare HTTP.
func TestOperations_AreTheSameThroughEachTransport(t *testing.T) {
	t.Parallel()
	here, there, bare := stage(t), stage(t), stage(t)
	who := new(app).whoami()
	atHand := []string{"BELFRY_DATABASE_URL=" + here.DSN}
	server := []string{"BELFRY_SERVER=" + serveHere(t, nil, there, who), config.TokenVariable + "=any"}
	url := serveHere(t, nil, bare, who)
	for i, line := range append(scenes, remaining(t)...) {
		forms := [][]string{nil, {"--json"}}
		if cmd, _, err := newRootCommand(new(app)).Find(strings.Fields(line)); err == nil && cmd.Annotations[readsAnnotation] == "" {
			forms = forms[i%2 : i%2+1] // an act is done once
		}
		for _, form := range forms {
			args := append(strings.Fields(line), form...)
			want, got := command(t, atHand, args...), command(t, server, args...)
			sameSaid(t, line, want, got)
			if strings.Contains(want.stderr, "say --yes") {
				continue // a bare request is the answer
			}
			status, body := rawRequest(t, url, args)
			switch {
			case form == nil:
			case want.code == codeDone && status != 0: // which --json shows
				require.Equal(t, http.StatusOK, status, line)
				require.Equal(t, volatile.ReplaceAllString(want.stdout, "…"), volatile.ReplaceAllString(reindented(t, body), "…"), line)
			case want.code != codeDone && status != 0:
				require.GreaterOrEqual(t, status, http.StatusBadRequest, line)
				sameRefused(t, operationOf(args), line, want.stderr, body)
			}
		}
	}
	for _, list := range []string{"jobs list --limit 2", "jobs events 1", "senders list", "limits list", "lanes list --no-headers"} {
		args := append(strings.Fields(list), "-o", "csv")
		sameSaid(t, list, command(t, atHand, args...), command(t, server, args...))
	}
	require.Equal(t, recorded(t, here), recorded(t, there))
}

// sameSaid compares what two ways said; an error of the kind failed is told in the server's log.
func sameSaid(t *testing.T, line string, want, got result) {
	t.Helper()
	plain := func(text string) string { return volatile.ReplaceAllString(text, "…") }
	require.Equal(t, want.code, got.code, "%s: %s%s", line, want.stderr, got.stderr)
	require.Equal(t, plain(want.stdout), plain(got.stdout), line)
	if !strings.Contains(got.stderr, "belfry's log has the error") {
		require.Equal(t, plain(want.stderr), plain(got.stderr), line)
	}
}

// sameRefused compares an error at the command line with the problem of the API, which calls
// parameters by their names.
func sameRefused(t *testing.T, o admin.Operation, line, stderr string, body []byte) {
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
		first, _, _ := strings.Cut(o.WithFlags(text), "\n")
		if !strings.Contains(first, "belfry's log has the error") {
			require.Contains(t, volatile.ReplaceAllString(stderr, "…"), volatile.ReplaceAllString(first, "…"), line)
		}
	}
}

// operationOf is the operation that a command line does, zero: none.
func operationOf(args []string) admin.Operation {
	cmd, _, err := newRootCommand(&app{stdout: io.Discard, stderr: io.Discard, now: time.Now}).Find(args)
	for _, o := range admin.Operations() {
		if err == nil && cmd.Annotations[operationAnnotation] == o.Name {
			return o
		}
	}
	return admin.Operation{}
}

// remaining are command lines of the operations that no scene has, with what they require.
func remaining(t *testing.T) (lines []string) {
	t.Helper()
	for _, o := range admin.Operations() {
		used := false
		for _, line := range scenes {
			used = used || line == o.Name || strings.HasPrefix(line, o.Name+" ")
		}
		if used || o.Item() != nil || o.Name == "doctor" { // which is about the process that looks
			continue
		}
		line := o.Name
		for _, p := range o.Params() {
			switch {
			case !p.Required:
			case p.Place == admin.Argument:
				line += " 1"
			case p.Place == admin.Flag:
				line += " --" + p.Flag + " 1"
			}
		}
		lines = append(lines, line)
	}
	return lines
}

// rawRequest does what a command line says without belfry's client; 0: the command line is wrong
// by itself.
func rawRequest(t *testing.T, url string, args []string) (status int, body []byte) {
	t.Helper()
	o := operationOf(args)
	if o.Name == "" {
		return 0, nil
	}
	in := o.NewInput()
	a := &app{stdout: io.Discard, stderr: io.Discard, now: time.Now}
	_, rest, err := newRootCommand(a).Find(args)
	require.NoError(t, err)
	fresh := a.operationCommandOn(o, in)
	if fresh.ParseFlags(rest) != nil || fresh.Args(fresh, fresh.Flags().Args()) != nil {
		return 0, nil
	}
	req, err := api.NewRequest(t.Context(), url, o, in)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer any")
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	body, err = io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	return res.StatusCode, body
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

// What no server does says so by name, and a flag for the database is at hand all the same.
func TestServer_DoesOperationsAlone(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"run"}, {"daemon"}, {"relay"}, {"serve"}, {"migrate", "up"}, {"config", "show"}, {"config", "check"}, {"version"}} {
		r := command(t, nil, append(args, "--server", "https://belfry.example.com")...)
		require.Equal(t, codeUsage, r.code, r.stderr)
		require.Contains(t, r.stderr, strings.Join(args, " ")+" is done here and not through a server; leave --server out")
	}
	named := []string{"BELFRY_SERVER=http://127.0.0.1:1", config.TokenVariable + "=any"}
	for _, args := range [][]string{{"run"}, {"migrate", "status"}} {
		r := command(t, named, args...)
		require.Equal(t, codeConfiguration, r.code, r.stderr)
		require.Contains(t, r.stderr, "client.server: BELFRY_SERVER names a server, and this is done on the database itself")
	}
	r := command(t, named, "lanes", "list")
	require.Equal(t, codeUnavailable, r.code, r.stderr)
	require.Contains(t, r.stderr, "the server at http://127.0.0.1:1 does not answer")
	db := stage(t)
	r = command(t, named, "lanes", "list", "--database-url", db.DSN)
	require.Equal(t, codeDone, r.code, r.stderr)
	r = command(t, named[:1], "lanes", "list")
	require.Equal(t, codeConfiguration, r.code)
	require.Contains(t, r.stderr, "client.token_file: there is no token; allowed values: BELFRY_TOKEN")
	r = command(t, nil, "lanes", "list", "--server", "http://belfry.example.com")
	require.Equal(t, codeUsage, r.code)
	require.Contains(t, r.stderr, "beyond this machine, where a token does not travel in the clear")
	require.Equal(t, codeUsage, command(t, named, "lanes", "pause", "x", "--actor", "somebody").code, "the token says who acts")
}
