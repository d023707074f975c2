package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/admin/operation"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/keys"
	"github.com/belfryhq/belfry/node/settings"
)

// patience bounds every wait for a condition; nothing normally takes that long.
const patience = time.Minute

type (
	poolKey struct{}
	dbKey   struct{}
	testKey struct{}
)

// TestScripts runs some of testdata/script, each with a database of its own in
// BELFRY_DATABASE_URL; one whose name begins with "unmigrated" gets it empty, and one whose
// name begins with "offline" a server that does not answer.
// Beside testscript's own there are the commands
//
//	belfry ARG...              runs belfry, which has to end with 0
//	exits CODE belfry ARG...   runs belfry and wants this exit code
//	exits CODE exec belfry ARG...
//	sql STATEMENT...           runs SQL; rows go to stdout, values separated by |
//	until CONDITION            waits until an SQL condition is true
//	keep NAME                  puts the last standard output into a variable
//
// Only after exec is belfry a process of its own: to start four hundred takes longer than
// what they do. It has to be one where it reads standard input or a file by a name that is
// relative, and where it runs in the background. Other files are named by $WORK.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, scriptParams(filepath.Dir(binary(t)), quickScripts...))
}

// The other scripts.
func TestLong_Scripts(t *testing.T) {
	t.Parallel()
	all, err := filepath.Glob(scriptFile("*"))
	require.NoError(t, err)
	var others []string
	for _, path := range all {
		if name := strings.TrimSuffix(filepath.Base(path), ".txtar"); !slices.Contains(quickScripts, name) {
			others = append(others, name)
		}
	}
	require.Len(t, others, len(all)-len(quickScripts), "each quick script is there")
	testscript.Run(t, scriptParams(filepath.Dir(binary(t)), others...))
}

// quickScripts are a sample: each exit code, processes, and an act of each kind.
var quickScripts = []string{
	"acts", "channels", "daemon", "exit_failed", "lanes", "limits", "offline_exit_config",
	"offline_exit_unreachable", "offline_exit_usage", "offline_help", "send",
}

func scriptFile(name string) string { return filepath.Join("testdata", "script", name+".txtar") }

// scriptParams run these scripts, with belfry's directory in the path.
func scriptParams(path string, names ...string) testscript.Params {
	var files []string
	for _, name := range names {
		files = append(files, scriptFile(name))
	}
	return testscript.Params{
		Files:               files,
		UpdateScripts:       *dbtest.Rewrite,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			tb, ok := env.T().(testing.TB)
			if !ok {
				return errors.New("testscript's T is no testing.TB any more")
			}
			env.Setenv("BELFRY_DATABASE_URL", "postgres://127.0.0.1:1/x")
			if _, script, _ := strings.Cut(tb.Name(), "/"); !strings.HasPrefix(script, "offline") {
				create := dbtest.New
				if strings.HasPrefix(script, "unmigrated") {
					create = dbtest.NewEmpty
				}
				db := create(tb)
				env.Values[poolKey{}], env.Values[dbKey{}], env.Values[testKey{}] = db.Pool, db, tb
				env.Setenv("BELFRY_DATABASE_URL", kept(tb, db.DSN))
			}
			env.Setenv("PATH", path+string(filepath.ListSeparator)+env.Getenv("PATH"))
			env.Vars = append(env.Vars, regardless, mainVariable+"=1")
			env.Setenv("TZ", "Asia/Seoul")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"belfry": scriptBelfry,
			"exits":  scriptExits,
			"sql":    scriptSQL,
			"until":  scriptUntil,
			"keep":   scriptKeep,
			"plan":   scriptPlan,
		},
	}
}

func scriptBelfry(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("write exits CODE belfry ARG...")
	}
	wantExit(ts, codeDone, runHere(ts, args))
}

func scriptExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE [exec] belfry ARG...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	switch args[1] {
	case "belfry":
		wantExit(ts, code(want), runHere(ts, args[2:]))
	case "exec":
		var exit *exec.ExitError
		err := ts.Exec(args[2], args[3:]...)
		if err != nil && !errors.As(err, &exit) {
			ts.Fatalf("%s: %v", args[2], err)
		}
		got := codeDone
		if exit != nil {
			got = code(exit.ExitCode())
		}
		wantExit(ts, code(want), got)
	default:
		ts.Fatalf("exits: %s is neither belfry nor exec", args[1])
	}
}

func wantExit(ts *testscript.TestScript, want, got code) {
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// runHere runs belfry in this process, with the script's environment.
func runHere(ts *testscript.TestScript, args []string) code {
	return runTo(ts, ts.Stdout(), args)
}

func runTo(ts *testscript.TestScript, stdout io.Writer, args []string) code {
	environ := []string{config.FileVariable + "=" + ts.Getenv(config.FileVariable)}
	for _, k := range keys.Of(settings.Default()) {
		environ = append(environ, k.Variable+"="+ts.Getenv(k.Variable))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	a := newApp(stdout, ts.Stderr(), environ)
	return a.execute(ctx, args)
}

func scriptPool(ts *testscript.TestScript) *pgxpool.Pool {
	pool, ok := ts.Value(poolKey{}).(*pgxpool.Pool)
	if !ok {
		ts.Fatalf("no database")
	}
	return pool
}

func scriptSQL(ts *testscript.TestScript, neg bool, args []string) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	rows, err := scriptPool(ts).Query(ctx, strings.Join(args, " "), pgx.QueryExecModeSimpleProtocol)
	ts.Check(err)
	var out bytes.Buffer
	for rows.Next() {
		values, err := rows.Values()
		ts.Check(err)
		cells := make([]string, len(values))
		for i, v := range values {
			cells[i] = fmt.Sprint(v)
		}
		fmt.Fprintln(&out, strings.Join(cells, "|"))
	}
	if err := rows.Err(); (err != nil) != neg {
		ts.Fatalf("sql: %v", err)
	}
	_, err = ts.Stdout().Write(out.Bytes())
	ts.Check(err)
}

func scriptUntil(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("until cannot be negated")
	}
	condition := strings.Join(args, " ")
	if err := until(context.Background(), scriptPool(ts), condition); err != nil {
		ts.Fatalf("%v", err)
	}
}

func scriptKeep(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: keep NAME")
	}
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
}

// scriptPlan keeps the token of the plan that belfry ARG... --dry-run shows in a variable.
func scriptPlan(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 || args[1] != "belfry" {
		ts.Fatalf("usage: plan NAME belfry ARG...")
	}
	var shown bytes.Buffer
	runTo(ts, &shown, append(args[2:], "--dry-run", "--json"))
	var out struct{ Plan operation.Plan }
	ts.Check(json.Unmarshal(shown.Bytes(), &out))
	ts.Setenv(args[0], out.Plan.Token)
}

// until waits until an SQL condition is true in committed state; it asks less often the
// longer that takes.
func until(ctx context.Context, pool *pgxpool.Pool, condition string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	wait := 5 * time.Millisecond
	again := time.NewTicker(wait)
	defer again.Stop()
	for ; ; wait = min(wait*3/2, 100*time.Millisecond) {
		again.Reset(wait)
		var holds bool
		if err := pool.QueryRow(ctx, "SELECT coalesce(("+condition+"), false)").Scan(&holds); err != nil {
			return fmt.Errorf("until %s: %w", condition, err)
		}
		if holds {
			return nil
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return fmt.Errorf("until %s: %w", condition, ctx.Err())
		}
	}
}

func TestUntil_GivesUp(t *testing.T) {
	t.Parallel()
	db := dbtest.NewEmpty(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, until(ctx, db.Pool, "false"), context.DeadlineExceeded)
}
