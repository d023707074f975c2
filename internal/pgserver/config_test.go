package pgserver

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever the caller adds, the server is where the package looks for it.
func TestConfig_SettingsOverrideDefaults(t *testing.T) {
	t.Parallel()
	s := Config{Durable: true, Settings: map[string]string{"max_wal_size": "1GB"}}.settings()
	require.Equal(t, "1GB", s["max_wal_size"])
	require.Equal(t, "on", s["fsync"])
	require.Equal(t, "off", Config{}.settings()["fsync"])
	require.Equal(t, "200", Config{}.settings()["max_connections"])
}

// A stock server differs from PostgreSQL's defaults in nothing that decides a plan or a
// speed; neither does one that keeps nothing. Only the users' own server is tuned.
func TestConfig_StockIsNotTuned(t *testing.T) {
	t.Parallel()
	require.Equal(t, "off", Config{Durable: true}.settings()["jit"])
	stock := Config{Durable: true, Stock: true}.settings()
	require.Equal(t, "on", stock["fsync"])
	for name := range tunedSettings() {
		require.NotContains(t, stock, name)
	}
	for _, s := range []map[string]string{stock, Config{}.settings(), Config{Stock: true}.settings()} {
		for name := range s {
			require.NotRegexp(t, "^(jit|enable|cpu|random|seq|effective|work_mem|plan|geqo|default_statistics)", name)
		}
	}
}

func TestDefaultDataDir_FollowsTheEnvironment(t *testing.T) {
	reachable := filepath.Dir(newDir(t, person{}))
	t.Setenv("XDG_DATA_HOME", reachable)
	dir, err := DefaultDataDir()
	require.NoError(t, err)
	require.Equal(t, filepath.Join(reachable, "belfry"), dir)

	t.Setenv("XDG_DATA_HOME", "not/absolute")
	_, err = DefaultDataDir()
	require.ErrorContains(t, err, `XDG_DATA_HOME: "not/absolute" is not an absolute path`)

	t.Setenv("XDG_DATA_HOME", "")
	t.Setenv("HOME", reachable)
	dir, err = DefaultDataDir()
	require.NoError(t, err)
	switch {
	case os.Geteuid() == 0:
		require.Equal(t, systemDataDir, dir)
	case runtime.GOOS == "darwin":
		require.Equal(t, filepath.Join(reachable, "Library", "Application Support", "belfry"), dir)
	default:
		require.Equal(t, filepath.Join(reachable, ".local", "share", "belfry"), dir)
	}
}

func TestDefaultDataDir_OfRootIsReachable(t *testing.T) {
	needRoot(t)
	closed := newDir(t, person{})
	require.NoError(t, os.Mkdir(closed, 0o700))
	t.Setenv("XDG_DATA_HOME", closed)
	dir, err := DefaultDataDir()
	require.NoError(t, err)
	require.Equal(t, systemDataDir, filepath.Dir(dir))
	other, err := ReachableDir(filepath.Join(closed, "other"))
	require.NoError(t, err)
	require.NotEqual(t, dir, other, "each place has a stand-in of its own")
}

func TestAccount_CanEnter(t *testing.T) {
	t.Parallel()
	base := filepath.Dir(newDir(t, person{}))
	require.NoError(t, os.Chmod(base, 0o755))
	dir := filepath.Join(base, "d")
	require.NoError(t, os.Mkdir(dir, 0o755))
	owner, err := ownerOf(dir)
	require.NoError(t, err)
	deep := filepath.Join(dir, "not", "there", "yet")
	for _, c := range []struct {
		name string
		acct *account
		mode os.FileMode
		want bool
	}{
		{"nil is the user itself", nil, 0o000, true},
		{"others may pass", &account{UID: 4242, GID: 4242}, 0o701, true},
		{"others may not", &account{UID: 4242, GID: 4242}, 0o770, false},
		{"group may pass", &account{UID: 4242, GID: owner.GID}, 0o710, true},
		{"group may not, others may", &account{UID: 4242, GID: owner.GID}, 0o701, false},
		{"owner", &account{UID: owner.UID, GID: 4242}, 0o700, true},
	} {
		require.NoError(t, os.Chmod(dir, c.mode))
		require.Equal(t, c.want, c.acct.canEnter(dir), c.name)
		if c.mode&0o100 != 0 || os.Geteuid() == 0 {
			require.Equal(t, c.want, c.acct.canEnter(deep), "%s, below", c.name)
		}
	}
	link := filepath.Join(base, "link")
	require.NoError(t, os.Symlink(dir, link))
	require.NoError(t, os.Chmod(dir, 0o700))
	require.False(t, (&account{UID: 4242, GID: 4242}).canEnter(link))
}

func TestPostmaster_Parse(t *testing.T) {
	t.Parallel()
	full := "123\n/data\n1763640000\n5432\n/sock dir\n\n  5432001         3\nready   \n"
	require.Equal(t, postmaster{123, endpoint{"/sock dir", 5432}}, parsePostmaster(full))
	for _, partial := range []string{"", "\n", "x\n", "-5\n", "0\n"} {
		require.Zero(t, parsePostmaster(partial), "%q", partial)
	}
	require.Equal(t, postmaster{pid: 77}, parsePostmaster("77"))
}
