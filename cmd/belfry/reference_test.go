package main

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/migrations/dbtest"
)

// TestReference wants docs/cli.md to be what the commands say about themselves;
// -rewrite writes it.
func TestReference(t *testing.T) {
	t.Parallel()
	root := newRootCommand(&app{stdout: io.Discard, stderr: io.Discard, now: time.Now})
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd("bash")
	var b strings.Builder
	b.WriteString("# The command line\n\nThis page is generated from the commands (`go test ./cmd/belfry -run TestReference -rewrite`).\n\n" +
		"Data goes to standard output, logs and progress to standard error. With `-o json`, or `--json`, a command prints exactly one JSON document, an array where things are listed; `jobs watch`, `jobs recipients` and `jobs report` print one a line. With `-o csv` a list is CSV ([operations.md](operations.md#output)).\n\n" +
		"## Exit codes\n\n|Code|Meaning|\n|-|-|\n")
	for _, e := range exitCodes {
		fmt.Fprintf(&b, "|%d|%s|\n", e.code, e.meaning)
	}
	b.WriteString("\n## Every command\n\n" + fenced(root.LocalFlags().FlagUsages()))
	describe(&b, root)
	dbtest.Golden(t, filepath.Join("..", "..", "docs", "cli.md"), b.String())
}

// TestReference_OpenAPI wants docs/openapi.json to be what the API serves; -rewrite writes it.
func TestReference_OpenAPI(t *testing.T) {
	t.Parallel()
	dbtest.Golden(t, filepath.Join("..", "..", "docs", "openapi.json"), string(api.Document(admin.Operations())))
}

// describe writes a section for each command that does something.
func describe(b *strings.Builder, parent *cobra.Command) {
	for _, c := range parent.Commands() {
		c.InitDefaultHelpFlag()
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
			describe(b, c)
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
