package main

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/belfryhq/belfry/internal/keys"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/node/settings"
)

// newRootCommand returns the command tree.
func newRootCommand(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "belfry",
		Short: "Bulk notifications: one job at a time, resumable to the row, stoppable at once",
		Long: `belfry sends bulk notifications as an operator wants them sent: one job at a
time per lane, at a load the database can carry, resumable to the row, and
stoppable at once. Everything that matters is in PostgreSQL.

Without database.url it runs a private PostgreSQL in the user's data directory.`,
		Example: `  belfry channels generate 300000
  belfry enqueue --type inbox,push --category operator_notice --title "Maintenance at 9" --everyone
  belfry run`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
	}
	shown := root.Flags().BoolP("version", "V", false, "show version, commit, Go and platform")
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if *shown { // not by Command.Version, whose template would link all exported methods (ADR 0054)
			a.printf("%s\n", thisBuild())
			return nil
		}
		return runGroup(cmd, args)
	}
	flags := root.PersistentFlags()
	flags.StringArrayVar(&a.configFiles, "config", nil, "configuration `FILE`, repeatable, the later wins (default: $BELFRY_CONFIG, else ./config.yaml)")
	keyFlag(flags, "database-url", "database.url", "`URL` of the database")
	keySwitch(flags, "no-input", "cli.no_input", "never prompt, even at a terminal: for scripts")
	keyFlag(flags, "data-dir", "server.data_dir", "`DIRECTORY` of the private PostgreSQL")
	a.color = choiceOf(flags, "color", "WHEN",
		"colours of statuses in text: auto (on a terminal, unless NO_COLOR is set or TERM is dumb), always, never (default auto)", "auto", "always", "never")
	a.times = flagOf(flags, "times", "HOW",
		"times in text: local, utc, relative (3m ago, in 2h), or a time zone such as Europe/Berlin; JSON and CSV have UTC, "+
			"and errors, questions and findings of doctor ignore it (default local)", a.parseTimes)
	a.times.words = timesWords
	keyFlag(flags, "log-level", "log.level", "`LEVEL` of logs: debug, info, warn, error")
	keyFlag(flags, "log-format", "log.format", "`FORMAT` of logs: auto, json, console")

	root.SetFlagErrorFunc(flagProblem)
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	addGroups(a, root)
	root.AddCommand(newExitCodesTopic(), newConfigurationTopic())
	return root
}

// keyAnnotation marks a flag that stands for a key of the configuration.
const keyAnnotation = "belfry_key"

// keyFlag adds a flag for a key. Its value is text, like the value of a variable.
func keyFlag(flags *pflag.FlagSet, name, key, usage string) {
	flags.String(name, "", usage+" (key "+key+")")
	flags.Lookup(name).Annotations = map[string][]string{keyAnnotation: {key}}
}

// keySwitch adds a flag for a boolean key.
func keySwitch(flags *pflag.FlagSet, name, key, usage string) {
	flags.Bool(name, false, usage+" (key "+key+")")
	flags.Lookup(name).Annotations = map[string][]string{keyAnnotation: {key}}
}

// newGroup returns a command that only has subcommands.
func newGroup(use, short string, subcommands ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: cobra.ArbitraryArgs, RunE: runGroup}
	c.FParseErrWhitelist.UnknownFlags = true // runGroup reports the unknown subcommand
	c.AddCommand(subcommands...)
	return c
}

// runGroup reports a missing or unknown subcommand.
func runGroup(cmd *cobra.Command, args []string) error {
	var names, near []string
	for _, c := range cmd.Commands() {
		if !c.IsAvailableCommand() {
			continue
		}
		if names = append(names, c.Name()); !discards(c) {
			near = append(near, c.Name())
		}
	}
	if len(args) == 0 && !cmd.HasParent() {
		return cmd.Help()
	}
	if len(args) == 0 {
		return usagef("%s needs a subcommand: %s", named(cmd), strings.Join(names, ", "))
	}
	suggestion := keys.Hint(args[0], near)
	for _, c := range slices.Concat(cmd.Root().Commands(), cmd.Commands()) {
		synonym := slices.Contains(c.SuggestFor, args[0]) && (c.Parent() == cmd || named(cmd) == "jobs") // operations on jobs have no noun
		if c.IsAvailableCommand() && (c.Name() == args[0] || synonym) {
			suggestion = "; did you mean `" + c.CommandPath() + "`?"
		}
	}
	if suggestion == "" {
		suggestion = "; there are: " + strings.Join(names, ", ")
	}
	return usagef("unknown command %q for %q%s", text.OneLine(args[0], 60), cmd.CommandPath(), suggestion)
}

// flagProblem adds the nearest flag to the error of an unknown one. An unknown command with flags is
// reported like one without.
func flagProblem(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) && !cmd.HasParent() && cmd.Flags().NArg() > 0 {
		return runGroup(cmd, cmd.Flags().Args())
	}
	if errors.As(err, &unknown) && len(unknown.GetSpecifiedName()) > 1 {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, "--"+f.Name) })
		return usagef("%w%s", err, keys.Hint("--"+unknown.GetSpecifiedName(), names))
	}
	var invalid *pflag.InvalidValueError
	if file := new(fs.PathError); errors.As(err, &invalid) && errors.As(err, &file) { // the value names a file
		return usagef("--%s: %w", invalid.GetFlag().Name, invalid.Unwrap())
	}
	return &exitError{codeUsage, err}
}

// named returns the path of a command without the name of the program.
func named(cmd *cobra.Command) string {
	return strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
}

// noArgs rejects arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%s takes no arguments, got %q", named(cmd), text.OneLine(args[0], 60))
	}
	return nil
}

// exactArgs requires the named arguments.
func exactArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != len(names) {
			return usagef("%s takes %s, got %s", named(cmd), strings.Join(names, " "), text.Counted(int64(len(args)), "argument"))
		}
		return nil
	}
}

// newExitCodesTopic returns `belfry help exit-codes`.
func newExitCodesTopic() *cobra.Command {
	var b strings.Builder
	b.WriteString("Exit codes are part of belfry's interface:\n\n")
	for _, e := range exitCodes {
		fmt.Fprintf(&b, "  %2d  %s\n", e.code, e.meaning)
	}
	return &cobra.Command{Use: "exit-codes", Short: "What belfry's exit codes mean", Long: b.String()}
}

// newConfigurationTopic returns `belfry help configuration`.
func newConfigurationTopic() *cobra.Command {
	var b strings.Builder
	b.WriteString(`Defaults, then files, then environment variables, then flags; the later wins.
The files are those that --config names, in their order, otherwise the one that
BELFRY_CONFIG names, otherwise ./config.yaml if it exists. Senders and schedules of
several files add up; one with the name of an earlier one takes its place. Other
lists are replaced. An unknown key, an unknown BELFRY_ variable or a value that cannot
be used ends every command with exit code 78, before anything is done. A
variable that is empty counts as not set. Lists are separated by commas; schedules
and senders are JSON.

Keys and their variables; config.yaml documents each:

`)
	for _, k := range keys.Of(settings.Default()) {
		fmt.Fprintf(&b, "  %-34s %s\n", k.Name, k.Variable)
	}
	return &cobra.Command{Use: "configuration", Short: "Where settings come from", Long: b.String()}
}
