package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/dev/demo"
	"github.com/belfryhq/belfry/internal/printer"
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
	n := flagOf(cmd.Flags(), "channels", "N", fmt.Sprintf("how many channels to generate (default %s)", printer.Grouped(demo.DefaultChannels)),
		intBetween(demo.LeastChannels, demo.MostChannels))
	name := flagOf(cmd.Flags(), "database", "NAME", "database to make and to empty (default "+demo.DefaultDatabase+")",
		func(text string) (string, error) { return text, demo.CheckDatabase(text) })
	transport := flagOf(cmd.Flags(), "transport", "NAME", "where relays get the ids of messages from: "+strings.Join(demo.Transports(), ", ")+"; the server of a carrier is started (default postgres)",
		func(text string) (string, error) {
			if !slices.Contains(demo.Transports(), text) {
				return "", fmt.Errorf("%q is not allowed; allowed values: %s", printer.OneLine(text, 60), strings.Join(demo.Transports(), ", "))
			}
			return text, nil
		})
	server := cmd.Flags().String("carrier-server", "", "`PROGRAM` that is the carrier's server (default: redis-server, valkey-server or nats-server on PATH)")
	serves := flagOf(cmd.Flags(), "serve", "HOST:PORT", "leave the console open afterwards, on a database in which something happens, until Ctrl-C; alone: at "+demo.DefaultListen,
		func(text string) (string, error) { return text, demo.CheckListen(text) })
	cmd.Flags().Lookup("serve").NoOptDefVal = demo.DefaultListen
	out := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.withDatabase(cmd, schemaAny, 0, func(ctx context.Context, _ settings.Settings, db *database) error {
			return a.demo(ctx, db, demo.Config{Channels: n.or(demo.DefaultChannels), Database: name.or(demo.DefaultDatabase), Transport: transport.or(outbox.NoCarrier), CarrierServer: *server, Listen: serves.or("")}, out.json())
		})
	}
	return cmd
}

// demo is `belfry demo`.
func (a *app) demo(ctx context.Context, db *database, c demo.Config, asJSON bool) error {
	executable, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find belfry's own binary: %w", err)
	}
	screen := a.stdout
	if asJSON {
		screen = a.stderr
	}
	_, tty := terminal(screen, a.environ)
	c.Server, c.DSN, c.Executable, c.Environ = db.Pool, db.DSN, executable, a.environ
	c.Screen, c.Color = screen, tty && !a.hasVariable("NO_COLOR")
	report, err := demo.Run(ctx, c)
	if asJSON {
		err = errors.Join(err, a.printJSON(report))
	}
	switch {
	case err != nil:
		return fmt.Errorf("demo: %w", err)
	case !report.OK:
		return &exitError{codeFailure, errors.New("demo: a promise was broken")}
	case !asJSON && c.Listen == "":
		a.printf("%s", whatNext(db, c.Database))
	}
	return nil
}

// whatNext says how to go on from a demo.
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
