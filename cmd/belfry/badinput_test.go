package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/text"
)

// good is a request that nothing is wrong with.
var good = []string{"enqueue", "--type", "inbox", "--category", "operator_notice", "--title", "Hello"}

func with(args ...string) []string { return append(append([]string{}, good...), args...) }

// badInput is refused with exit code 2 before anything is written.
var badInput = [][]string{
	{"jbos"},
	{"jobs"},
	{"jobs", "lits"},
	{"jobs", "edit", "1", "--title", "x"},
	{"jobs", "abort", "1"},
	{"lanes", "--reason", "x"},
	{"jobs", "list", "extra"},
	{"jobs", "list", "--limit", "0"},
	{"jobs", "list", "--limit", "lots"},
	{"jobs", "list", "--status", "DONE"},
	{"jobs", "list", "--group", "seventeen"},
	{"jobs", "list", "--jsno"},
	{"jobs", "list", "--times", "Local"},
	{"jobs", "list", "--times", "Asia/Soul"},
	{"jobs", "show"},
	{"jobs", "show", "seventeen"},
	{"jobs", "show", "-5"},
	{"jobs", "events", "0"},
	{"abort"},
	{"abort", "1", "--group", "00000000-0000-0000-0000-000000000001"},
	{"abort", "x"},
	{"resume", "1.5"},
	{"resume", "1", "--title", "x"},
	{"resume", "1", "--edit"},
	{"resume", "1", "--edit", "--data", "[1]"},
	{"resume", "1", "--edit", "--variants", "[1]"},
	{"resume", "1", "--edit", "--near", "1,2"},
	{"recall"},
	{"recall", "1", "--group", "00000000-0000-0000-0000-000000000001"},
	{"jobs", "set", "1"},
	{"jobs", "set", "x", "priority=1"},
	{"jobs", "set", "1", "chunk_size=5", "priority", "priority=5000", "priority=1"},
	{"jobs", "set", "1", "max_rows_per_second=fast", "duty_cycle=2", "chunk_target=5", "chunk_target_ms=0", "max_chunk_rows=0"},
	{"jobs", "set", "1", "health_checks=yes", "max_skips=-1", "schedule_at=default", "expires_at=tomorrow"},
	{"jobs", "set", "1", "data=[1]", `audience={"kind": "all"}`, "status=RUNNING"},
	{"jobs", "set", "1", "variants=[1]", "route=push,push"},
	{"jobs", "set", "1", "variants=testdata/no-such.json"},
	{"jobs", "skips"},
	{"jobs", "skips", "1", "--limit", "0"},
	{"jobs", "retry-skipped", "x"},
	{"jobs", "revisions"},
	{"jobs", "recipients", "1", "--reason", "lost"},
	{"jobs", "recipients", "1", "--channel", "x"},
	{"jobs", "recipients", "1", "--channel", "1", "--external-id", "u1"},
	{"lanes"},
	{"lanes", "pause"},
	{"lanes", "pause", "Night Shift"},
	{"lanes", "events", "a", "b"},
	{"schedules"},
	{"schedules", "next", "digest", "--count", "0"},
	{"schedules", "add"},
	{"schedules", "add", "Daily Digest", "--every", "1", "--everyone"},
	{"schedules", "add", "digest", "--cron", "0 9 * * *", "--type", "inbox", "--category", "x", "--title", "y"},
	{"schedules", "add", "digest", "--cron", "0 9 * *", "--time-zone", "Seoul", "--missed", "never", "--everyone", "--type", "inbox", "--category", "x", "--title", "y"},
	{"schedules", "add", "digest", "--every", "1h", "--everyone", "--type", "inbox", "--category", "x", "--title", "y", "--data", "[1]"},
	{"schedules", "add", "digest", "--every", "1h", "--everyone", "--type", "inbox", "--category", "x", "--title", "y", "--variants", "[1]"},
	{"schedules", "add", "digest", "--every", "1h", "--everyone", "--type", "inbox", "--category", "x", "--title", "y", "--route", "Push,push,push"},
	{"send"},
	{"send", "u1", "--title", "x"},
	{"prune", "--older-than", "90"},
	{"prune", "--older-than", "0d"},
	{"run", "--wait", "30"},
	{"run", "now"},
	{"enqueue"},
	{"enqueue", "--everyone"},
	{"enqueue", "--type", "inbox", "--everyone"},
	with(),
	with("--everyone", "--segment", "beta"),
	with("--everyone", "--platform", "ios"),
	with("--near", "37.57"),
	with("--near", "37.57,126.98"),
	with("--near", "95,0", "--radius", "1km"),
	with("--radius", "30km"),
	with("--near", "37.57,126.98", "--radius", "30"),
	with("--near", "37.57,126.98", "--radius", "30000km"),
	with("--platform", "windows"),
	with("--segment", "nobody"),
	with("--channel-id", "1,two"),
	with("--external-id", ""),
	with("--audience", "{}"),
	with("--audience", `{"kind": "all"}`),
	with("--audience", `{"kind": "radius", "latitude": 1}`),
	with("--audience", `{"kind": "everyone"`),
	with("--everyone", "--at", "tomorrow"),
	with("--everyone", "--at", "2026-02-30 10:00"),
	with("--everyone", "--at", "+1h", "--deliver-at", "+30m"),
	with("--everyone", "--expires-in", "0s"),
	with("--everyone", "--expires-in", "1h", "--expires-at", "+1h"),
	with("--everyone", "--at", "+2h", "--expires-at", "+1h"),
	with("--everyone", "--priority", "5000"),
	with("--everyone", "--lane", "Night Shift"),
	with("--everyone", "--data", "[1]"),
	with("--everyone", "--data", "{"),
	with("--everyone", "--variants", "[1]"),
	with("--everyone", "--variants", "{"),
	with("--everyone", "--variants", "testdata/no-such.json"),
	with("--everyone", "--variants", "main.go"),
	with("--everyone", "--variants", `{"ko": {"title": " "}}`),
	with("--everyone", "--variants", `{"ko": {"body": "{{"}}`),
	with("--everyone", "--route", "push,fax"),
	with("--everyone", "--route", ""),
	with("--everyone", "--title", "Hello {{name}}"),
	with("--everyone", "--title", strings.Repeat("x", 201)),
	with("--everyone", "--type", "fax"),
	with("--everyone", "--type", "inbox"),
	with("--everyone", "--category", "spam"),
	with("--everyone", "--idempotency-key", strings.Repeat("k", 201)),
	{"channels", "generate"},
	{"channels", "generate", "-1"},
	{"channels", "generate", "1e6"},
	{"channels", "import"},
	{"channels", "import", "testdata/no-such.csv"},
	{"channels", "import", "testdata"},
	{"channels", "segment", "set", "beta"},
	{"channels", "segment", "set", "beta", "testdata/no-such.txt"},
	{"channels", "segment", "set", "beta", "main.go", "--by", "uuid"},
	{"migrate"},
	{"migrate", "down"},
	{"migrate", "down", "--to", "0"},
	{"config"},
}

// TestBadInput wants one error text for each case, and nothing written by any.
func TestBadInput(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	var all strings.Builder
	for _, args := range badInput {
		r := command(t, []string{"BELFRY_DATABASE_URL=" + db.DSN, "USER=ann"}, args...)
		shown := make([]string, len(args))
		for i, arg := range args {
			shown[i] = text.OneLine(arg, 60)
			if strings.ContainsAny(arg, " {[\"") || arg == "" {
				shown[i] = "'" + shown[i] + "'"
			}
		}
		fmt.Fprintf(&all, "$ belfry %s\n%s\n", strings.Join(shown, " "), r.stderr)
		require.Equal(t, codeUsage, r.code, "%s: %s", args, r.stderr)
		require.Empty(t, r.stdout, args)
		require.NotContains(t, r.stderr, "SQLSTATE", args)
	}
	require.Zero(t, count(t, db, "belfry.jobs"))
	require.Zero(t, count(t, db, "belfry.channels"))
	require.Zero(t, count(t, db, "belfry.segments"))
	dbtest.Golden(t, filepath.Join("testdata", "bad_input.golden"), all.String())
}
