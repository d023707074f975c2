package main

import (
	"context"
	"errors"
	"reflect"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/keys"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/node/settings"
)

func newConfigCommand(a *app) *cobra.Command {
	return newGroup("config", "Show the configuration in effect, or check it",
		newConfigShowCommand(a), newConfigCheckCommand(a))
}

func newConfigShowCommand(a *app) *cobra.Command {
	o := &configOptions{}
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show every setting in effect and where it comes from",
		Long:  "Show every setting in effect and where it comes from. Passwords are left out; of senders\nonly what is known to be no secret is shown, with --json.",
		Args:  noArgs,
	}
	o.out = addListOutput(cmd, text.RecordsOf(reflect.TypeFor[settings.Shown]()))
	cmd.RunE = a.run(&o.commandOptions, func(context.Context) error { return runConfigShow(o) })
	return cmd
}

// configOptions are the options of `belfry config show` and `check`.
type configOptions struct {
	commandOptions

	out *output
}

// runConfigShow shows every setting and its source.
func runConfigShow(o *configOptions) error {
	s, err := o.settings()
	if err != nil {
		return err
	}
	shown := s.Shown()
	if !o.out.forPeople() {
		return printList(o.streams, o.out, shown)
	}
	t := text.NewTable("KEY", "VALUE", "SOURCE")
	for _, line := range shown {
		t.Add(line.Key, line.Text(), line.Source)
	}
	o.pageOf(o.out).Table(t)
	return nil
}

// configReport is the JSON of `belfry config check`.
type configReport struct {
	OK       bool     `json:"ok"`
	Files    []string `json:"files"` // that were read
	Problems []string `json:"problems"`
	// OpenFiles are the files with secrets that other accounts of the machine may read.
	OpenFiles []string `json:"open_files"`
}

func newConfigCheckCommand(a *app) *cobra.Command {
	o := &configOptions{}
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check files, environment and flags, and report every problem",
		Long:  "Check files, environment and flags, the files that senders name included, and report\nevery problem. It connects to nothing.",
		Args:  noArgs,
	}
	o.out = addOutput(cmd)
	cmd.RunE = a.run(&o.commandOptions, func(context.Context) error { return runConfigCheck(o) })
	return cmd
}

// runConfigCheck reports every problem of the configuration.
func runConfigCheck(o *configOptions) error {
	s, err := settings.Load(o.sources, settings.Always)
	if o.out.json() {
		report := configReport{OK: err == nil, Files: []string{}, Problems: []string{}, OpenFiles: []string{}}
		if err != nil {
			report.Problems = problemLines(err)
		} else {
			report.Files, report.OpenFiles = emptyList(s.Files), emptyList(s.OpenFiles())
		}
		if printErr := o.printJSON(report); printErr != nil {
			return printErr
		}
		return err
	}
	if err != nil {
		return err
	}
	given := 0
	for _, k := range keys.Of(s.Config) {
		if s.Source(k.Name).Kind != config.FromDefault {
			given++
		}
	}
	o.printf("ok: %s read, %s set, the rest at defaults\n", filesRead(s), text.Counted(int64(given), "key"))
	for _, file := range s.OpenFiles() {
		o.remark("%s has a secret, and other accounts of this machine may read it: chmod 600 %s", file, text.ShellWord(file))
	}
	return nil
}

// filesRead lists the configuration files that were read.
func filesRead(s settings.Settings) string {
	if len(s.Files) == 0 {
		return "no file"
	}
	return strings.Join(s.Files, ", ")
}

// problemLines lists every problem of a configuration.
func problemLines(err error) []string {
	var c *config.Error
	if errors.As(err, &c) {
		return c.Lines()
	}
	return []string{err.Error()}
}
