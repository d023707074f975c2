package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/node"
	"github.com/belfryhq/belfry/node/settings"
)

// runFlags are common to run and daemon.
type runFlags struct{ migrate *bool }

func addRunFlags(cmd *cobra.Command) runFlags {
	keyFlag(cmd.Flags(), "lane", "runner.lanes", "serve only these `LANES`, separated by commas")
	keyFlag(cmd.Flags(), "runner-name", "runner.name", "`NAME` of this runner, unique among the living")
	return runFlags{cmd.Flags().Bool("migrate", false, "apply pending migrations first")}
}

// metricsFlag is of the commands that run until a signal.
func metricsFlag(cmd *cobra.Command) {
	keyFlag(cmd.Flags(), "metrics-listen", "metrics.listen", "`HOST:PORT` where metrics and health are shown")
}

func (f runFlags) schema() schemaNeed {
	if *f.migrate {
		return schemaMigrate
	}
	return schemaCurrent
}

func newRunCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run what is due, then exit (for cron, a systemd timer, a Kubernetes CronJob)",
		Long: `Bring the schedules of the configuration into the database, fire those that are
due, claim and run the jobs that are due, one after the other, resume what another
runner left behind, and exit when nothing is left. cron alone is enough to run
belfry. With --deliver it then takes back what relays that died had in flight, looks
once for receipts and sends the messages that are due: what has to be tried again, or
waits for something, is left to the next run.

SIGINT or SIGTERM: the chunk in progress is finished, its job handed back with
its cursor, and the exit code is 1 because work is left; the next run goes on
from there. A second signal rolls the chunk in progress back instead. While messages
are sent, the calls in flight are finished and the rest is handed back; a second signal
cuts the calls short.

Exit codes: 0 all that ran was PROCESSED, or nothing was due, or it EXPIRED, which
is said; 1 a job FAILED, a schedule could not be fired, or interrupted; 4 a job was
aborted; 69 the database is unreachable, or too slow
for delivery to start within delivery.lease; 75 another runner holds the lane and nothing
was run, or a living process has this one's name; 78 a wrong configuration, or with
--deliver a database that is a copy and not adopted (belfry adopt). Messages that ended
as dead letters are said and no failure.

--json prints one line when the run ends, with the time as "at". "nothing is due" is
printed on a terminal only.`,
		Example: `  belfry run
  belfry run --deliver
  belfry run --lane default --wait 5m
  */5 * * * * belfry run --json >>/var/log/belfry.json    # crontab`,
		Args: noArgs,
	}
	flags := addRunFlags(cmd)
	wait := flagOf(cmd.Flags(), "wait", "DURATION", "wait so long for a lane that another runner holds (default 1s, in which the server notices one that died)", parseDuration)
	deliver := cmd.Flags().Bool("deliver", false, "then send the messages that are due")
	quiet := cmd.Flags().Bool("quiet", false, "show no progress")
	privateFlag(a, cmd)
	out := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.run(cmd, flags.schema(), runOptions{wait: wait.or(noticing), deliver: *deliver, quiet: *quiet, json: out.json()})
	}
	return cmd
}

// noticing is how long a server may take to see that the connection of a runner that
// died is gone: until then the runner holds its lane.
const noticing = time.Second

// runOptions are the flags of `belfry run`.
type runOptions struct {
	wait                 time.Duration
	deliver, quiet, json bool
}

// run is `belfry run`.
func (a *app) run(cmd *cobra.Command, need schemaNeed, o runOptions) (err error) {
	s, err := settings.Load(a.configInput(cmd), func(settings.Config) bool { return o.deliver })
	if err == nil && o.deliver {
		err = canDeliver(s)
	}
	if err != nil {
		return err
	}
	if err := a.checkPrivate(s); err != nil {
		return err
	}
	ctx := cmd.Context()
	show := a.newProgress()
	defer show.end()
	logger := a.logger(s, show)
	db, err := a.openPrimary(ctx, s, need, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.close()) }()
	if err := node.RecordRecipients(ctx, db.Pool, s.Channels, logger); err != nil {
		return err
	}
	held, err := node.HoldNames(ctx, s, db.Pool, true, o.deliver)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, held.Release(ctx)) }()
	var options []job.Option
	if !o.quiet {
		options = append(options, job.WithObserver(show.observe))
	}
	runner, done, err := node.NewRunner(s, db.Pool, nil, logger, options...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	defer a.stopHard(runner.StopNow)()
	r := oneRun{app: a, settings: s, db: db, runner: runner, quiet: o.quiet, show: show}
	err = r.walkAndDeliver(ctx, held, o, logger)
	show.end()
	if err != nil {
		return err
	}
	r.look(ctx)
	if o.json {
		if err := a.printLines([]any{r.report()}); err != nil {
			return err
		}
	}
	return r.judge()
}

// walkAndDeliver walks what is due and then, if asked, delivers. It tells what a signal
// stops, which depends on which of the two is going on.
func (r *oneRun) walkAndDeliver(ctx context.Context, held *lifecycle.Hold, o runOptions, logger zerolog.Logger) error {
	var delivering atomic.Bool
	told := make(chan struct{})
	tell := context.AfterFunc(ctx, func() {
		defer close(told)
		if delivering.Load() {
			fmt.Fprintln(r.show, stoppingCalls)
			return
		}
		fmt.Fprintln(r.show, "stopping after the chunk in progress; a second signal rolls it back")
	})
	err := held.During(ctx, func(ctx context.Context) error {
		if err := r.do(ctx, o.wait); err != nil || !o.deliver {
			return err
		}
		delivering.Store(true)
		return r.deliver(ctx, logger)
	})
	if !tell() {
		<-told
	}
	return err
}

// stopHard passes the second signal on. The returned function ends that and waits for
// it.
func (a *app) stopHard(stopNow func(cause error)) func() {
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

// heldBy says who holds the lanes and until when, in the database's clock.
func heldBy(held []job.Job, staleAfter time.Duration, db *database) string {
	ctx, cancel := context.WithTimeout(context.Background(), statementDeadline)
	defer cancel()
	now, err := db.now(ctx)
	lines := make([]string, 0, len(held))
	for _, j := range held {
		line := fmt.Sprintf("lane %s is held: job %d (%s) is RUNNING on %s", j.Lane, j.ID, j.Type, j.Runner)
		if err == nil && j.HeartbeatAt != nil { // the clock only adds detail
			age := now.Sub(*j.HeartbeatAt)
			line += fmt.Sprintf(", last heartbeat %s ago; without another it would be taken over in %s", printer.Short(age), printer.Short(staleAfter-age))
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n  ")
}
