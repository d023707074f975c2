package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// What a page may have at the beginning of a line beside text.
var manRequest = regexp.MustCompile(`^\.(TH "[A-Z-]+" "1" "" "belfry [^"]*" "belfry manual"|SH [A-Z ]+|TP|PP|nf|fi|B .+)$`)

// Every command that help shows has a page, which is reproducible and valid for man.
func TestMan_EachCommandHasAPage(t *testing.T) {
	t.Parallel()
	dirs := []string{t.TempDir(), t.TempDir()}
	for _, dir := range dirs {
		r := command(t, nil, "man", filepath.Join(dir, "man1"))
		require.Equal(t, codeDone, r.code, r.stderr)
	}
	escape := func(text string) string { return strings.ReplaceAll(text, "-", `\-`) }
	pages := 0
	var look func(c *cobra.Command)
	look = func(c *cobra.Command) {
		if c.Hidden || c.Name() == "help" {
			return
		}
		name := strings.ReplaceAll(c.CommandPath(), " ", "-") + ".1"
		page, err := os.ReadFile(filepath.Join(dirs[0], "man1", name))
		require.NoError(t, err)
		again, err := os.ReadFile(filepath.Join(dirs[1], "man1", name))
		require.NoError(t, err)
		require.Equal(t, string(page), string(again))
		pages++
		open := false
		for line := range strings.SplitSeq(strings.TrimSuffix(string(page), "\n"), "\n") {
			if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
				require.Regexp(t, manRequest, line, name)
			}
			switch line {
			case ".nf":
				require.False(t, open, name)
				open = true
			case ".fi":
				require.True(t, open, name)
				open = false
			}
			require.NotRegexp(t, `\\[^e\-&fBIP]`, line, "%s: an escape that is none", name)
		}
		require.False(t, open, name)
		require.Contains(t, string(page), ".SH NAME\n"+escape(strings.TrimSuffix(name, ".1"))+` \- `+escape(c.Short)+"\n")
		for _, sub := range c.Commands() {
			look(sub)
		}
	}
	root := newRootCommand(newApp(io.Discard, io.Discard, nil))
	root.InitDefaultCompletionCmd("bash")
	look(root)
	written, err := os.ReadDir(filepath.Join(dirs[0], "man1"))
	require.NoError(t, err)
	require.Len(t, written, pages)
	require.Greater(t, pages, 80)

	if man, err := exec.LookPath("man"); err == nil { // that some machines have is a stub
		cmd := exec.CommandContext(t.Context(), man, "--warnings=w", "-l", filepath.Join(dirs[0], "man1", "belfry-jobs-set.1"))
		cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "MANWIDTH=100", "MANPAGER=cat")
		var stdout, stderr strings.Builder
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err := cmd.Run()
		if strings.Contains(stdout.String()+stderr.String(), "minimized") {
			return
		}
		require.NoError(t, err, stderr.String())
		require.Empty(t, stderr.String())
		require.Contains(t, stdout.String(), "max_rows_per_second")
		require.Contains(t, stdout.String(), "--reason")
	}
}
