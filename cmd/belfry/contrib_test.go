package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// program returns the path of a program that .ci/install installs, or skips the test.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("no %s", name)
	}
	return path
}

// printed runs a program and returns what it prints.
func printed(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	require.NoError(t, err, "%s %s:\n%s", name, strings.Join(args, " "), out)
	return string(out)
}

// requireCommand checks that a command line of belfry exists, with its flags.
func requireCommand(t *testing.T, words []string) {
	t.Helper()
	root := newRootCommand(newApp(io.Discard, io.Discard, nil))
	cmd, _, err := root.Find(words)
	require.NoError(t, err, words)
	require.True(t, cmd.Runnable() && cmd != root, "%v: %s is no command", words, cmd.CommandPath())
	r := command(t, nil, append(slices.Clone(words), "--help")...)
	require.Equal(t, codeDone, r.code, "%v: %s", words, r.stderr)
	for _, word := range words {
		require.NotRegexp(t, `^-[^-]`, word, "a short flag")
		if name, is := strings.CutPrefix(word, "--"); is {
			require.NotNil(t, flagOfAny(cmd, name), "%v: no flag --%s", words, name)
		}
	}
}

// units returns the names of the units.
func units(t *testing.T) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(tree, "contrib", "systemd", "*"))
	require.NoError(t, err)
	require.Len(t, list, 5)
	return list
}

// systemd accepts the units, and rates none worse than 2.0 of 10.
func TestContrib_UnitsAreValidAndConfined(t *testing.T) {
	t.Parallel()
	analyze := program(t, "systemd-analyze")
	dir := t.TempDir()
	stub := filepath.Join(dir, "belfry") // a command of a unit must be installed
	require.NoError(t, os.WriteFile(stub, []byte("#!/bin/sh\n"), 0o700))
	verify := []string{"verify", "--man=no"}
	for _, unit := range units(t) {
		text, err := os.ReadFile(unit)
		require.NoError(t, err)
		path := filepath.Join(dir, filepath.Base(unit))
		require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(string(text), "=belfry ", "="+stub+" ")), 0o600))
		verify = append(verify, path)
		if filepath.Ext(path) == ".service" {
			printed(t, analyze, "security", "--offline=true", "--threshold=20", path)
		}
	}
	require.Empty(t, printed(t, analyze, verify...))
}

var execStart = regexp.MustCompile(`(?m)^ExecStart=belfry (.*)$`)

// The commands of the units exist. The units are equally confined.
func TestContrib_UnitsStartCommands(t *testing.T) {
	t.Parallel()
	hardening := map[string]string{}
	for _, unit := range units(t) {
		text, err := os.ReadFile(unit)
		require.NoError(t, err)
		if filepath.Ext(unit) != ".service" {
			continue
		}
		m := execStart.FindStringSubmatch(string(text))
		require.NotNil(t, m, unit)
		requireCommand(t, strings.Fields(m[1]))
		_, after, found := strings.Cut(string(text), "\n# Hardening.")
		require.True(t, found, unit)
		lines, _, _ := strings.Cut(after, "\n[")
		hardening[strings.TrimSpace(lines)] = unit
	}
	require.Len(t, hardening, 1)
}
