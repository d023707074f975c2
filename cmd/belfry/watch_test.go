package main

import (
	"bytes"
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belfryhq/belfry/admin/operation"

	"github.com/stretchr/testify/require"
)

// looks has the results of a watch beforehand; after the last the watch ends.
type looks struct {
	results []any // or an error
	end     context.CancelFunc
}

func (l *looks) run(_ context.Context, o operation.Operation, _ any) (any, error) {
	if len(l.results) == 0 {
		l.end()
		return nil, context.Canceled
	}
	next := l.results[0]
	l.results = l.results[1:]
	if err, is := next.(error); is {
		return nil, err
	}
	return o.ReadResult([]byte(next.(string)), "")
}

// An outage is said once, also if it lasts, and the watching goes on; what never answered, and
// what is no outage, ends it.
func TestWatch_GoesOnThroughAnOutage(t *testing.T) {
	t.Parallel()
	gone := &operation.UnavailableError{Err: context.DeadlineExceeded}
	o := operationNamed("channels segment list")
	const beta = `[{"name":"beta"}]`
	watch := func(args string, results ...any) (string, string, error) {
		var stdout, stderr bytes.Buffer
		a := newApp(&stdout, &stderr, nil)
		cmd := newOperationCommand(a, o)
		require.NoError(t, cmd.ParseFlags(strings.Fields(args)))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		options := operationOptions{commandOptions: a.options(cmd), operation: o, input: o.NewInput(), out: outputOf(cmd)}
		err := watchOperation(ctx, options, (&looks{results, cancel}).run, time.Millisecond)
		return stdout.String(), stderr.String(), err
	}
	out, said, err := watch("-o json", beta, gone, gone, `[]`, gone, beta)
	require.NoError(t, err)
	require.Equal(t, 3, strings.Count(out, "\n"), "a document a look, a line each: %s", out)
	require.Contains(t, out, "[]\n")
	require.Equal(t, 2, strings.Count(said, "trying again every 1ms\n"), said)
	require.Equal(t, 2, strings.Count(said, "belfry: it answers again\n"), said)

	out, _, err = watch("-o csv", beta, beta)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(out, "name,"), "headings once: %s", out)
	require.Equal(t, 2, strings.Count(out, "\nbeta,"), out)

	out, _, err = watch("", beta, beta)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(out, "\n\nNAME"), "looks stand one after the other: %s", out)
	require.NotContains(t, out, "\x1b")

	_, _, err = watch("", gone, beta)
	require.ErrorIs(t, err, context.DeadlineExceeded, "it never answered")
	_, _, err = watch("", beta, &operation.DeniedError{})
	require.ErrorAs(t, err, new(*operation.DeniedError))
}

// A watch ends with Ctrl-C and 0, and looks once a second at most.
func TestWatch_EndsWithASignal(t *testing.T) {
	t.Parallel()
	db := stage(t)
	p := start(t, []string{"BELFRY_DATABASE_URL=" + db.DSN}, "lanes", "list", "--watch=1s", "-o", "json")
	p.prints(t, "[]\n[]\n")
	require.NoError(t, p.Process.Signal(syscall.SIGINT))
	require.Equal(t, codeDone, p.exit(t), p.stderr.String())
	for value, code := range map[string]code{"999ms": codeUsage, "2h": codeUsage, "x": codeUsage} {
		r := command(t, nil, "jobs", "list", "--watch="+value)
		require.Equal(t, code, r.code)
		require.Contains(t, r.stderr, "--watch")
		require.Contains(t, r.stderr, "allowed values: durations from 1s to 1h, such as 5s")
	}
}

// --times changes the times of text, with any command, and nothing else.
func TestLong_TimesAreShownAsAsked(t *testing.T) {
	t.Parallel()
	db := stage(t)
	_, err := db.Pool.Exec(t.Context(), `INSERT INTO belfry.jobs (type, category, title, schedule_at) VALUES ('inbox', 'operator_notice', 'x', '2040-11-20 09:00:00Z')`)
	require.NoError(t, err)
	environ := []string{"BELFRY_DATABASE_URL=" + db.DSN}
	told := func(args string) string {
		var stdout, stderr bytes.Buffer
		a := newApp(&stdout, &stderr, environ)
		a.now = func() time.Time { return time.Date(2040, 11, 20, 7, 0, 0, 0, time.UTC) }
		require.Equal(t, codeDone, a.execute(t.Context(), strings.Fields(args)), "%s: %s", args, &stderr)
		return stdout.String()
	}
	for args, want := range map[string]string{
		"": "2040-11-20 18:00:00+09:00", "--times local": "2040-11-20 18:00:00+09:00", "--times utc": "2040-11-20 09:00:00+00:00",
		"--times UTC": "2040-11-20 09:00:00+00:00", "--times Europe/Berlin": "2040-11-20 10:00:00+01:00", "--times relative": "in 2h",
	} {
		for _, what := range []string{"jobs list ", "jobs show 1 "} {
			require.Contains(t, told(what+args), want, "%s%s", what, args)
		}
		require.Equal(t, told("jobs list -o csv"), told("jobs list -o csv "+args), "CSV is in UTC")
		require.Equal(t, told("jobs show 1 --json"), told("jobs show 1 --json "+args), "JSON is in UTC")
	}
	for _, args := range []string{"migrate status", "jobs events 1"} { // a command that is no operation, and a list
		require.Contains(t, told(args+" --times utc"), "+00:00")
		require.NotContains(t, told(args+" --times utc"), "+09:00")
	}
}

// Colours are a terminal's, unless they are asked for; nothing else has them.
func TestColor_IsForPeople(t *testing.T) {
	t.Parallel()
	db := stage(t)
	_, err := db.Pool.Exec(t.Context(), `INSERT INTO belfry.jobs (type, category, title) VALUES ('inbox', 'operator_notice', 'x'); SELECT belfry.abort(1)`)
	require.NoError(t, err)
	environ := []string{"BELFRY_DATABASE_URL=" + db.DSN}
	for args, colored := range map[string]bool{
		"": false, "--color auto": false, "--color never": false, "--color always": true, "--color always --json": false, "--color always -o csv": false,
	} {
		r := command(t, environ, append([]string{"jobs", "list"}, strings.Fields(args)...)...)
		require.Equal(t, codeDone, r.code, r.stderr)
		require.Equal(t, colored, strings.Contains(r.stdout, "\x1b[33mABORTED\x1b[0m"), args)
		require.Equal(t, colored, strings.Contains(r.stdout, "\x1b"), args)
		require.Contains(t, r.stdout, "ABORTED")
	}
	r := command(t, nil, "jobs", "list", "--color", "red")
	require.Equal(t, codeUsage, r.code)
	require.Contains(t, r.stderr, "allowed values: auto, always, never")
}
