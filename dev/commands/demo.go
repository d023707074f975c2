package commands

import (
	"context"
	"errors"
	"fmt"

	"github.com/belfryhq/belfry/dev/demo"
	"github.com/belfryhq/belfry/internal/pgserver"
)

// DemoHelp is the description of `belfry demo`.
const DemoHelp = `Generate channels, enqueue a job for all of them, and run it with runners in processes of
their own. Kill one runner with SIGKILL during the job, abort the job by SQL and resume it.
Deliver its messages through fake providers that fail a tenth of the calls, and kill a relay
meanwhile. Then check with independent SQL that the job skipped no channel and wrote no
message twice, and check the providers' records: duplicates are allowed only after calls with
an unknown outcome.

The demo uses a database of its own, ` + demo.DefaultDatabase + `, on the configured server. It creates
the database if it does not exist, empties it before each demo and retains it afterwards. It
does not touch a schema that no demo created or that contains other jobs. Without database.url
the server is belfry's private PostgreSQL. Settings of runners and channels do not apply.

With --serve a daemon and its console keep running on that database after the checks: a notice
starts every 15 seconds, some notices are stopped and corrected, providers continue to fail,
and a link signs in.

Exit codes: 0 if the job was PROCESSED, no message is missing or duplicated, the kill and the
abort both happened during the job, no message was written after the abort, and every message
was sent or is a dead letter, with at most as many duplicates as unknown outcomes; otherwise 1.`

// Demo runs the demo. private is the server of the demo's database if it is the private one.
func Demo(ctx context.Context, out Output, c demo.Config, private *pgserver.Server, json bool) error {
	report, err := demo.Run(ctx, c)
	if json {
		err = errors.Join(err, out.PrintJSON(report))
	}
	switch {
	case err != nil:
		return fmt.Errorf("demo: %w", err)
	case !report.OK:
		return errors.New("demo: a guarantee was violated")
	case !json && c.Listen == "":
		out.Printf("%s", nextCommands(private, c.Database))
	}
	return nil
}

// nextCommands returns the commands to try after the demo.
func nextCommands(private *pgserver.Server, database string) string {
	text := `
Try next:
  make run                              # runs a daemon until Ctrl-C
and in another terminal:
  bin/belfry channels generate 100000
  bin/belfry enqueue --type inbox,push --category operator_notice \
      --title "Hello" --everyone
  bin/belfry jobs list
`
	if private != nil {
		return text + fmt.Sprintf("The demo's rows stay in database %s; while the daemon is up:\n  psql '%s'\n", database, private.DSN(database))
	}
	return text + fmt.Sprintf("The demo's rows stay in database %s of the same server.\n", database)
}
