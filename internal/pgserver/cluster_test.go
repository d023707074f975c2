package pgserver

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// install makes a search that finds the given versions.
func installed(t *testing.T, versions ...string) dirs {
	t.Helper()
	root := newDir(t, person{})
	for _, v := range versions {
		fakeInstall(t, filepath.Join(root, v), "postgres (PostgreSQL) "+v, "")
	}
	return dirs{filepath.Join(root, "*")}
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

	c, err := locate(testContext(t), Config{DataDir: dir}, places)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "pg17", "data"), c.DataDir())

	made(t, dir, "15")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "pg17"), 0o755)) // no cluster in it
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "pgsomething", "data"), 0o755))
	c, err = locate(testContext(t), Config{DataDir: dir}, places)
	require.NoError(t, err)
	require.Equal(t, 15, c.Install.Major)

	made(t, dir, "17")
	c, err = locate(testContext(t), Config{DataDir: dir}, places)
	require.NoError(t, err)
	require.Equal(t, 17, c.Install.Major)
}

func TestLocate_ClusterWithoutItsPostgreSQL(t *testing.T) {
	t.Parallel()
	dir := newDir(t, person{})
	made(t, dir, "15")
	made(t, dir, "16")
	places := installed(t, "17.2")
	_, err := locate(testContext(t), Config{DataDir: dir}, places)
	require.Error(t, err)
	golden(t, "mismatch.txt", strings.ReplaceAll(err.Error(), dir, "DIR"))

	// Tests need no old data, and a chosen version has priority.
	c, err := locate(testContext(t), Config{DataDir: dir, Volatile: true}, places)
	require.NoError(t, err)
	require.Equal(t, 17, c.Install.Major)
	c, err = locate(testContext(t), Config{DataDir: dir, BinDir: filepath.Join(filepath.Dir(places[0]), "17.2")}, nil)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "pg17", "data"), c.DataDir())
}

func TestLocate_UnreachableDirectory(t *testing.T) {
	t.Parallel()
	needRoot(t)
	dir := newDir(t, person{})
	require.NoError(t, os.Mkdir(dir, 0o700))
	_, err := locate(testContext(t), Config{DataDir: filepath.Join(dir, "below")}, localDirs())
	require.ErrorContains(t, err, "cannot enter "+filepath.Join(dir, "below"))
}

// Tests never use the user's cluster, and vice versa.
func TestVolatile_IsSeparateFromDurableData(t *testing.T) {
	t.Parallel()
	dir := newDir(t, person{})
	durable, err := locate(testContext(t), Config{DataDir: dir}, localDirs())
	require.NoError(t, err)
	volatile, err := locate(testContext(t), Config{DataDir: dir, Volatile: true}, localDirs())
	require.NoError(t, err)
	require.NotEqual(t, durable.Home, volatile.Home)
	require.Equal(t, durable.Install, volatile.Install)
}

func TestFault_VolatileClusterIsCreatedAnewAfterACrash(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	cfg := Config{DataDir: newDir(t, person{}), Volatile: true, Settings: map[string]string{"fsync": "off"}}
	s := openServer(t, cfg)
	require.NoError(t, s.EnsureDatabase(ctx, "before"))
	require.NoError(t, s.Stop(ctx, Immediate))
	require.NoError(t, s.Start(ctx))
	require.True(t, hasDatabase(t, s, "before"), "stopped by a test")
	require.NoError(t, s.Close(ctx))

	s = openServer(t, cfg)
	require.True(t, hasDatabase(t, s, "before"), "shut down")
	pid := s.PID()
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	awaitGone(t, pid)
	require.NoError(t, s.Close(ctx))

	s = openServer(t, cfg)
	require.False(t, hasDatabase(t, s, "before"))
}

func hasDatabase(t *testing.T, s *Server, name string) bool {
	t.Helper()
	var found bool
	require.NoError(t, connectTo(t, s.DSN("postgres")).QueryRow(testContext(t),
		"SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name).Scan(&found))
	return found
}
