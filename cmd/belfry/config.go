package main

import (
	"context"
	"reflect"

	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/node/settings"
)

func newConfigCommand(a *app) *cobra.Command {
	return newGroup("config", "Write a configuration file, show the configuration in effect, or check it",
		newConfigInitCommand(a), newConfigShowCommand(a), newConfigCheckCommand(a))
}

func newConfigInitCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "init",
		Short: "Write config.yaml with the keys that a new installation sets first",
		Long:  "Write a commented config.yaml of about 20 lines into the working directory, where belfry reads it.\nIt replaces no file.",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := settings.WriteStarter(config.DefaultFile); err != nil {
				return usagef("%w; remove the file, or change to another directory", err)
			}
			a.remark("%s written; next: edit it, then `belfry config check`", config.DefaultFile)
			return nil
		},
	}
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
			report.Problems = config.Lines(err)
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
	o.printf("ok: %s read, %s set, the rest at defaults\n", s.FilesRead(), text.Counted(s.Given(), "key"))
	for _, file := range s.OpenFiles() {
		o.remark("%s has a secret, and other accounts of this machine may read it: chmod 600 %s", file, text.ShellWord(file))
	}
	return nil
}
