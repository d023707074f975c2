package pgserver

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strconv"
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
		require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o600))
		require.NoError(t, os.Chmod(path, 0o755))
	}
}

func TestFind_ThisMachine(t *testing.T) {
	t.Parallel()
	in, err := Find(testContext(t))
	require.NoError(t, err)
	require.GreaterOrEqual(t, in.Major, MinMajor)
	require.FileExists(t, in.initdb())
	same, err := InstallAt(testContext(t), in.BinDir)
	require.NoError(t, err)
	require.Equal(t, in, same)
}

func TestFind_NewestReleaseWins(t *testing.T) {
	t.Parallel()
	root := newDir(t, person{})
	for dir, version := range map[string]string{
		"a/15/bin":     "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)",
		"a/17.2/bin":   "postgres (PostgreSQL) 17.2",
		"a/17.10/bin":  "postgres (PostgreSQL) 17.10",
		"a/18/bin":     "postgres (PostgreSQL) 18beta1",
		"a/9/bin":      "postgres (PostgreSQL) 9.6.24",
		"a/broken/bin": "sorry",
	} {
		fakeInstall(t, filepath.Join(root, dir), version, "")
	}
	installs, err := search{globs: []string{filepath.Join(root, "a/*/bin"), "/nowhere/*"}}.all(testContext(t), nil)
	require.NoError(t, err)
	var order []string
	for _, in := range installs {
		order = append(order, in.Version)
	}
	require.Equal(t, []string{"17.10", "17.2", "15.18", "18beta1"}, order)
	require.Equal(t, 17, installs[0].Major)
}

func TestFind_PathAndPgConfig(t *testing.T) {
	t.Parallel()
	root := newDir(t, person{})
	fakeInstall(t, filepath.Join(root, "real"), "postgres (PostgreSQL) 16.1", "")
	fakeInstall(t, filepath.Join(root, "configured"), "postgres (PostgreSQL) 17.1", "")
	links := filepath.Join(root, "links")
	require.NoError(t, os.Mkdir(links, 0o755))
	// Only initdb is linked: postgres is beside the real one.
	require.NoError(t, os.Symlink(filepath.Join(root, "real", "initdb"), filepath.Join(links, "initdb")))
	config := filepath.Join(links, "pg_config")
	require.NoError(t, os.WriteFile(config, []byte("#!/bin/sh\necho '"+filepath.Join(root, "configured")+"'\n"), 0o600))
	require.NoError(t, os.Chmod(config, 0o755))

	require.NotContains(t, search{path: "relative:" + links}.dirs(testContext(t)), "relative")
	installs, err := search{path: "relative:" + links + ":" + filepath.Join(root, "real")}.all(testContext(t), nil)
	require.NoError(t, err)
	require.Equal(t, []Install{
		{BinDir: filepath.Join(root, "configured"), Major: 17, Version: "17.1"},
		{BinDir: filepath.Join(root, "real"), Major: 16, Version: "16.1"},
	}, installs)
}

func TestFind_NotInstalled(t *testing.T) {
	t.Parallel()
	_, err := search{}.all(testContext(t), nil)
	require.ErrorIs(t, err, ErrNotInstalled)
	golden(t, "not_installed.txt", err.Error())

	golden(t, "not_usable.txt", (&NotInstalledError{
		TooOld:      []Install{{BinDir: "/usr/lib/postgresql/13/bin", Major: 13, Version: "13.22"}},
		Unreachable: []Install{{BinDir: "/root/pg/bin", Major: 17, Version: "17.6"}},
		Account:     "postgres",
	}).Error())
}

func TestFind_NamesWhatCannotBeUsed(t *testing.T) {
	t.Parallel()
	root := newDir(t, person{})
	old, closed := filepath.Join(root, "old"), filepath.Join(root, "closed", "bin")
	fakeInstall(t, old, "postgres (PostgreSQL) 14.19", "")
	fakeInstall(t, closed, "postgres (PostgreSQL) 17.6", "")
	require.NoError(t, os.Chmod(filepath.Dir(closed), 0o700))

	_, err := search{path: old + ":" + closed}.all(testContext(t), &account{Name: "somebody", UID: 4242, GID: 4242})
	var missing *NotInstalledError
	require.ErrorAs(t, err, &missing)
	require.Equal(t, "14.19", missing.TooOld[0].Version)
	require.Equal(t, "17.6", missing.Unreachable[0].Version)
	require.Equal(t, "somebody", missing.Account)

	_, err = InstallAt(testContext(t), old)
	require.ErrorIs(t, err, ErrNotInstalled)
	_, err = InstallAt(testContext(t), root)
	require.ErrorContains(t, err, "look for initdb in "+root)
}

func TestFind_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	root := newDir(t, person{})
	fakeInstall(t, root, "postgres (PostgreSQL) 17.6", "")
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("enough")
	cancel(reason)
	_, err := search{path: root}.all(ctx, nil)
	require.ErrorIs(t, err, reason)
}
