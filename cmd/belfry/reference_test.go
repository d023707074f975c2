package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/dev/dbtest"
)

// TestReference checks the help of every command and flag, and its words. `make reference` writes
// the text to the file of BELFRY_REFERENCE.
func TestReference(t *testing.T) {
	t.Parallel()
	root := newRootCommand(newApp(io.Discard, io.Discard, nil))
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd("bash")
	var b strings.Builder
	b.WriteString("# The command line\n\n" +
		"Data goes to standard output, logs and progress to standard error. With `-o json`, or `--json`, a command prints exactly one JSON document, an array where things are listed; `jobs watch`, `jobs recipients` and `jobs report` print one a line. With `-o csv` a list is CSV ([operations.md](operations.md#output)).\n\n" +
		"## Exit codes\n\n|Code|Meaning|\n|-|-|\n")
	for _, e := range exitCodes {
		fmt.Fprintf(&b, "|%d|%s|\n", e.code, e.meaning)
	}
	b.WriteString("\n## Every command\n\n" + fenced(root.LocalFlags().FlagUsages()))
	describe(t, &b, root)
	checkWords(t, "the help of the commands", b.String(), nil)
	if path := os.Getenv("BELFRY_REFERENCE"); path != "" {
		require.NoError(t, os.WriteFile(path, []byte(b.String()), 0o644))
	}
}

// TestReference_OpenAPI wants docs/openapi.json to be what the API serves; -rewrite writes it.
func TestReference_OpenAPI(t *testing.T) {
	t.Parallel()
	dbtest.Golden(t, filepath.Join("..", "..", "docs", "openapi.json"), string(api.Document(admin.Operations())))
}

// describe writes a section for each command that does something.
func describe(t *testing.T, b *strings.Builder, parent *cobra.Command) {
	t.Helper()
	for _, c := range parent.Commands() {
		c.InitDefaultHelpFlag()
		require.True(t, c.Hidden || c.Short != "", "%s has no help", c.CommandPath())
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			require.True(t, f.Hidden || f.Usage != "", "%s --%s has no help", c.CommandPath(), f.Name)
		})
		switch {
		case c.Hidden || c.Name() == "help" || c.Name() == "exit-codes":
			continue
		case c.Name() == "completion":
			fmt.Fprintf(b, "## %s\n\n%s: `bash`, `zsh`, `fish` or `powershell`.\n\n", c.CommandPath(), c.Short)
			continue
		case c.IsAdditionalHelpTopicCommand():
			fmt.Fprintf(b, "## %s\n\n%s", c.Short, fenced(c.Long))
			continue
		case c.HasSubCommands():
			describe(t, b, c)
			continue
		}
		fmt.Fprintf(b, "## %s\n\n%s.\n\n%s", c.CommandPath(), c.Short, fenced(c.UseLine()))
		if c.Long != "" {
			b.WriteString(strings.TrimSpace(c.Long) + "\n\n")
		}
		if c.Example != "" {
			b.WriteString(fenced(strings.ReplaceAll("\n"+c.Example, "\n  ", "\n")))
		}
		c.LocalFlags().Lookup("help").Hidden = true
		if usages := c.LocalFlags().FlagUsages(); usages != "" {
			b.WriteString(fenced(usages))
		}
	}
}

func fenced(text string) string {
	return "```\n" + strings.Trim(text, "\n") + "\n```\n\n"
}
