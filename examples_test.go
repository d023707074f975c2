package belfry_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
)

// built builds an example, which has no fault that vet finds, of the packages that make build
// has compiled.
func built(t *testing.T, name string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), name)
	for _, args := range [][]string{{"vet", "-trimpath", "./_examples/" + name}, {"build", "-trimpath", "-o", program, "./_examples/" + name}} {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "go %v: %s", args, out)
	}
	return program
}

// program is an example on a database.
func program(t *testing.T, db *dbtest.DB, name string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), built(t, name))
	cmd.Env = append(os.Environ(), "DATABASE_URL="+db.DSN, "LISTEN=127.0.0.1:0")
	return cmd
}

var address = regexp.MustCompile(`http://\S+`)

// Every example with a main.go builds, and does what it says.
func TestLong_ExamplesRunAgainstAServer(t *testing.T) {
	t.Parallel()
	runs := map[string]func(t *testing.T, db *dbtest.DB){
		"embedded": func(t *testing.T, db *dbtest.DB) {
			t.Helper()
			cmd := program(t, db, "embedded")
			var out, log dbtest.Buffer
			cmd.Stdout, cmd.Stderr = &out, &log
			require.NoError(t, cmd.Start())
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			require.Eventually(t, func() bool { return address.MatchString(out.String()) }, patience, 20*time.Millisecond, "%s", &log)
			for title, status := range map[string]int{"Ten things": http.StatusCreated, "": http.StatusUnprocessableEntity} {
				request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address.FindString(out.String()), strings.NewReader(title))
				require.NoError(t, err)
				answer, err := http.DefaultClient.Do(request)
				require.NoError(t, err)
				text, err := io.ReadAll(answer.Body)
				require.NoError(t, err)
				require.NoError(t, answer.Body.Close())
				require.Equal(t, status, answer.StatusCode, "%s", text)
			}
			becomes(t, db, "SELECT count(*) = 1 FROM belfry.notifications")
			becomes(t, db, "SELECT count(*) = 1 FROM posts")
			require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
			require.NoError(t, <-ended, "%s", &log)
			require.Contains(t, log.String(), `msg="belfry stopped"`)
		},
		"jobtype": func(t *testing.T, db *dbtest.DB) {
			t.Helper()
			out, err := program(t, db, "jobtype").CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.Regexp(t, `^job \d+ PROCESSED: 1 coupons\n$`, string(out))
			becomes(t, db, "SELECT count(*) = 1 FROM coupons WHERE code = 'SPRING-' || job_id || '-ann'")
		},
		"databasesql": func(t *testing.T, db *dbtest.DB) {
			t.Helper()
			cmd := program(t, db, "databasesql")
			for range 2 { // the second finds the first one's job
				again := exec.CommandContext(t.Context(), cmd.Path)
				again.Env = cmd.Env
				out, err := again.CombinedOutput()
				require.NoError(t, err, "%s", out)
				require.Equal(t, "job 1\n", string(out))
			}
			becomes(t, db, "SELECT count(*) = 1 FROM belfry.jobs")
		},
	}
	found, err := filepath.Glob(filepath.Join("_examples", "*", "main.go"))
	require.NoError(t, err)
	require.Len(t, found, len(runs))
	for name, run := range runs {
		require.FileExists(t, filepath.Join("_examples", name, "main.go"))
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.New(t)
			execute(t, db, "INSERT INTO belfry.channels (external_id, platform) VALUES ('ann', 'ios')")
			run(t, db)
		})
	}
}

// The statements of the scripts in other languages run as their drivers send them. The scripts
// themselves are looked through where their interpreter is there.
func TestExamples_TheScriptsStatementsRun(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	named := regexp.MustCompile(`%\((\w+)\)s`)
	for path, script := range map[string]struct {
		statement *regexp.Regexp
		args      []any
		check     []string
	}{
		"_examples/python/enqueue.py": {
			regexp.MustCompile(`(?s)ENQUEUE = """(.*?)"""`), []any{pgx.NamedArgs{"title": "Hello", "key": "py"}},
			[]string{"python3", "-c", "import ast, sys; ast.parse(open(sys.argv[1]).read())"},
		},
		"_examples/ruby/enqueue.rb": {regexp.MustCompile(`(?s)ENQUEUE = <<~SQL\n(.*?)\nSQL\n`), []any{"Hello", "rb"}, []string{"ruby", "-c"}},
	} {
		text, err := os.ReadFile(filepath.FromSlash(path))
		require.NoError(t, err)
		found := script.statement.FindStringSubmatch(string(text))
		require.NotNil(t, found, path)
		var first, second int64
		for _, id := range []*int64{&first, &second} {
			require.NoError(t, pgx.BeginFunc(t.Context(), db.Pool, func(tx pgx.Tx) error {
				return tx.QueryRow(t.Context(), named.ReplaceAllString(found[1], "@$1"), script.args...).Scan(id)
			}), path)
		}
		require.Equal(t, first, second, "%s: its idempotency key", path)
		var kind, title string
		require.NoError(t, db.Pool.QueryRow(t.Context(), "SELECT type, title FROM belfry.jobs WHERE id = $1", first).Scan(&kind, &title))
		require.Equal(t, []string{"push", "Hello"}, []string{kind, title})

		if interpreter, err := exec.LookPath(script.check[0]); err == nil {
			out, err := exec.CommandContext(context.WithoutCancel(t.Context()), interpreter, append(script.check[1:], filepath.FromSlash(path))...).CombinedOutput()
			require.NoError(t, err, "%s: %s", path, out)
		}
	}
}

// goBlock is a block of Go in a page, which begins with the name of its file.
var goBlock = regexp.MustCompile("(?ms)^```go\n// (\\w+\\.go)\n(.*?)^```$")

// The blocks of docs/library.md are one program, as they stand: a stranger's module builds it,
// and it runs on a pool of its own.
func TestLong_LibraryPageIsAProgramThatRuns(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("docs/library.md")
	require.NoError(t, err)
	dir, err := os.MkdirTemp(t.TempDir(), "service")
	require.NoError(t, err)
	write := func(name, text string) {
		t.Helper()
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	blocks := goBlock.FindAllStringSubmatch(string(page), -1)
	require.Len(t, blocks, strings.Count(string(page), "```go"), "a block that names no file")
	for _, b := range blocks {
		write(b[1], b[2])
	}
	root, err := os.Getwd()
	require.NoError(t, err)
	module, err := os.ReadFile("go.mod")
	require.NoError(t, err)
	sums, err := os.ReadFile("go.sum")
	require.NoError(t, err)
	_, needs, _ := strings.Cut(string(module), "\n")
	write("go.mod", "module example.org/service\n"+needs+"\nrequire github.com/belfryhq/belfry v0.0.0\nreplace github.com/belfryhq/belfry => "+root+"\n")
	write("go.sum", string(sums))
	write("belfry.yaml", "runner:\n  poll_interval: 100ms\n")
	build := exec.CommandContext(t.Context(), "go", "build", "-mod=mod", "-trimpath", "-o", "service", ".")
	build.Dir, build.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOPROXY=off", "GOWORK=off")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)

	db := dbtest.New(t)
	execute(t, db, `CREATE SCHEMA app;
		CREATE TABLE app.users (id uuid PRIMARY KEY, name text NOT NULL);
		CREATE TABLE app.letters (job_id bigint, user_id uuid, text text NOT NULL, PRIMARY KEY (job_id, user_id));
		INSERT INTO app.users SELECT md5(g::text)::uuid, 'user ' || g FROM generate_series(1, 1000) g`)
	service := exec.CommandContext(t.Context(), filepath.Join(dir, "service"))
	service.Dir, service.Env = dir, append(os.Environ(), "DATABASE_URL="+db.DSN)
	var log dbtest.Buffer
	service.Stderr = &log
	require.NoError(t, service.Start())
	ended := make(chan error, 1)
	go func() { ended <- service.Wait() }()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the service's log: %s", &log)
		}
	})
	becomes(t, db, "SELECT count(*) = 1 FROM belfry.jobs WHERE type = 'inbox' AND status = 'PROCESSED'")
	becomes(t, db, "SELECT count(*) = 1 FROM belfry.job_types WHERE name = 'letters'")
	execute(t, db, "SELECT belfry.enqueue('letters', 'operator_notice', 'Moving')")
	becomes(t, db, "SELECT count(*) = 1000 AND bool_and(text LIKE 'Dear user %: Moving') FROM app.letters")
	require.NoError(t, service.Process.Signal(syscall.SIGTERM))
	require.NoError(t, <-ended)
}
