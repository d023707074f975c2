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
		person{account: nobody(t)}.give(t, dir)
	}
}

func TestLocate_ClusterGoesBeforeNewerPostgreSQL(t *testing.T) {
	t.Parallel()
	dir := newDir(t, person{})
	places := installed(t, "15.1", "17.2")

	c, err := locate(testContext(t), Config{DataDir: dir, Durable: true}, places)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "pg17", "data"), c.data())

	made(t, dir, "15")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "pg17"), 0o755)) // no cluster in it
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "pgsomething", "data"), 0o755))
	c, err = locate(testContext(t), Config{DataDir: dir, Durable: true}, places)
	require.NoError(t, err)
	require.Equal(t, 15, c.Install.Major)

	made(t, dir, "17")
	c, err = locate(testContext(t), Config{DataDir: dir, Durable: true}, places)
	require.NoError(t, err)
	require.Equal(t, 17, c.Install.Major)
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
	require.Equal(t, 17, c.Install.Major)
	c, err = locate(testContext(t), Config{DataDir: dir, Durable: true, Install: &Install{Major: 18}}, places)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "pg18", "data"), c.data())
}

func TestLocate_UnreachableDirectory(t *testing.T) {
	t.Parallel()
	needRoot(t)
	dir := newDir(t, person{})
	require.NoError(t, os.Mkdir(dir, 0o700))
	_, err := locate(testContext(t), Config{DataDir: filepath.Join(dir, "below")}, localSearch())
	require.ErrorContains(t, err, "cannot enter "+filepath.Join(dir, "below"))
}

// Tests never get at what somebody keeps, in whatever directory, and the other way round.
func TestVolatile_IsNeverMistakenForKeptData(t *testing.T) {
	t.Parallel()
	dir := newDir(t, person{})
	kept, err := locate(testContext(t), Config{DataDir: dir, Durable: true}, localSearch())
	require.NoError(t, err)
	volatile, err := locate(testContext(t), Config{DataDir: dir}, localSearch())
	require.NoError(t, err)
	require.NotEqual(t, kept.Home, volatile.Home)
	require.Equal(t, kept.Install, volatile.Install)
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

	old := strings.ReplaceAll(s.cluster.Home, shortHash(bootID()), "another")
	require.NotEqual(t, s.cluster.Home, old)
	require.NoError(t, os.Rename(s.cluster.Home, old))
	kept := filepath.Join(cfg.DataDir, "pg15")
	require.NoError(t, os.MkdirAll(kept, 0o755))
	s = openServer(t, cfg)
	require.False(t, hasDatabase(t, s, "before"))
	require.NoDirExists(t, old)
	require.DirExists(t, kept)
	require.NoError(t, s.Close(ctx))
}

func hasDatabase(t *testing.T, s *Server, name string) bool {
	t.Helper()
	var found bool
	require.NoError(t, connectTo(t, s.DSN("postgres")).QueryRow(testContext(t),
		"SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name).Scan(&found))
	return found
}

func TestLong_LogThatIsLargeIsMovedAside(t *testing.T) {
	t.Parallel()
	cfg := Config{DataDir: madeDir(t, person{})}
	c, err := locate(testContext(t), cfg, localSearch())
	require.NoError(t, err)
	require.NoError(t, os.Truncate(c.logFile(), maxLogSize+1))
	s := openServer(t, cfg)
	info, err := os.Stat(s.LogFile() + ".1")
	require.NoError(t, err)
	require.EqualValues(t, maxLogSize+1, info.Size())
	info, err = os.Stat(s.LogFile())
	require.NoError(t, err)
	require.Less(t, info.Size(), int64(maxLogSize))
}
