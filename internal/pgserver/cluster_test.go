package pgserver

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// install makes a search that finds the given versions.
func installed(t *testing.T, versions ...string) search {
	t.Helper()
	root := newDir(t, person{})
	for _, v := range versions {
		fakeInstall(t, filepath.Join(root, v), "postgres (PostgreSQL) "+v, "")
	}
	return search{globs: []string{filepath.Join(root, "*")}}
}

// made fakes a cluster of a major version.
func made(t *testing.T, dataDir, major string) {
	t.Helper()
	dir := filepath.Join(dataDir, "pg"+major, "data")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "PG_VERSION"), []byte(major+"\n"), 0o600))
	if os.Geteuid() == 0 {
		require.NoError(t, nobody(t).give(dir))
	}
}

func TestLocate_ClusterGoesBeforeNewerPostgreSQL(t *testing.T) {
	t.Parallel()
	dir := newDir(t, person{})
	places := installed(t, "15.1", "17.2")

	c, err := locate(testContext(t), Config{DataDir: dir, Durable: true}, places)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "pg17", "data"), c.data)

	made(t, dir, "15")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "pg17"), 0o755)) // no cluster in it
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "pgsomething", "data"), 0o755))
	c, err = locate(testContext(t), Config{DataDir: dir, Durable: true}, places)
	require.NoError(t, err)
	require.Equal(t, 15, c.install.Major)

	made(t, dir, "17")
	c, err = locate(testContext(t), Config{DataDir: dir, Durable: true}, places)
	require.NoError(t, err)
	require.Equal(t, 17, c.install.Major)
}

func TestLocate_ClusterWithoutItsPostgreSQL(t *testing.T) {
	t.Parallel()
	dir := newDir(t, person{})
	made(t, dir, "15")
	made(t, dir, "16")
	places := installed(t, "17.2")
	_, err := locate(testContext(t), Config{DataDir: dir, Durable: true}, places)
	var mismatch *MismatchError
	require.ErrorAs(t, err, &mismatch)
	golden(t, "mismatch.txt", strings.ReplaceAll(err.Error(), dir, "DIR"))

	// Tests need no data of old, and whoever names a version gets it.
	c, err := locate(testContext(t), Config{DataDir: dir}, places)
	require.NoError(t, err)
	require.Equal(t, 17, c.install.Major)
	c, err = locate(testContext(t), Config{DataDir: dir, Durable: true, Install: &Install{Major: 18}}, places)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "pg18", "data"), c.data)
}

func TestLocate_UnreachableDirectory(t *testing.T) {
	t.Parallel()
	needRoot(t)
	dir := newDir(t, person{})
	require.NoError(t, os.Mkdir(dir, 0o700))
	_, err := locate(testContext(t), Config{DataDir: filepath.Join(dir, "below")}, localSearch())
	require.ErrorContains(t, err, "cannot enter "+filepath.Join(dir, "below"))
}

// A new one is marked as its Config says: see TestOpen_ColdThenWarmKeepsData as well.
func TestVolatile_IsNeverMistakenForKeptData(t *testing.T) {
	t.Parallel()
	_, err := Open(testContext(t), Config{DataDir: keptDir(t)})
	require.ErrorContains(t, err, "keeps data, and was asked to run without fsync")
	_, err = Open(testContext(t), Config{DataDir: madeDir(t, person{}), Durable: true})
	require.ErrorContains(t, err, "was made for tests")
}

func TestFault_VolatileClusterIsMadeAnewAfterARestartOfTheMachine(t *testing.T) {
	t.Parallel()
	if bootID() == "" {
		t.Skip("needs a system that tells its restarts apart")
	}
	ctx := testContext(t)
	cfg := Config{DataDir: madeDir(t, person{})}
	s := openServer(t, cfg)
	require.NoError(t, s.EnsureDatabase(ctx, "before"))
	require.NoError(t, s.Close(ctx))

	s = openServer(t, cfg)
	require.True(t, hasDatabase(t, s, "before"), "the same boot")
	require.NoError(t, s.Close(ctx))

	marker := filepath.Join(s.cluster.home, volatileMarker)
	require.NoError(t, os.WriteFile(marker, []byte("another boot\n"), 0o600))
	s = openServer(t, cfg)
	require.False(t, hasDatabase(t, s, "before"))
	require.NoError(t, s.Close(ctx))
	text, err := os.ReadFile(marker)
	require.NoError(t, err)
	require.Equal(t, bootID()+"\n", string(text))
}

func hasDatabase(t *testing.T, s *Server, name string) bool {
	t.Helper()
	var found bool
	require.NoError(t, connectTo(t, s.DSN("postgres")).QueryRow(testContext(t),
		"SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name).Scan(&found))
	return found
}

func TestLog_LargeOneIsMovedAside(t *testing.T) {
	t.Parallel()
	c := &cluster{home: newDir(t, person{})}
	require.NoError(t, os.Mkdir(c.home, 0o755))
	require.NoError(t, os.WriteFile(c.logPath(), []byte("old\n"), 0o600))
	require.NoError(t, os.Truncate(c.logPath(), maxLogSize+1))
	f, at, err := c.openLog()
	require.NoError(t, err)
	require.Zero(t, at)
	require.NoError(t, f.Close())
	info, err := os.Stat(c.logPath() + ".1")
	require.NoError(t, err)
	require.EqualValues(t, maxLogSize+1, info.Size())
}

func TestLog_TailIsOfThisStart(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	require.NoError(t, os.WriteFile(path, []byte("before\nduring\nafter\n"), 0o600))
	require.Equal(t, "during\nafter", logTail(path, 7))
	long := strings.Repeat("line\n", 10_000)
	require.NoError(t, os.WriteFile(path, []byte(long), 0o600))
	require.Equal(t, tailLines, strings.Count(logTail(path, 0), "line"))
	require.Contains(t, logTail(path+"-none", 0), "no such file")
}
