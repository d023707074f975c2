package main

import (
	"context"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
)

// tree is the repository.
const tree = "../.."

// pages are the texts for people, by their path in the repository.
func pages(t *testing.T) map[string]string {
	t.Helper()
	list := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/adr/*.md"} {
		paths, err := filepath.Glob(filepath.Join(tree, pattern))
		require.NoError(t, err)
		for _, path := range paths {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			name, err := filepath.Rel(tree, path)
			require.NoError(t, err)
			list[filepath.ToSlash(name)] = string(text)
		}
	}
	require.Contains(t, list, "README.md")
	return list
}

// blocks are the fenced parts of a page in one language.
func blocks(page, language string) (list []string) {
	for _, part := range strings.Split(page, "\n```"+language+"\n")[1:] {
		block, _, _ := strings.Cut(part, "\n```")
		list = append(list, block)
	}
	return list
}

var (
	fence   = regexp.MustCompile("(?ms)^```.*?^```$")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	noSlug  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors are the headings of a page as GitHub calls them in links.
func anchors(page string) (list []string) {
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(page, ""), -1) {
		list = append(list, strings.ReplaceAll(noSlug.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return list
}

func TestDocs_LinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	all := pages(t)
	require.LessOrEqual(t, strings.Count(all["README.md"], "\n"), 150, "the README is for who never heard of belfry")
	for name, page := range all {
		for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(page, ""), -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			to := name
			if target != "" {
				to = filepath.ToSlash(filepath.Join(filepath.Dir(name), target))
				_, err := os.Stat(filepath.Join(tree, to))
				require.NoError(t, err, "%s links to %s", name, m[1])
			}
			if anchor != "" {
				require.Contains(t, anchors(all[to]), anchor, "%s links to %s", name, m[1])
			}
		}
	}
}

var tableRow = regexp.MustCompile("(?m)^\\| (`[^|]+`) \\|")

// The table of packages has each of them, and no other.
func TestDocs_TheTableHasEachPackage(t *testing.T) {
	t.Parallel()
	var listed, found []string
	for _, m := range tableRow.FindAllStringSubmatch(pages(t)["docs/development.md"], -1) {
		for name := range strings.SplitSeq(m[1], ", ") {
			listed = append(listed, strings.Trim(name, "`"))
		}
	}
	require.NoError(t, filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != tree && (d.Name() == "testdata" || strings.ContainsAny(d.Name()[:1], "._")): // as the go command does
			return fs.SkipDir
		case filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		name, err := filepath.Rel(tree, filepath.Dir(path))
		found = append(found, filepath.ToSlash(name))
		return err
	}))
	slices.Sort(listed)
	slices.Sort(found)
	require.Equal(t, slices.Compact(found), listed)
}

// The statements of the pages run, in the order of each page. What docs/schedules.md says is
// tested in job/schedule.
func TestDocs_TheStatementsRun(t *testing.T) {
	t.Parallel()
	all := pages(t)
	db := dbtest.New(t)
	const before = `
		CREATE SCHEMA app;
		CREATE TABLE app.users (id bigint PRIMARY KEY, login text, platform text, deleted_at timestamptz, push_token text, email text);
		INSERT INTO belfry.channels (id, external_id, platform) OVERRIDING SYSTEM VALUE VALUES (4711, 'user-4711', 'ios');
		SELECT setval(pg_get_serial_sequence('belfry.jobs', 'id'), 16);
		INSERT INTO belfry.jobs (type, category, title) VALUES ('push', 'operator_notice', 'the job of the examples');`
	for name, want := range map[string]int{
		"README.md": 1, "docs/sql.md": 8, "docs/recipients.md": 3, "docs/delivery.md": 7,
		"docs/senders.md": 1, "docs/on-call.md": 3, "docs/operations.md": 3,
	} {
		statements := blocks(all[name], "sql")
		require.Len(t, statements, want, name)
		tx, err := db.Pool.Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), before)
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), `SELECT set_config('belfry.acts_for', 'kim', true)`) // the one login is each of their people
		require.NoError(t, err)
		for _, sql := range statements {
			_, err = tx.Exec(t.Context(), strings.ReplaceAll(sql, `\gexec`, ""))
			require.NoError(t, err, "%s: %s", name, sql)
		}
		require.NoError(t, tx.Rollback(context.WithoutCancel(t.Context())))
	}
}

var (
	inCode     = regexp.MustCompile("`(?:bin/)?(belfry [^`]+)`")
	ofShell    = regexp.MustCompile(`(?m)^(?:bin/)?(belfry (?:.*\\\n)*.*)$`)
	quoted     = regexp.MustCompile(`"[^"]*"|'[^']*'`)
	longFlag   = regexp.MustCompile(`(?:^|\s)--([a-z-]+)`)
	subcommand = regexp.MustCompile(`^[a-z-]+$`)
)

// Each command of the pages exists, with its flags.
func TestDocs_TheCommandsExist(t *testing.T) {
	t.Parallel()
	root := newRootCommand(newApp(io.Discard, io.Discard, nil))
	root.InitDefaultHelpFlag()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd("bash")
	found := 0
	for name, page := range pages(t) {
		if name == "CHANGELOG.md" || strings.HasPrefix(name, "docs/adr/") {
			continue // generated; of the past
		}
		var said []string
		for _, block := range blocks(page, "sh") {
			for _, m := range ofShell.FindAllStringSubmatch(block, -1) {
				said = append(said, strings.ReplaceAll(m[1], "\\\n", ""))
			}
		}
		for _, m := range inCode.FindAllStringSubmatch(fence.ReplaceAllString(page, ""), -1) {
			said = append(said, strings.ReplaceAll(m[1], "\n", " "))
		}
		for _, line := range said {
			line, _, _ = strings.Cut(quoted.ReplaceAllString(line, "Q"), " #")
			words := strings.Fields(line)[1:]
			cmd, rest, err := root.Find(words)
			require.NoError(t, err, "%s: %s", name, line)
			if cmd.HasSubCommands() && cmd != root { // a group by itself, as in `belfry dead-letters`
				require.False(t, len(rest) > 0 && subcommand.MatchString(rest[0]), "%s: %s: %v is no command", name, line, rest)
			}
			require.False(t, cmd == root && !strings.HasPrefix(line, "belfry --"), "%s: %s is no command", name, line)
			require.True(t, strings.HasPrefix(words[0], "--") || strings.Contains(cmd.CommandPath()+" ", " "+words[0]+" "), "%s: %s: an alias", name, line)
			for _, m := range longFlag.FindAllStringSubmatch(line, -1) {
				require.NotNil(t, flagOfAny(cmd, m[1]), "%s: %s: no flag --%s", name, line, m[1])
			}
			found++
		}
	}
	require.Greater(t, found, 150)
}

// flagOfAny is a flag of cmd, its own or of all commands.
func flagOfAny(cmd *cobra.Command, name string) any {
	cmd.InitDefaultHelpFlag()
	if f := cmd.Flags().Lookup(name); f != nil {
		return f
	}
	if f := cmd.InheritedFlags().Lookup(name); f != nil {
		return f
	}
	return nil
}

// The examples of the configuration have no fault but that their secret files are not here.
func TestDocs_TheConfigurationsAreValid(t *testing.T) {
	t.Parallel()
	found := 0
	for name, page := range pages(t) {
		for _, block := range blocks(page, "yaml") {
			path := filepath.Join(t.TempDir(), "belfry.yaml")
			require.NoError(t, os.WriteFile(path, []byte(block), 0o600))
			r := command(t, nil, "config", "check", "--config", path)
			if r.code != codeDone {
				require.Regexp(t, `^belfry: configuration: \S+: \S+_file: (stat |open )?/etc/belfry/\S+: no such file or directory\n$`, r.stderr, name)
			}
			found++
		}
	}
	require.Greater(t, found, 10)
}

// What make builds has no debugging information, which is a third of the file, and make run prints
// the console's link without the lines for programs.
func TestDocs_MakeBuildsASmallBinaryAndPrintsALink(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "make", "-n", "-C", tree, "build", "run", "MAKEFLAGS=")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Regexp(t, `-trimpath -gcflags=all=-dwarf=false .* -ldflags '-s -w `, string(out))
	require.Regexp(t, `(?m)^echo "console: http://\S+/sign-in#link=\$\(bin/belfry users link make-run 2>/dev/null\)"$`, string(out))
}

// tutorialBlock is a block of commands of docs/tutorial.md, with the output that the page shows after it.
var tutorialBlock = regexp.MustCompile("(?s)\n```sh\n(.*?)\n```\n(?:\n```text\n(.*?)\n```\n)?")

// tutorial executes the commands of docs/tutorial.md in the order of the page, from a block on, in one shell with nothing but an
// empty server. Each block prints what the page shows after it, except numbers and times. In the end each person has one mail.
func tutorial(t *testing.T, from int, environ ...string) {
	t.Helper()
	for _, program := range []string{"psql", "createdb", "git", "bash"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("there is no " + program)
		}
	}
	db := dbtest.NewEmpty(t)
	c := db.Pool.Config().ConnConfig
	shop := strings.Join(strings.SplitN(db.Name, "_", 5)[:4], "_") + "_shop" // PostgreSQL cuts long names
	t.Cleanup(func() {
		_, err := db.Pool.Exec(context.WithoutCancel(t.Context()), "DROP DATABASE IF EXISTS "+shop+" WITH (FORCE)")
		require.NoError(t, err)
	})
	found := tutorialBlock.FindAllStringSubmatch(pages(t)["docs/tutorial.md"], -1)
	require.Len(t, found, strings.Count(pages(t)["docs/tutorial.md"], "```sh"))
	const mark = "--- the output of a block ends here ---"
	script := "set -eu\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n"
	for _, block := range found[from:] {
		commands := strings.NewReplacer(" shop", " "+shop, "///shop", "///"+shop, "belfry fake ", "belfry fake --listen 127.0.0.1:0 ").Replace(block[1])
		script += commands + "\necho '" + mark + "'\n"
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*patience)
	defer cancel()
	shell := exec.CommandContext(ctx, "bash", "-c", script)
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	shell.Cancel = func() error { return syscall.Kill(-shell.Process.Pid, syscall.SIGKILL) } // with the processes that it started
	shell.Dir = t.TempDir()
	shell.Env = append(os.Environ(), append([]string{
		"PGHOST=" + c.Host, "PGPORT=" + strconv.Itoa(int(c.Port)), "PGUSER=" + c.User, "PGPASSWORD=" + c.Password, "PGSSLMODE=disable",
		"BELFRY_API_LISTEN=127.0.0.1:0", "USER=ann", "TZ=UTC", "GORACE=" + quickExit,
	}, environ...)...)
	out, err := shell.CombinedOutput()
	require.NoError(t, err, "%s", out)
	printed := strings.Split(string(out), mark+"\n")
	for i, block := range found[from:] {
		if strings.Contains(block[1], "git clone") {
			continue // prints what git and make print
		}
		require.Equal(t, alike(block[2]), alike(printed[i]), "after %s:\n%s", block[1], out)
	}
	require.Regexp(t, `\nsmtp +1,999 +1,999 +1,999 +0 `, printed[len(found[from:])-1])
}

var (
	number = regexp.MustCompile(`[0-9][0-9,.:]*`)
	moving = regexp.MustCompile(`(?m)^job \d+ \(push\): DELIVERING .*\n`) // as often as time allows
	blank  = regexp.MustCompile(`(?m)[ -]{2,}|[ \t]+$`)
)

// alike is a text without what differs from run to run: numbers, times, the widths of columns, and a job's progress.
func alike(text string) string {
	return strings.TrimSpace(blank.ReplaceAllString(number.ReplaceAllString(moving.ReplaceAllString(plain(text), ""), "0"), "  "))
}

// The commands of the tutorial run and print what it shows.
func TestDocs_TheTutorialRuns(t *testing.T) {
	t.Parallel()
	tutorial(t, 1, "PATH="+filepath.Dir(binary(t))+string(filepath.ListSeparator)+os.Getenv("PATH"), mainVariable+"=1")
}

// The tutorial from its first command: belfry is cloned and built.
func TestLong_TheTutorialInstallsBelfry(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs(tree)
	require.NoError(t, err)
	if exec.CommandContext(t.Context(), "git", "-C", root, "rev-parse", "HEAD").Run() != nil {
		t.Skip("there is no clone to clone")
	}
	tutorial(t, 0, "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url."+root+".insteadOf", "GIT_CONFIG_VALUE_0=https://github.com/belfryhq/belfry", "MAKEFLAGS=")
}
