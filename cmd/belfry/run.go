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
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/node"
	"github.com/belfryhq/belfry/node/settings"
	"github.com/belfryhq/belfry/outbox/samples"
)

// addRunnerFlags adds the flags of run and daemon.
func (o *processOptions) addRunnerFlags(cmd *cobra.Command) {
	keyFlag(cmd.Flags(), "lane", "runner.lanes", "serve only these `LANES`, separated by commas")
	keyFlag(cmd.Flags(), "runner-name", "runner.name", "`NAME` of this runner, unique among the living")
	o.addMigrate(cmd)
}

// addMetricsFlag adds the flag of the commands that run until a signal.
func addMetricsFlag(cmd *cobra.Command) {
	keyFlag(cmd.Flags(), "metrics-listen", "metrics.listen", "`HOST:PORT` where metrics and health are shown")
}

// runOptions are the options of `belfry run`.
type runOptions struct {
	processOptions

	wait    *parsed[time.Duration]
	deliver bool
	quiet   bool
	out     *output
}

func newRunCommand(a *app) *cobra.Command {
	o := &runOptions{}
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
	o.addRunnerFlags(cmd)
	o.wait = flagOf(cmd.Flags(), "wait", "DURATION", "maximum wait for a lane that another runner holds (default 1s)", parseDuration)
	cmd.Flags().BoolVar(&o.deliver, "deliver", false, "then send the messages that are due")
	cmd.Flags().BoolVar(&o.quiet, "quiet", false, "show no progress")
	o.addPrivate(cmd)
	o.out = addOutput(cmd)
	cmd.RunE = a.run(&o.commandOptions, func(ctx context.Context) error { return runRun(ctx, o) })
	return cmd
}

// noticing is the time in which a server detects the closed connection of a dead runner. Until then
// the runner holds its lane.
const noticing = time.Second

// runRun runs the due jobs, and sends the due messages with --deliver.
func runRun(ctx context.Context, o *runOptions) (err error) {
	s, err := settings.Load(o.sources, func(settings.Config) bool { return o.deliver })
	if err == nil && o.deliver {
		err = canDeliver(s)
	}
	if err != nil {
		return err
	}
	if err := o.checkPrivate(s); err != nil {
		return err
	}
	show := newProgress(o.streams)
	defer show.Clear()
	logger := o.progressLogger(s, show)
	db, err := openDatabase(ctx, s, o.schema(), true, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.close()) }()
	if err := node.RecordRecipients(ctx, db.Pool, s.Channels, logger); err != nil {
		return err
	}
	part := node.Options{Config: s.Node(), Pool: db.Pool, Log: logger, Run: true, Deliver: o.deliver}
	held, err := node.HoldNames(ctx, part)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, held.Release(ctx)) }()
	cache, err := s.OpenCache()
	if err != nil {
		return err
	}
	if cache != nil {
		part.Cache = cache
		defer func() { err = errors.Join(err, cache.Close()) }()
	}
	part.Samples = samples.New(db.Pool, nil, logger)
	defer part.Samples.Start()()
	var options []job.Option
	if !o.quiet {
		options = append(options, job.WithObserver(show.observe))
	}
	runner, err := node.NewRunner(part, options...)
	if err != nil {
		return err
	}
	defer o.onHardStop(runner.StopNow)()
	r := oneRun{runOptions: o, settings: s, db: db, runner: runner, show: show, samples: part.Samples}
	err = r.walkAndDeliver(ctx, held, logger)
	show.Clear()
	if err != nil {
		return err
	}
	r.findUnsent(ctx)
	if o.out.json() {
		if err := o.printLines(r.report()); err != nil {
			return err
		}
	}
	return r.judge()
}

// walkAndDeliver runs the due jobs, and then delivers with --deliver. At a signal it reports the work
// that stops.
func (r *oneRun) walkAndDeliver(ctx context.Context, held *lifecycle.NameLock, logger zerolog.Logger) error {
	var delivering atomic.Bool
	reported := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		defer close(reported)
		if delivering.Load() {
			fmt.Fprintln(r.show, stoppingCalls)
			return
		}
		fmt.Fprintln(r.show, "stopping after the chunk in progress; a second signal rolls it back")
	})
	err := held.During(ctx, func(ctx context.Context) error {
		if err := r.walk(ctx, r.wait.or(noticing)); err != nil || !r.deliver {
			return err
		}
		delivering.Store(true)
		return r.drain(ctx, logger)
	})
	if !cancel() {
		<-reported
	}
	return err
}

// heldBy renders the runners that hold the lanes, and the time until their takeover.
func heldBy(held []job.Job, staleAfter time.Duration, db *database) string {
	ctx, cancel := context.WithTimeout(context.Background(), statementDeadline)
	defer cancel()
	now, err := job.NewStore(db.Pool).Now(ctx)
	lines := make([]string, 0, len(held))
	for _, j := range held {
		line := fmt.Sprintf("lane %s is held: job %d (%s) is RUNNING on %s", j.Lane, j.ID, j.Type, j.Runner)
		if err == nil && j.HeartbeatAt != nil { // the ages are optional
			age := now.Sub(*j.HeartbeatAt)
			line += fmt.Sprintf(", last heartbeat %s ago; without another it would be taken over in %s", text.Short(age), text.Short(staleAfter-age))
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n  ")
}
