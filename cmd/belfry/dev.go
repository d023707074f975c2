package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/dev/commands"
	"github.com/belfryhq/belfry/dev/demo"
	"github.com/belfryhq/belfry/dev/fake"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/node/settings"
)

// devOutput is the output of the commands for development.
type devOutput struct{ *streams }

func (x devOutput) Printf(format string, args ...any) { x.printf(format, args...) }
func (x devOutput) PrintJSON(v any) error             { return x.printJSON(v) }
func (x devOutput) Remark(format string, args ...any) { x.remark(format, args...) }
func (x devOutput) Page() *text.Terminal              { return x.page() }
func (x devOutput) Ticker() *text.Ticker              { return x.ticker() }

func newDemoCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Watch a job run, crash, resume, stop and be delivered, and check the result",
		Long:  commands.DemoHelp,
		Example: `  belfry demo
  belfry demo --channels 1000000
  belfry demo --serve
  belfry demo --json | jq '.jobs[] | {id, status, missing, duplicates}'`,
		Args: noArgs,
	}
	flags, o := cmd.Flags(), &commandOptions{}
	count := flagOf(flags, "channels", "N", "the number of channels (default "+text.Grouped(demo.DefaultChannels)+")",
		intBetween(demo.LeastChannels, demo.MostChannels))
	name := flagOf(flags, "database", "NAME", "database to create and empty (default "+demo.DefaultDatabase+")", checked(demo.CheckDatabase))
	listen := flagOf(flags, "serve", "HOST:PORT", "then run a daemon and its console, until Ctrl-C (default address "+demo.DefaultListen+")",
		checked(demo.CheckListen))
	flags.Lookup("serve").NoOptDefVal = demo.DefaultListen
	out := addOutput(cmd)
	cmd.RunE = a.run(o, func(ctx context.Context) error {
		executable, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find belfry's own binary: %w", err)
		}
		screen := o.stdout
		if out.json() {
			screen = o.stderr
		}
		_, tty := terminal(screen, o.environ)
		c := demo.Config{
			Channels: count.or(demo.DefaultChannels), Database: name.or(demo.DefaultDatabase), Listen: listen.or(""),
			Executable: executable, Environ: o.environ, Screen: screen, Color: tty && o.variable("NO_COLOR") == "",
		}
		return o.withDatabase(ctx, schemaAny, 0, func(ctx context.Context, _ settings.Settings, db *database) error {
			c.Server, c.DSN = db.Pool, db.DSN
			return commands.Demo(ctx, devOutput{o.streams}, c, db.Private, out.json())
		})
	})
	return cmd
}

func newFakeCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fake",
		Short: "Fake every provider on this machine, with faults on request, until a signal",
		Long:  commands.FakeHelp(),
		Example: `  belfry fake
  belfry fake --write fake.yaml   # then: belfry --config config.yaml --config fake.yaml run --deliver
  belfry fake --fault '{for: fcm, status: 503, share: 0.1}' --fault '{for: sms, do: reset, share: 0.01}'
  curl -X PUT --data '[{for: fcm, status: 429, retry_after: 5s, count: 100}]' http://127.0.0.1:8925/faults`,
		Args: noArgs,
	}
	flags, o, config, faults := cmd.Flags(), &commandOptions{}, fake.DefaultConfig(), &commands.Faults{}
	listen := flagOf(flags, "listen", "HOST:PORT", "address for HTTP without TLS; SMTP uses the next port (default "+commands.FakeListen+")",
		checked(fake.CheckAddress))
	flags.Var(faults, "fault", "a fault; may be given several times, and the first that applies is used")
	flags.BoolVar(&config.HonourKeys, "honour-keys", false, "answer a repeated idempotency key with the first answer, and do nothing")
	seed := flagOf(flags, "seed", "N", "the same seed draws the same faults (default random, printed)", intBetween(0, math.MaxInt64))
	write := flags.String("write", "", "write the senders to `FILE`, for --config, instead of printing them")
	out := addOutput(cmd)
	cmd.RunE = a.run(o, func(ctx context.Context) error {
		config.Listen, config.Faults, config.ReceiptDelay = listen.or(commands.FakeListen), faults.List, commands.FakeReceipts
		config.Seed = uint64(seed.or(rand.Int64N(1_000_000))) //nolint:gosec // not negative, and not a secret
		server, err := fake.Start(ctx, config)
		if err != nil {
			// A port in use concerns this command, not the database.
			return &exitError{codeFailure, err}
		}
		return errors.Join(commands.ServeFakes(ctx, devOutput{o.streams}, server, *write, out.json()), server.Close())
	})
	return cmd
}

func newGenerateCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "generate N",
		Short: "Make N channels at real cities, for trials and benchmarks",
		Long:  commands.GenerateHelp,
		Example: `  belfry channels generate 300000
  belfry channels generate 1000000 --seed 7`,
		Args: exactArgs("N"),
	}
	seed := flagOf(cmd.Flags(), "seed", "N", "the same seed makes the same channels (default 0)", intBetween(0, math.MaxInt64))
	fakes := flagOf(cmd.Flags(), "fake", "HOST:PORT", "address of the `belfry fake` for browsers (default "+commands.FakeListen+")",
		checked(fake.CheckAddress))
	out := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o := a.options(cmd)
		count, err := strconv.ParseInt(args[0], 10, 64)
		if err != nil || count < 1 || count > commands.MaxGenerated {
			return usagef("%q channels cannot be generated; allowed values: 1 to %d", text.OneLine(args[0], 60), commands.MaxGenerated)
		}
		from := uint64(seed.or(0)) //nolint:gosec // not negative
		return o.withDatabase(cmd.Context(), schemaCurrent, 0, func(ctx context.Context, s settings.Settings, db *database) error {
			return commands.Generate(ctx, devOutput{o.streams}, s.Channels, db.Pool, count, from, fakes.or(commands.FakeListen), out.json())
		})
	}
	return cmd
}

// newAppCommand returns the command that serves an application with bells, for `make run`.
func newAppCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "demo-app", Short: "Serve a page of two people with bells, for make run", Hidden: true, Args: noArgs}
	o := &commandOptions{}
	write := cmd.Flags().String("write", "", "write the configuration of the notification centre to `FILE`, unless it exists, and end")
	cmd.RunE = a.run(o, func(ctx context.Context) error {
		if *write != "" {
			return commands.WriteApp(*write)
		}
		return o.withDatabase(ctx, schemaCurrent, 0, func(ctx context.Context, s settings.Settings, db *database) error {
			return commands.ServeApp(ctx, devOutput{o.streams}, s, db.Pool)
		})
	})
	return cmd
}

// newManCommand returns the command that writes the manual pages, for `make man` and packagers.
func newManCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "man DIRECTORY", Short: "Write the manual pages, one for each command", Hidden: true, Args: exactArgs("DIRECTORY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			written, err := commands.Man(cmd.Root(), args[0], thisBuild().Version)
			if err == nil {
				a.remark("wrote %d pages to %s", written, args[0])
			}
			return err
		},
	}
}
