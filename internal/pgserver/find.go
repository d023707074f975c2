package pgserver

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/child"
)

// MinMajor is the oldest major version of PostgreSQL that belfry runs on.
const MinMajor = 15

// versionTimeout bounds one run of "postgres -V".
const versionTimeout = 10 * time.Second

// ErrNotInstalled means that this machine has no usable PostgreSQL server. Errors that wrap it list the
// unusable installations and the remedies.
var ErrNotInstalled = fmt.Errorf("no PostgreSQL server (version %d or later) found on this machine", MinMajor)

const remedies = `
there are three ways out:
  1. use a database you already have:
       BELFRY_DATABASE_URL=postgres://user:password@host:5432/dbname
  2. install the server (it need not be set up or started):
       Debian, Ubuntu   apt-get install postgresql
       Fedora, RHEL     dnf install postgresql-server
       Alpine           apk add postgresql
       macOS            brew install postgresql@17
  3. if it is installed in an unusual place, put the directory of initdb on PATH`

// Install is a PostgreSQL installation with the server programs.
type Install struct {
	BinDir  string // directory of initdb and postgres, without symbolic links
	Major   int    // 15 for 15.4
	Version string // such as "15.4" or "18beta1"
}

func (in Install) initdb() string   { return filepath.Join(in.BinDir, "initdb") }
func (in Install) postgres() string { return filepath.Join(in.BinDir, "postgres") }

// Find returns the newest local PostgreSQL of version MinMajor or later. It searches PATH and the directories
// used by common packages. For root, it skips installations that the
// server's account cannot read. If it finds none, the error wraps ErrNotInstalled.
func Find(ctx context.Context) (Install, error) {
	acct, err := serverAccount()
	if err != nil {
		return Install{}, err
	}
	installs, err := localDirs().all(ctx, acct)
	if err != nil {
		return Install{}, err
	}
	return installs[0], nil
}

// dirs are patterns of directories that may contain the server programs.
type dirs []string

// localDirs returns PATH and the directories in which packages install initdb without adding it to PATH.
// It skips relative directories of PATH: they would run programs of the current directory.
func localDirs() dirs {
	path := slices.DeleteFunc(filepath.SplitList(os.Getenv("PATH")), func(dir string) bool { return !filepath.IsAbs(dir) })
	return append(path,
		"/usr/lib/postgresql/*/bin",                          // Debian, Ubuntu
		"/usr/pgsql-*/bin",                                   // RHEL, Fedora: the PostgreSQL project's packages
		"/usr/lib*/postgresql*/bin",                          // SUSE, Gentoo
		"/usr/libexec/postgresql*",                           // Alpine
		"/usr/libexec/postgresql*/bin",                       // Alpine, older
		"/opt/homebrew/opt/postgresql*/bin",                  // Homebrew on Apple silicon
		"/usr/local/opt/postgresql*/bin",                     // Homebrew on Intel
		"/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",     // Homebrew on Linux
		"/opt/local/lib/postgresql*/bin",                     // MacPorts
		"/Applications/Postgres.app/Contents/Versions/*/bin", // Postgres.app
		"/Library/PostgreSQL/*/bin",                          // EDB installer
		"/usr/local/pgsql/bin",                               // built from source
	)
}

// all returns the usable installations, newest first. If there are none, the error wraps ErrNotInstalled.
func (d dirs) all(ctx context.Context, acct *account) ([]Install, error) {
	var usable []Install
	var unusable []string
	for _, pattern := range d {
		found, _ := filepath.Glob(pattern) // fails only for a malformed pattern
		for _, dir := range found {
			binDir, err := resolve(dir)
			if err != nil {
				continue
			}
			in, err := inspect(ctx, binDir)
			switch {
			case ctx.Err() != nil:
				return nil, fmt.Errorf("find PostgreSQL: %w", context.Cause(ctx))
			case err != nil: // a broken installation is no installation
			case in.Major < MinMajor:
				unusable = append(unusable, fmt.Sprintf("\n  found PostgreSQL %s in %s: too old", in.Version, binDir))
			case !acct.canEnter(binDir):
				unusable = append(unusable, fmt.Sprintf("\n  found PostgreSQL %s in %s: account %s, which runs the server for root, "+
					"cannot enter that directory", in.Version, binDir, acct.Name))
			default:
				usable = append(usable, in)
			}
		}
	}
	if len(usable) == 0 {
		slices.Sort(unusable)
		return nil, fmt.Errorf("%w%s%s", ErrNotInstalled, strings.Join(slices.Compact(unusable), ""), remedies)
	}
	slices.SortStableFunc(usable, func(a, b Install) int { return cmp.Compare(b.Major, a.Major) })
	return usable, nil
}

// resolve returns the directory of dir's initdb. On PATH, initdb may be a symbolic link into the directory of
// the programs.
func resolve(dir string) (string, error) {
	initdb, err := filepath.EvalSymlinks(filepath.Join(dir, "initdb"))
	if err != nil {
		return "", fmt.Errorf("find initdb in %s: %w", dir, err)
	}
	return filepath.Dir(initdb), nil
}

var versionPattern = regexp.MustCompile(`\(PostgreSQL\) ((\d+)\S*)`)

// inspect reads the version from "postgres -V", such as "postgres (PostgreSQL) 15.4 (Debian 15.4-1)".
func inspect(ctx context.Context, binDir string) (Install, error) {
	in := Install{BinDir: binDir}
	out, err := output(ctx, in.postgres(), "-V")
	m := versionPattern.FindStringSubmatch(out)
	if err == nil && m == nil {
		err = fmt.Errorf("unexpected output %q", strings.TrimSpace(out))
	}
	if err == nil {
		in.Version = m[1]
		in.Major, err = strconv.Atoi(m[2])
	}
	if err != nil {
		return Install{}, fmt.Errorf("read the version of %s: %w", in.postgres(), err)
	}
	return in, nil
}

// output runs a short program and returns its standard output.
func output(ctx context.Context, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.WaitDelay = versionTimeout // a child that inherited the pipe must not block Output
	cmd.Env = child.Env(os.Environ())
	out, err := cmd.Output()
	return string(out), err
}
