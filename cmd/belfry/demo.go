package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/dev/demo"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/node/settings"
	"github.com/belfryhq/belfry/outbox"
)

func newDemoCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Watch a job run, crash, resume, stop and be delivered, and check the result",
		Long: fmt.Sprintf(`Generate channels, enqueue a job for all of them, run it with runners that are
processes of their own, kill one with SIGKILL in mid-job, abort the job by SQL and
resume it, deliver its messages through fake providers that fail a tenth of the calls,
kill a relay meanwhile, and prove by independent SQL that nobody was left out and nobody
was told twice, and by the providers' own count that duplicates came only where an
outcome could not be known.

It works in a database of its own, %s, on the configured server: made if
need be, emptied before each demo, kept afterwards to be looked at. A schema that
no demo made, or that holds anybody else's jobs, is not touched. Without
database.url the server is belfry's private PostgreSQL. Settings of runners and
channels do not apply.

With --serve a daemon and its console stay on that database when all is proved: a notice
begins every quarter of a minute, some are stopped in mid-walk and corrected, providers
go on failing, and a link signs in.

Exit codes: 0 if the job was PROCESSED, nothing is missing or there twice, the
kill and the abort both hit it in its middle, nothing came after the abort, and
every message was sent or is a dead letter, with no more duplicates than unknown
outcomes; otherwise 1.`, demo.DefaultDatabase),
		Example: `  belfry demo
  belfry demo --channels 1000000
  belfry demo --serve
  belfry demo --json | jq '.jobs[] | {id, status, missing, duplicates}'`,
		Args: noArgs,
	}
	o := &demoOptions{}
	o.channels = flagOf(cmd.Flags(), "channels", "N", fmt.Sprintf("how many channels to generate (default %s)", text.Grouped(demo.DefaultChannels)),
		intBetween(demo.LeastChannels, demo.MostChannels))
	o.database = flagOf(cmd.Flags(), "database", "NAME", "database to make and to empty (default "+demo.DefaultDatabase+")", checked(demo.CheckDatabase))
	o.transport = choiceOf(cmd.Flags(), "transport", "NAME", "source of message ids for relays: "+strings.Join(demo.Transports(), ", ")+"; the server of a carrier is started (default postgres)", demo.Transports()...)
	cmd.Flags().StringVar(&o.carrierServer, "carrier-server", "", "`PROGRAM` that is the carrier's server (default: redis-server, valkey-server or nats-server on PATH)")
	o.listen = flagOf(cmd.Flags(), "serve", "HOST:PORT", "leave the console open afterwards, on a database in which something happens, until Ctrl-C; alone: at "+demo.DefaultListen, checked(demo.CheckListen))
	cmd.Flags().Lookup("serve").NoOptDefVal = demo.DefaultListen
	o.out = addOutput(cmd)
	cmd.RunE = a.run(&o.commandOptions, func(ctx context.Context) error {
		return o.withDatabase(ctx, schemaAny, 0, func(ctx context.Context, _ settings.Settings, db *database) error { return runDemo(ctx, o, db) })
	})
	return cmd
}

// demoOptions are the options of `belfry demo`.
type demoOptions struct {
	commandOptions

	channels                    *parsed[int64]
	database, transport, listen *parsed[string]
	carrierServer               string
	out                         *output
}

// runDemo runs the demo on the server of db.
func runDemo(ctx context.Context, o *demoOptions, db *database) error {
	executable, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find belfry's own binary: %w", err)
	}
	screen := o.stdout
	if o.out.json() {
		screen = o.stderr
	}
	_, tty := terminal(screen, o.environ)
	c := demo.Config{
		Channels: o.channels.or(demo.DefaultChannels), Database: o.database.or(demo.DefaultDatabase), Transport: o.transport.or(outbox.NoCarrier),
		CarrierServer: o.carrierServer, Listen: o.listen.or(""),
		Server: db.Pool, DSN: db.DSN, Executable: executable, Environ: o.environ, Screen: screen, Color: tty && o.variable("NO_COLOR") == "",
	}
	report, err := demo.Run(ctx, c)
	if o.out.json() {
		err = errors.Join(err, o.printJSON(report))
	}
	switch {
	case err != nil:
		return fmt.Errorf("demo: %w", err)
	case !report.OK:
		return &exitError{codeFailure, errors.New("demo: a promise was broken")}
	case !o.out.json() && c.Listen == "":
		o.printf("%s", whatNext(db, c.Database))
	}
	return nil
}

// whatNext returns the commands to try after the demo.
func whatNext(db *database, name string) string {
	text := `
Try next:
  make run                              # keeps a daemon up, until Ctrl-C
and in another terminal:
  bin/belfry channels generate 100000
  bin/belfry enqueue --type inbox,push --category operator_notice \
      --title "Hello" --everyone
  bin/belfry jobs list
`
	if db.Private != nil {
		return text + fmt.Sprintf("The demo's rows stay in database %s; while the daemon is up:\n  psql '%s'\n", name, db.Private.DSN(name))
	}
	return text + fmt.Sprintf("The demo's rows stay in database %s of the same server.\n", name)
}
