package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/node/settings"
)

// app is one invocation of belfry. Every options struct of a command has it.
type app struct {
	*streams

	configFiles []string      // from --config
	hard        chan struct{} // closed by the second signal
	lookupLimit time.Duration // of a completion's query; 0 means completeWithin
}

// execute runs the command line and returns the exit code.
func (a *app) execute(ctx context.Context, args []string) code {
	ctx, stop := a.watchSignals(ctx)
	defer stop()
	a.stdout = &checkedWriter{w: a.stdout}
	root := newRootCommand(a)
	if len(args) > 0 && (args[0] == cobra.ShellCompRequestCmd || args[0] == cobra.ShellCompNoDescRequestCmd) { // by the shell
		completer{a}.addTo(root)
	}
	root.SetArgs(args)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		err = a.written()
	}
	exit := codeOf(err)
	if err != nil {
		a.remark("belfry: %s", explain(ctx, err))
		if exit == codeUsage {
			a.remark("Run `%s --help` for usage.", cmd.CommandPath())
		}
	}
	return exit
}

// watchSignals returns a context that the first SIGINT or SIGTERM cancels with errInterrupted.
// The second signal closes a.hard and restores the default handling, so that the third one ends
// the process.
func (a *app) watchSignals(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	a.hard = make(chan struct{})
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		defer signal.Stop(signals)
		for _, act := range []func(){func() { cancel(errInterrupted) }, func() { close(a.hard) }} {
			select {
			case <-signals:
				act()
			case <-done:
				return
			}
		}
	})
	return ctx, func() {
		close(done)
		watching.Wait()
		cancel(nil)
	}
}

// onHardStop calls stopNow at the second signal. The returned function ends the wait for it.
func (a *app) onHardStop(stopNow func(cause error)) func() {
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-a.hard:
			stopNow(errInterrupted)
		case <-over:
		}
	}()
	return func() {
		close(over)
		<-ended
	}
}

// commandOptions are the fields that the options of every command share.
type commandOptions struct {
	*app

	sources config.Input // of the configuration
	reads   bool         // the command changes nothing, so that a standby suffices
	creates bool         // the command may create the private server
}

// options returns the shared options of cmd, whose flags have been parsed.
func (a *app) options(cmd *cobra.Command) commandOptions {
	in := config.Input{Files: a.configFiles, Environ: a.environ, Flags: make(map[string]config.Flag)}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		for _, key := range f.Annotations[keyAnnotation] {
			in.Flags[key] = config.Flag{Name: f.Name, Value: f.Value.String()}
		}
	})
	return commandOptions{a, in, onlyReads(cmd), creatingCommands[cmd.CommandPath()]}
}

// run returns the RunE of a command that sets the options o and calls do.
func (a *app) run(o *commandOptions, do func(context.Context) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		*o = a.options(cmd)
		return do(cmd.Context())
	}
}

// settings loads the configuration.
func (c commandOptions) settings() (settings.Settings, error) { return settings.Load(c.sources, nil) }
