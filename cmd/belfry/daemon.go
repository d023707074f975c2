package main

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/internal/settings"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox/relay"
)

func newDaemonCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "daemon",
		Short: "Run jobs as they fall due, until a signal",
		Long: `Run jobs as they fall due, until SIGINT or SIGTERM: then the chunk in progress is
finished, its job handed back with its cursor, and the exit code is 0. A second
signal rolls the chunk in progress back instead. Any number of daemons may work
on one database. A daemon also fires schedules, brings those of the configuration
into the database when it starts, and deletes what retention lets go. With senders in
the configuration it delivers messages as well, as ` + "`belfry relay`" + ` does, unless
delivery.enabled is false or --no-deliver is given. With api.listen or --listen it serves the
HTTP API, as ` + "`belfry serve`" + ` does.

SIGHUP: the configuration is read again. runner.chunk, runner.load, runner.retry,
runner.max_skips, retention, schedules, log.level, and limits and policies of
delivery and senders take effect at once; the log says what changed and what waits for a
restart. A configuration with a problem changes nothing, and every problem is logged.

Under systemd use Type=notify, ExecReload=kill -HUP $MAINPID, Restart=on-failure,
RestartPreventExitStatus=2 78, and a TimeoutStopSec longer than runner.grace_period.`,
		Example: `  belfry daemon
  belfry daemon --migrate --log-format json`,
		Args: noArgs,
	}
	flags := addRunFlags(cmd)
	keyFlag(cmd.Flags(), "relay-name", "delivery.name", "`NAME` of the relay in it, unique among the living")
	metricsFlag(cmd)
	apiFlags(cmd)
	noDeliver := cmd.Flags().Bool("no-deliver", false, "run jobs only, deliver nothing")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return untilSignal(cmd.Context(), a.daemon(cmd, flags.schema(), !*noDeliver))
	}
	return cmd
}

// daemon is `belfry daemon`.
func (a *app) daemon(cmd *cobra.Command, need schemaNeed, deliver bool) (err error) {
	s, err := settings.Load(a.configInput(cmd), func(c settings.Config) bool { return deliver && c.Delivers() })
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	logger, level := a.liveLogger(s, a.stderr)
	shown, err := openMonitor(ctx, s, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, shown.close()) }()
	db, err := a.openPrimary(ctx, s, need, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.close()) }()
	if err := db.recordRecipients(ctx, s, logger); err != nil {
		return err
	}
	held, err := holdNames(ctx, s, db, true, deliver && s.Delivers())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, held.Release(ctx)) }()
	outage := job.NewOutage(logger)
	hints := make(chan struct{}, 1)
	runner, done, err := newRunner(s, db, logger, append(shown.runner(), job.WithHint(func() { ask(hints) }), job.WithOutage(outage))...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	defer a.stopHard(runner.StopNow)()
	loops := []func(context.Context) error{shown.keeping(held), shown.loop("runner", runner.Run)}
	var relaying *delivery
	if deliver && s.Delivers() {
		if relaying, err = newDelivery(ctx, s, db, logger, append(shown.relay(s), relay.WithOutage(outage))...); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, relaying.close()) }()
		defer a.stopHard(relaying.StopNow)()
		loops = append(loops, shown.loop("relay", relaying.Run))
	}
	served, err := a.openAPIBeside(ctx, s, db, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, served.close()) }()
	loops = shown.watch(s, db, outage, relaying, served.beside(loops...)...)
	living, end := context.WithCancel(ctx)
	defer end()
	reloader := newReloader(s, func() (settings.Settings, error) { return a.settings(cmd) }, runner, relaying, logger, level)
	wait, err := newMaintenance(reloader, db, hints, outage).start(living)
	if err != nil {
		return err
	}
	defer func() {
		end()
		err = errors.Join(err, wait())
	}()

	logger.Info().Str("worker_id", runner.Name()).Msg("daemon started")
	if err := a.serve(ctx, logger, "stopping after the chunk in progress; a second signal stops at once", loops...); err != nil {
		return err
	}
	logger.Info().Msg("daemon stopped")
	return nil
}

// serve runs loops that end when their context is cancelled, and tells the service
// manager. One that ends with an error ends the others.
func (a *app) serve(ctx context.Context, logger zerolog.Logger, stopping string, loops ...func(context.Context) error) error {
	a.notifySystemd(logger, "READY=1")
	over, told := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(told)
		select {
		case <-ctx.Done():
			a.notifySystemd(logger, "STOPPING=1")
			logger.Info().Msg(stopping)
		case <-over:
		}
	}()
	running, end := context.WithCancel(ctx)
	defer end()
	errs := make([]error, len(loops))
	var group sync.WaitGroup
	for i, loop := range loops {
		group.Go(func() {
			if errs[i] = loop(running); errs[i] != nil {
				end()
			}
		})
	}
	group.Wait()
	close(over)
	<-told
	return errors.Join(errs...)
}

// untilSignal is what became of a command that ends by a signal only: one that came while
// the command started cuts that short, and is no failure either.
func untilSignal(ctx context.Context, err error) error {
	if errors.Is(err, context.Canceled) && errors.Is(context.Cause(ctx), errInterrupted) {
		return nil
	}
	return err
}

// notifySystemd tells the service manager, if there is one, what state the
// daemon is in; see sd_notify(3). That it cannot be told is no reason to stop.
func (a *app) notifySystemd(logger zerolog.Logger, state string) {
	path := a.variable("NOTIFY_SOCKET")
	if path == "" {
		return
	}
	if name, abstract := strings.CutPrefix(path, "@"); abstract {
		path = "\x00" + name
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err == nil {
		err = errors.Join(conn.SetWriteDeadline(time.Now().Add(time.Second)), write(conn, state), conn.Close())
	}
	if err != nil {
		logger.Warn().Err(err).Msg("cannot notify the service manager")
	}
}

func write(conn net.Conn, text string) error {
	_, err := conn.Write([]byte(text))
	return err
}
