package pgserver

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestConfig_SettingsOverrideDefaults(t *testing.T) {
	t.Parallel()
	s := Config{Settings: map[string]string{"max_wal_size": "1GB"}}.settings()
	require.Equal(t, "1GB", s["max_wal_size"])
	require.Equal(t, "256MB", s["shared_buffers"])
}

// A stock server has PostgreSQL's defaults in all settings that affect plans or speed.
func TestConfig_StockIsNotTuned(t *testing.T) {
	t.Parallel()
	require.Equal(t, "off", Config{}.settings()["jit"])
	stock := Config{Stock: true}.settings()
	for name := range tunedSettings() {
		require.NotContains(t, stock, name)
	}
	for name := range stock {
		require.NotRegexp(t, "^(jit|enable|cpu|random|seq|effective|work_mem|plan|geqo|default_statistics)", name)
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
	require.True(t, (*account)(nil).canEnter("/nowhere"), "the current user")
	needRoot(t)
	dir := filepath.Join(filepath.Dir(newDir(t, person{})), "d")
	require.NoError(t, os.Mkdir(dir, 0o755))
	owner, err := ownerOf(dir)
	require.NoError(t, err)
	link := dir + "link"
	require.NoError(t, os.Symlink(dir, link))
	for _, c := range []struct {
		name string
		acct account
		mode os.FileMode
		want bool
	}{
		{"others may pass", account{UID: 4242, GID: 4242}, 0o701, true},
		{"others may not", account{UID: 4242, GID: 4242}, 0o770, false},
		{"group may pass", account{UID: 4242, GID: owner.GID}, 0o710, true},
		{"group may not, others may", account{UID: 4242, GID: owner.GID}, 0o701, false},
	} {
		require.NoError(t, os.Chmod(dir, c.mode))
		for _, path := range []string{dir, filepath.Join(dir, "not", "there", "yet"), link} {
			require.Equal(t, c.want, c.acct.canEnter(path), "%s: %s", c.name, path)
		}
	}
}

func TestPID_OfNoServer(t *testing.T) {
	t.Parallel()
	c := &cluster{Home: newDir(t, person{})}
	require.NoError(t, os.MkdirAll(c.DataDir(), 0o755))
	for _, text := range []string{"", "\n", "x\n", "-5\n", "0\n", itoa(os.Getpid()) + "\n/data\n"} {
		require.NoError(t, os.WriteFile(c.pidFile(), []byte(text), 0o600))
		require.Zero(t, c.PID(), "%q", text)
	}
}
