package main

import (
	"bytes"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
)

// offered is what a shell is told that the last word may become, and nothing else is said.
func offered(t *testing.T, limit time.Duration, environ []string, line string) (offers []string, directive string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	a := newApp(&stdout, &stderr, environ)
	a.lookupLimit = limit
	require.Equal(t, codeDone, a.execute(t.Context(), append([]string{cobra.ShellCompRequestCmd}, strings.Split(line, " ")...)), line)
	require.Regexp(t, `^Completion ended with directive: \w+(, \w+)*\n$`, stderr.String(), line)
	lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
	return lines[:len(lines)-1], lines[len(lines)-1]
}

// completable is a database with something of everything.
func completable(t *testing.T) *dbtest.DB {
	t.Helper()
	db := stage(t)
	_, err := db.Pool.Exec(t.Context(), `
		INSERT INTO belfry.jobs (type, category, title, lane) VALUES ('inbox', 'operator_notice', 'Older', 'night'), ('inbox', 'operator_notice', E'Two \x1b[31mlines\n17\t$(id)', 'default');
		SELECT belfry.enqueue_group('{inbox,push}', 'operator_notice', 'Together');
		SELECT belfry.pause_lane('night', 'ann', 'hot');
		INSERT INTO belfry.categories (name, description) VALUES ('digest', 'the weekly digest');
		INSERT INTO belfry.segments (name) VALUES ('beta');
		INSERT INTO belfry.senders (name, rate_per_second) VALUES ('fcm', 5)`)
	require.NoError(t, err)
	for _, line := range []string{
		"schedules add weekly --cron @weekly --type inbox --category digest --title Digest --everyone",
		"tokens create ci --role author",
	} {
		r := command(t, []string{"BELFRY_DATABASE_URL=" + db.DSN}, strings.Split(line, " ")...)
		require.Equal(t, codeDone, r.code, r.stderr)
	}
	return db
}

func TestLong_CompletionOffersWhatThereIs(t *testing.T) {
	t.Parallel()
	db := completable(t)
	here := []string{"BELFRY_DATABASE_URL=" + db.DSN}
	jobs := []string{"4\tPENDING Together", "3\tPENDING Together", "2\tPENDING Two  [31mlines 17 $(id)", "1\tPENDING Older"}
	const keepOrder, noSpace, files, directories = ":36", ":38", ":0", ":16"
	for _, c := range []struct {
		line      string
		want      []string
		directive string
	}{
		{"jobs show ", jobs, keepOrder},
		{"jobs show 1", jobs[3:], keepOrder},
		{"jobs show 1 ", nil, keepOrder},
		{"jobs audit ", jobs, keepOrder},
		{"jobs report ", jobs, keepOrder},
		{"abort 4 2 ", []string{jobs[1], jobs[3]}, keepOrder},
		{"jobs list --group ", []string{"3\tPENDING Together"}, keepOrder},
		{"jobs list --lane ", []string{"default", "night\thot"}, keepOrder},
		{"jobs list --status R", []string{"RUNNING"}, keepOrder},
		{"jobs list --status RUNNING,F", []string{"RUNNING,FAILED"}, keepOrder},
		{"lanes pause n", []string{"night\thot"}, keepOrder},
		{"lanes events ", []string{"default", "night\thot"}, keepOrder},
		{"categories set d", []string{"digest\tthe weekly digest"}, keepOrder},
		{"categories add ", nil, keepOrder},
		{"enqueue --category d", []string{"digest\tthe weekly digest"}, keepOrder},
		{"enqueue --type inbox,p", []string{"inbox,push"}, keepOrder},
		{"enqueue --route push,s", []string{"push,sms"}, keepOrder},
		{"enqueue --segment ", []string{"beta"}, keepOrder},
		{"channels segment drop ", []string{"beta"}, keepOrder},
		{"channels segment create ", nil, keepOrder},
		{"channels segment add ", []string{"beta"}, keepOrder},
		{"channels segment add beta ", nil, files},
		{"channels segment add --by e", []string{"external_id"}, keepOrder},
		{"channels import ", nil, files},
		{"senders pause ", []string{"fcm"}, keepOrder},
		{"schedules show ", []string{"weekly\tDigest"}, keepOrder},
		{"schedules add x --missed o", []string{"once"}, keepOrder},
		{"tokens revoke ", []string{"ci\tauthor"}, keepOrder},
		{"tokens create --role o", []string{"operator"}, keepOrder},
		{"users set-password ann --password-file ", nil, files},
		{"jobs set 1 max_r", []string{"max_rows_per_second=\t0 (no limit) to 10000000, or default", "max_recipients=\t1 to 2000000000, the maximum number of its rows, or none"}, noSpace},
		{"jobs set 1 lane=night max_ro", []string{"max_rows_per_second=\t0 (no limit) to 10000000, or default"}, noSpace},
		{"jobs set 1 lane=night lan", nil, noSpace},
		{"jobs set 1 lane=n", []string{"lane=night\thot"}, keepOrder},
		{"jobs set 1 health_checks=", []string{"health_checks=on", "health_checks=off", "health_checks=default", "health_checks=none"}, keepOrder},
		{"categories set digest route=push,s", []string{"route=push,sms"}, keepOrder},
		{"limits set pri", []string{"priority=\t0 to 1000, or none"}, noSpace},
		{"jobs list -o ", []string{"table", "json", "csv"}, keepOrder},
		{"jobs show 1 -o ", []string{"text", "json"}, keepOrder},
		{"roles --for d", []string{"deliver"}, keepOrder},
		{"dead-letters list --dead-reason exh", []string{"exhausted"}, keepOrder},
		{"jobs list --log-level d", []string{"debug"}, keepOrder},
		{"jobs list --config ", nil, files},
		{"jobs list --data-dir ", nil, directories},
		{"channels opt-outs --external-id u", nil, keepOrder},
		{"jobs test-send 1 --to u", nil, keepOrder},
	} {
		got, directive := offered(t, patience, here, c.line)
		require.ElementsMatch(t, c.want, got, c.line)
		if len(got) > 0 || c.directive != keepOrder { // of nothing there is no order
			require.Equal(t, c.directive, directive, c.line)
		}
		if strings.HasPrefix(c.line, "jobs show") {
			require.Equal(t, c.want, append([]string(nil), got...), "newest first")
		}
	}
	got, _ := offered(t, patience, here, "jobs list --database-url postgres://127.0.0.1:1/x --lane ")
	require.Empty(t, got, "flags of the line count")
}

// A completion starts no server, asks nobody and says nothing, whatever it cannot reach.
func TestCompletion_SaysNothingWhereNothingAnswers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0") // accepts, and never answers
	require.NoError(t, err)
	defer silent.Close() //nolint:errcheck // the test is over
	for name, environ := range map[string][]string{
		"no database":          {"BELFRY_LOG_LEVEL=debug"},
		"refused":              {"BELFRY_DATABASE_URL=postgres://127.0.0.1:1/x", "BELFRY_LOG_LEVEL=debug"},
		"silent":               {"BELFRY_DATABASE_URL=postgres://" + silent.Addr().String() + "/x", "BELFRY_LOG_LEVEL=debug"},
		"a configuration none": {"BELFRY_LANE=1"},
	} {
		began := time.Now()
		got, _ := offered(t, 0, append(environ, "BELFRY_SERVER_DATA_DIR="+dir), "jobs show ")
		require.Empty(t, got, name)
		require.Less(t, time.Since(began), patience/2, name)
	}
	a := newApp(io.Discard, io.Discard, nil)
	_, err = completer{a}.query(t.Context(), newRootCommand(a), operationNamed("jobs list"))
	require.ErrorIs(t, err, errNotQueried, "without an address libpq has one of its own")
	made, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, made, "a private server was started")
}

// Every command of the help is in a group of it.
func TestHelp_EveryCommandHasAGroup(t *testing.T) {
	t.Parallel()
	r := command(t, nil, "help")
	require.Equal(t, codeDone, r.code)
	require.NotContains(t, r.stdout, "Additional Commands")
	root := newRootCommand(newApp(io.Discard, io.Discard, nil))
	var titles []string
	for _, g := range root.Groups() {
		require.NotEmpty(t, g.ID)
		titles = append(titles, g.Title)
	}
	require.Equal(t, []string{"Jobs:", "Delivery:", "Recipients:", "People and programs:", "Processes:", "Installation:", "Tools:"}, titles)
}
