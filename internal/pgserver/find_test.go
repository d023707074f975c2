package pgserver

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files in testdata")

func itoa(n int) string { return strconv.Itoa(n) }

// golden compares text with a file in testdata.
func golden(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		require.NoError(t, os.WriteFile(path, []byte(text+"\n"), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), text+"\n")
}

// fakeInstall makes a directory with programs that say what they are told.
func fakeInstall(t *testing.T, dir, version, initdb string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o755))
	for name, body := range map[string]string{"postgres": "echo '" + version + "'", "initdb": initdb} {
		path := filepath.Join(dir, name)
		syscall.ForkLock.RLock() // a child of another test that has the file open would make it busy
		err := os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o600)
		syscall.ForkLock.RUnlock()
		require.NoError(t, err)
		require.NoError(t, os.Chmod(path, 0o755))
	}
}

func TestFind_ThisMachine(t *testing.T) {
	t.Parallel()
	in, err := Find(testContext(t))
	require.NoError(t, err)
	require.GreaterOrEqual(t, in.Major, MinMajor)
	require.FileExists(t, in.initdb())
	same, err := inspect(testContext(t), in.BinDir)
	require.NoError(t, err)
	require.Equal(t, in, same)
}

func TestFind_NewestIsFirst(t *testing.T) {
	t.Parallel()
	root := newDir(t, person{})
	for dir, version := range map[string]string{
		"a/15/bin":     "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)",
		"a/17/bin":     "postgres (PostgreSQL) 17.10",
		"a/18/bin":     "postgres (PostgreSQL) 18beta1",
		"a/9/bin":      "postgres (PostgreSQL) 9.6.24",
		"a/broken/bin": "sorry",
	} {
		fakeInstall(t, filepath.Join(root, dir), version, "")
	}
	installs, err := dirs{filepath.Join(root, "a/*/bin"), "/nowhere/*"}.all(testContext(t), nil)
	require.NoError(t, err)
	var order []string
	for _, in := range installs {
		order = append(order, in.Version)
	}
	require.Equal(t, []string{"18beta1", "17.10", "15.18"}, order)
	require.Equal(t, 18, installs[0].Major)
}

func TestFind_PathWithLinks(t *testing.T) {
	root := newDir(t, person{})
	fakeInstall(t, filepath.Join(root, "real"), "postgres (PostgreSQL) 16.1", "")
	links := filepath.Join(root, "links")
	require.NoError(t, os.Mkdir(links, 0o755))
	// Only initdb is linked: postgres is in the directory of the real one.
	require.NoError(t, os.Symlink(filepath.Join(root, "real", "initdb"), filepath.Join(links, "initdb")))
	t.Setenv("PATH", "relative:"+links)
	require.Equal(t, links, localDirs()[0])
	installs, err := localDirs()[:1].all(testContext(t), nil)
	require.NoError(t, err)
	require.Equal(t, []Install{{BinDir: filepath.Join(root, "real"), Major: 16, Version: "16.1"}}, installs)
}

func TestFind_NotInstalled(t *testing.T) {
	t.Parallel()
	_, err := dirs{}.all(testContext(t), nil)
	require.ErrorIs(t, err, ErrNotInstalled)
	golden(t, "not_installed.txt", err.Error())
}

func TestFind_ListsUnusableInstallations(t *testing.T) {
	t.Parallel()
	needRoot(t)
	root := newDir(t, person{})
	old, closed := filepath.Join(root, "old"), filepath.Join(root, "closed", "bin")
	fakeInstall(t, old, "postgres (PostgreSQL) 14.19", "")
	fakeInstall(t, closed, "postgres (PostgreSQL) 17.6", "")
	require.NoError(t, os.Chmod(filepath.Dir(closed), 0o700))

	_, err := dirs{old, closed}.all(testContext(t), &account{Name: "postgres", UID: 4242, GID: 4242})
	require.ErrorIs(t, err, ErrNotInstalled)
	golden(t, "not_usable.txt", strings.ReplaceAll(err.Error(), root, "ROOT"))
	_, err = resolve(root)
	require.ErrorContains(t, err, "find initdb in "+root)
}

func TestFind_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	root := newDir(t, person{})
	fakeInstall(t, root, "postgres (PostgreSQL) 17.6", "")
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("enough")
	cancel(reason)
	_, err := dirs{root}.all(ctx, nil)
	require.ErrorIs(t, err, reason)
}
