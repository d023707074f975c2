package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"os/user"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/node/settings"
)

// app is one invocation of belfry.
type app struct {
	stdout, stderr io.Writer
	environ        []string
	now            func() time.Time

	configFiles []string      // from --config
	private     bool          // from --private
	hard        chan struct{} // closed by the second signal
	color       *parsed[string]
	times       *parsed[printer.Times]
	lookLimit   time.Duration // of a completion's look; 0: completeWithin
}

// execute runs the command line and returns the exit code.
func (a *app) execute(ctx context.Context, args []string) code {
	ctx, stop := a.watchSignals(ctx)
	defer stop()
	a.stdout = &checkedWriter{w: a.stdout}
	root := newRootCommand(a)
	if completing(args) {
		a.completeFlags(root)
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

// watchSignals returns a context that the first SIGINT or SIGTERM cancels with
// errInterrupted. The second closes a.hard; from then on signals act as if
// nobody listened, so that the third one ends the process.
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

// settings loads the configuration for cmd.
func (a *app) settings(cmd *cobra.Command) (settings.Settings, error) {
	return settings.Load(a.configInput(cmd), nil)
}

// configInput is where the configuration of cmd comes from.
func (a *app) configInput(cmd *cobra.Command) config.Input {
	in := config.Input{Files: a.configFiles, Environ: a.environ, Flags: make(map[string]config.Flag)}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		for _, key := range f.Annotations[keyAnnotation] {
			in.Flags[key] = config.Flag{Name: f.Name, Value: f.Value.String()}
		}
	})
	return in
}

// logger returns the logger of a command that shows its progress itself: it logs from warn
// on unless a level was asked for.
func (a *app) logger(s settings.Settings, w io.Writer) zerolog.Logger {
	return a.formatted(s, w).Level(logLevel(s, true)).With().Timestamp().Logger()
}

// briefLogger is logger for a command of a moment: what a server of the user's makes a pool
// remark, that a pooler loses statements, runs, relays and the doctor say.
func (a *app) briefLogger(s settings.Settings) zerolog.Logger {
	logger := a.logger(s, a.stderr)
	if s.Database.URL != "" && logger.GetLevel() == zerolog.WarnLevel {
		return logger.Level(zerolog.ErrorLevel)
	}
	return logger
}

// liveLogger is logger with a level that may be changed while it is used.
func (a *app) liveLogger(s settings.Settings, w io.Writer) (zerolog.Logger, *liveLevel) {
	level := new(liveLevel)
	level.set(logLevel(s, false))
	return a.formatted(s, w).Hook(level).With().Timestamp().Logger(), level
}

// formatted returns a logger of everything, in the settings' format.
func (a *app) formatted(s settings.Settings, w io.Writer) zerolog.Logger {
	_, tty := terminal(a.stderr, a.environ)
	if s.Log.Format == "console" || s.Log.Format == "auto" && tty {
		w = zerolog.ConsoleWriter{Out: w, TimeFormat: time.TimeOnly, NoColor: !tty || a.hasVariable("NO_COLOR")}
	}
	return zerolog.New(w)
}

// logLevel is the level of the settings; quiet: warn where none was asked for.
func logLevel(s settings.Settings, quiet bool) zerolog.Level {
	if quiet && s.QuietLog() {
		return zerolog.WarnLevel
	}
	level, err := zerolog.ParseLevel(s.Log.Level)
	if err != nil {
		return zerolog.InfoLevel // Validate has refused anything else
	}
	return level
}

// liveLevel drops what is logged below a level that may change at any time.
type liveLevel struct{ atomic.Int32 }

func (l *liveLevel) set(level zerolog.Level) { l.Store(int32(level)) }

// Run is zerolog's hook.
func (l *liveLevel) Run(e *zerolog.Event, level zerolog.Level, _ string) {
	if level < zerolog.Level(l.Load()) { //nolint:gosec // what set stored
		e.Discard()
	}
}

// hasVariable reports whether an environment variable is set and not empty.
func (a *app) hasVariable(name string) bool { return a.variable(name) != "" }

// variable returns an environment variable; the last setting wins, as in a shell.
func (a *app) variable(name string) string {
	value := ""
	for _, e := range a.environ {
		if len(e) > len(name) && e[:len(name)] == name && e[len(name)] == '=' {
			value = e[len(name)+1:]
		}
	}
	return value
}

// whoami is user@host, recorded as the actor of an operator's acts.
func (a *app) whoami() string {
	name := a.variable("USER")
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if name == "" {
		name = fmt.Sprintf("uid-%d", os.Getuid())
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return name + "@" + host
}
