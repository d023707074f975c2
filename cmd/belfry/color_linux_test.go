package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
)

// atTerminal runs a command in this process whose output is a terminal, until the context ends, and
// returns what the terminal was sent. seen, unless nil, is called as it grows.
func atTerminal(t *testing.T, ctx context.Context, environ, args []string, seen func(sofar string)) string {
	t.Helper()
	person, tty := openTerminal(t)
	var shown, stderr dbtest.Buffer
	read := make(chan struct{})
	go func() {
		defer close(read)
		b := make([]byte, 4096)
		for {
			n, err := person.Read(b)
			_, _ = shown.Write(b[:n])
			if err != nil { // the program has closed it
				return
			}
			if seen != nil {
				seen(shown.String())
			}
		}
	}()
	a := newApp(tty, &stderr, environ)
	exit := a.execute(ctx, args)
	require.NoError(t, tty.Close())
	<-read
	require.NoError(t, person.Close())
	if ctx.Err() == nil {
		require.Equal(t, codeDone, exit, "%s: %s", args, stderr.String())
	}
	return shown.String()
}

// A terminal shows statuses in colours, unless the person, the terminal or the form has none.
func TestColor_IsATerminals(t *testing.T) {
	t.Parallel()
	db := stage(t)
	_, err := db.Pool.Exec(t.Context(), `INSERT INTO belfry.jobs (type, category, title) VALUES ('inbox', 'operator_notice', 'x'); SELECT belfry.abort(1)`)
	require.NoError(t, err)
	for _, c := range []struct {
		environ, args string
		colored       bool
	}{
		{"", "", true},
		{"", "--color auto", true},
		{"TERM=xterm-256color", "", true},
		{"TERM=dumb", "", false},
		{"TERM=dumb", "--color auto", false},
		{"TERM=dumb", "--color always", true},
		{"NO_COLOR=1", "", false},
		{"NO_COLOR=0", "", false}, // any text, by the convention
		{"NO_COLOR=", "", true},   // and none is not set
		{"NO_COLOR=1", "--color auto", false},
		{"NO_COLOR=1", "--color always", true},
		{"", "--color never", false},
		{"", "--json", false},
		{"", "--color always --json", false},
		{"", "--color always -o csv", false},
	} {
		environ := append([]string{"BELFRY_DATABASE_URL=" + db.DSN}, strings.Fields(c.environ)...)
		shown := atTerminal(t, t.Context(), environ, append([]string{"jobs", "list"}, strings.Fields(c.args)...), nil)
		require.Contains(t, shown, "ABORTED", "%+v", c)
		require.Equal(t, c.colored, strings.Contains(shown, "\x1b[33mABORTED\x1b[0m"), "%+v: %q", c, shown)
		require.Equal(t, c.colored, strings.Contains(shown, "\x1b"), "%+v: %q", c, shown)
	}
}

// Stored text does not steer a terminal in any form, and JSON and files keep its value.
func TestOutput_StoredTextDoesNotSteerATerminal(t *testing.T) {
	t.Parallel()
	db := stage(t)
	const evil = "a\x1b]0;t\ab\u009b31m\u202ec\u2066d\u2028e\x7ff"
	_, err := db.Pool.Exec(t.Context(), `INSERT INTO belfry.jobs (type, category, title) VALUES ('inbox', 'operator_notice', $1)`, evil)
	require.NoError(t, err)
	environ := []string{"BELFRY_DATABASE_URL=" + db.DSN}
	for _, form := range []string{"table", "json", "csv"} {
		for _, kind := range []string{"TERM=xterm", "TERM=dumb"} {
			shown := atTerminal(t, t.Context(), append([]string{kind}, environ...), []string{"jobs", "list", "--color", "never", "-o", form}, nil)
			require.Contains(t, shown, "31m", form)
			require.False(t, strings.ContainsAny(shown, "\x1b\a\u009b\u202e\u2066\u2028\x7f"), "%s, %s: %q", form, kind, shown)
		}
	}
	r := command(t, environ, "jobs", "list", "-o", "json")
	var list []struct{ Title string }
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &list), r.stdout)
	require.Equal(t, evil, list[0].Title)
	require.NotContains(t, r.stdout, "\u202e")
	require.Contains(t, command(t, environ, "jobs", "list", "-o", "csv").stdout, evil)
	var stderr dbtest.Buffer
	newApp(nil, &stderr, nil).remark("%s", evil)
	require.Equal(t, "a ]0;t b 31m c d e f\n", stderr.String(), "errors quote rows")
}

// A terminal that cannot move its cursor is written to line by line; on one that can, what is redrawn
// has the times that were asked for.
func TestWatch_RedrawsWhereItCan(t *testing.T) {
	t.Parallel()
	db := stage(t)
	_, err := db.Pool.Exec(t.Context(), `INSERT INTO belfry.jobs (type, category, title, schedule_at) VALUES ('inbox', 'operator_notice', 'x', '2040-11-20 09:00:00Z')`)
	require.NoError(t, err)
	for term, moves := range map[string]bool{"TERM=xterm": true, "TERM=dumb": false} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		environ := []string{"BELFRY_DATABASE_URL=" + db.DSN, term}
		shown := atTerminal(t, ctx, environ, strings.Fields("jobs show 1 --watch=1s --times utc"), func(sofar string) {
			if strings.Count(sofar, "2040-11-20 09:00:00+00:00") >= 2 {
				cancel()
			}
		})
		cancel()
		require.GreaterOrEqual(t, strings.Count(shown, "2040-11-20 09:00:00+00:00"), 2, "%s: %q", term, shown)
		require.NotContains(t, shown, "+09:00", term)
		require.Equal(t, moves, strings.Contains(shown, "\x1b[J"), "%s: %q", term, shown)
		require.Equal(t, moves, strings.Contains(shown, "\x1b"), "%s: %q", term, shown)
	}
}
