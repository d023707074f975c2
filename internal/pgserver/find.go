package pgserver

import (
	"cmp"
	"context"
	"errors"
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

// versionTimeout bounds one run of "postgres -V" or "pg_config --bindir".
const versionTimeout = 10 * time.Second

// ErrNotInstalled reports that no usable PostgreSQL server was found on this
// machine. The error that Find returns is a *NotInstalledError, whose text says
// what can be done.
var ErrNotInstalled = errors.New("no PostgreSQL server found")

// Install is a PostgreSQL installation that has the server programs.
type Install struct {
	BinDir  string // directory of initdb and postgres, symbolic links resolved
	Major   int    // 15 for 15.4
	Version string // as postgres reports it: "15.4", "18beta1"
}

// initdb and postgres are the two programs this package runs.
func (in Install) initdb() string   { return filepath.Join(in.BinDir, "initdb") }
func (in Install) postgres() string { return filepath.Join(in.BinDir, "postgres") }

// NotInstalledError is ErrNotInstalled with what was found but cannot be used.
type NotInstalledError struct {
	TooOld      []Install // older than MinMajor
	Unreachable []Install // not accessible to the account that would run the server
	Account     string    // that account; empty unless Unreachable has entries
}

// Error says what is missing, what was found instead, and the three ways out.
func (e *NotInstalledError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "no PostgreSQL server (version %d or later) found on this machine", MinMajor)
	for _, in := range e.TooOld {
		fmt.Fprintf(&b, "\n  found PostgreSQL %s in %s: too old", in.Version, in.BinDir)
	}
	for _, in := range e.Unreachable {
		fmt.Fprintf(&b, "\n  found PostgreSQL %s in %s: account %s, which runs the server for root, cannot enter that directory",
			in.Version, in.BinDir, e.Account)
	}
	b.WriteString(`
there are three ways out:
  1. use a database you already have:
       BELFRY_DATABASE_URL=postgres://user:password@host:5432/dbname
  2. install the server (it need not be set up or started):
       Debian, Ubuntu   apt-get install postgresql
       Fedora, RHEL     dnf install postgresql-server
       Alpine           apk add postgresql
       macOS            brew install postgresql@17
  3. if it is installed in an unusual place, put the directory of initdb on PATH`)
	return b.String()
}

// Is makes errors.Is(err, ErrNotInstalled) hold.
func (e *NotInstalledError) Is(target error) bool { return target == ErrNotInstalled }

// Find returns the newest local PostgreSQL of version MinMajor or later,
// looking at PATH, pg_config and the usual places of Debian, RHEL, SUSE, Alpine,
// Homebrew, MacPorts, Postgres.app and the EDB installer. A released version is
// preferred to a beta. For root, installations that the server's account cannot
// reach do not count. The error is a *NotInstalledError when there is none.
func Find(ctx context.Context) (Install, error) {
	acct, err := serverAccount()
	if err != nil {
		return Install{}, err
	}
	installs, err := localSearch().all(ctx, acct)
	if err != nil {
		return Install{}, err
	}
	return installs[0], nil
}

// InstallAt returns the installation whose programs are in binDir. It is for a
// caller who wants a certain version rather than the newest.
func InstallAt(ctx context.Context, binDir string) (Install, error) {
	binDir, err := resolve(binDir)
	if err != nil {
		return Install{}, err
	}
	in, err := inspect(ctx, binDir)
	if err != nil {
		return Install{}, err
	}
	if in.Major < MinMajor {
		return Install{}, &NotInstalledError{TooOld: []Install{in}}
	}
	return in, nil
}

// search is where to look; tests replace it.
type search struct {
	path  string   // a PATH
	globs []string // patterns of directories with server programs
}

func localSearch() search {
	return search{path: os.Getenv("PATH"), globs: usualPlaces()}
}

// usualPlaces lists the directories in which packages put initdb without
// putting it on PATH.
func usualPlaces() []string {
	return []string{
		"/usr/lib/postgresql/*/bin",                          // Debian, Ubuntu
		"/usr/pgsql-*/bin",                                   // RHEL, Fedora: the PostgreSQL project's packages
		"/usr/lib/postgresql*/bin",                           // SUSE
		"/usr/lib64/postgresql*/bin",                         // Gentoo
		"/usr/libexec/postgresql*",                           // Alpine
		"/usr/libexec/postgresql*/bin",                       // Alpine, older
		"/opt/homebrew/opt/postgresql*/bin",                  // Homebrew on Apple silicon
		"/usr/local/opt/postgresql*/bin",                     // Homebrew on Intel
		"/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",     // Homebrew on Linux
		"/opt/local/lib/postgresql*/bin",                     // MacPorts
		"/Applications/Postgres.app/Contents/Versions/*/bin", // Postgres.app
		"/Library/PostgreSQL/*/bin",                          // EDB installer
		"/usr/local/pgsql/bin",                               // built from source
	}
}

// all returns every usable installation, best first; at least one, or an error.
func (s search) all(ctx context.Context, acct *account) ([]Install, error) {
	var usable []Install
	missing := &NotInstalledError{}
	seen := map[string]bool{}
	for _, dir := range s.dirs(ctx) {
		binDir, err := resolve(dir)
		if err != nil || seen[binDir] {
			continue
		}
		seen[binDir] = true
		in, err := inspect(ctx, binDir)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("find PostgreSQL: %w", context.Cause(ctx))
		}
		if err != nil {
			continue // nothing that runs is to the caller the same as nothing
		}
		switch {
		case in.Major < MinMajor:
			missing.TooOld = append(missing.TooOld, in)
		case !acct.canEnter(in.BinDir):
			missing.Unreachable = append(missing.Unreachable, in)
			missing.Account = acct.Name
		default:
			usable = append(usable, in)
		}
	}
	if len(usable) == 0 {
		return nil, missing
	}
	slices.SortStableFunc(usable, func(a, b Install) int { return cmp.Compare(b.rank(), a.rank()) })
	return usable, nil
}

// dirs lists the candidate directories, without regard to whether they exist.
func (s search) dirs(ctx context.Context) []string {
	var dirs []string
	for _, dir := range filepath.SplitList(s.path) {
		if !filepath.IsAbs(dir) {
			continue // never run a program that the current directory offers
		}
		dirs = append(dirs, dir)
		if bin := askPgConfig(ctx, filepath.Join(dir, "pg_config")); bin != "" {
			dirs = append(dirs, bin)
		}
	}
	for _, pattern := range s.globs {
		// The only error of Glob is a malformed pattern; these are constants.
		found, _ := filepath.Glob(pattern)
		dirs = append(dirs, found...)
	}
	return dirs
}

// askPgConfig returns the directory that a pg_config names, or "".
func askPgConfig(ctx context.Context, program string) string {
	if _, err := os.Stat(program); err != nil {
		return ""
	}
	out, err := output(ctx, program, "--bindir")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(out)
}

// resolve returns the directory of the initdb that dir has. On PATH it may be a
// symbolic link into the real directory of the programs.
func resolve(dir string) (string, error) {
	initdb, err := filepath.EvalSymlinks(filepath.Join(dir, "initdb"))
	if err != nil {
		return "", fmt.Errorf("look for initdb in %s: %w", dir, err)
	}
	return filepath.Dir(initdb), nil
}

var versionPattern = regexp.MustCompile(`\(PostgreSQL\) ((\d+)\S*)`)

// inspect asks the programs in a directory for their version, which they tell as
// "postgres (PostgreSQL) 15.4 (Debian 15.4-1)".
func inspect(ctx context.Context, binDir string) (Install, error) {
	in := Install{BinDir: binDir}
	out, err := output(ctx, in.postgres(), "-V")
	m := versionPattern.FindStringSubmatch(out)
	switch {
	case err != nil:
	case m == nil:
		err = fmt.Errorf("unexpected answer %q", strings.TrimSpace(out))
	default:
		in.Version = m[1]
		in.Major, err = strconv.Atoi(m[2])
	}
	if err != nil {
		return Install{}, fmt.Errorf("ask %s for its version: %w", in.postgres(), err)
	}
	return in, nil
}

// rank orders versions, and every "18beta1", "18rc1" and "19devel" before all releases.
func (in Install) rank() int {
	var major, minor int
	_, _ = fmt.Sscanf(in.Version, "%d.%d", &major, &minor) // there may be no minor version
	rank := 1000*major + minor
	if strings.Trim(in.Version, "0123456789.") != "" {
		rank -= 1_000_000
	}
	return rank
}

// output runs a program that only reports about itself.
func output(ctx context.Context, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.WaitDelay = versionTimeout // of one that ended in time, what it said counts
	cmd.Env = child.Env(os.Environ())
	out, err := cmd.Output()
	return string(out), err
}
