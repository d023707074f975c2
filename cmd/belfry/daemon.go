package main

import (
	"context"
	"errors"
	"slices"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/node"
	"github.com/belfryhq/belfry/node/metrics"
	"github.com/belfryhq/belfry/node/settings"
)

func newDaemonCommand(a *app) *cobra.Command {
	o := &daemonOptions{}
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
HTTP API, as ` + "`belfry serve`" + ` does, and with inbox.listen the notification centre.

SIGHUP: the configuration is read again. runner.chunk, runner.load, runner.retry,
runner.max_skips, retention, schedules, log.level, and limits and policies of
delivery and senders take effect at once; the log says what changed and what waits for a
restart. A configuration with a problem changes nothing, and every problem is logged.

systemd gets READY=1, STOPPING=1, and WATCHDOG=1 while /livez of metrics.listen is live, or
always without metrics.listen. contrib/systemd has units.`,
		Example: `  belfry daemon
  belfry daemon --migrate --log-format json`,
		Args: noArgs,
	}
	o.addRunnerFlags(cmd)
	keyFlag(cmd.Flags(), "relay-name", "delivery.name", "`NAME` of the relay in it, unique among the living")
	addMetricsFlag(cmd)
	addAPIFlags(cmd)
	o.addPrivate(cmd)
	cmd.Flags().BoolVar(&o.noDeliver, "no-deliver", false, "run jobs only, deliver nothing")
	cmd.RunE = a.run(&o.commandOptions, func(ctx context.Context) error { return untilSignal(ctx, runDaemon(ctx, o)) })
	return cmd
}

// daemonOptions are the options of `belfry daemon`.
type daemonOptions struct {
	processOptions

	noDeliver bool
}

// runDaemon runs jobs, schedules and retention, and delivers messages if senders are configured.
func runDaemon(ctx context.Context, o *daemonOptions) (err error) {
	s, err := settings.Load(o.sources, func(c settings.Config) bool { return !o.noDeliver && c.Delivers() })
	if err != nil {
		return err
	}
	logger, level := o.liveLogger(s, o.stderr)
	deliver := !o.noDeliver && s.Delivers()
	if deliver {
		collect(gcRelay)
	}
	n, err := openNode(ctx, &o.processOptions, s, node.Options{Log: logger, Run: true, Deliver: deliver})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	served, err := openAPIBeside(ctx, o.app, s, n.db, n.shown, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, served.close()) }()
	centre, err := openInbox(ctx, o.app, s, n.db.DSN, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, centre.close()) }()
	defer reloadOnHangup(ctx, o.sources, s.Config, n.Node, logger, level)()
	if err := n.Start(ctx); err != nil {
		return err
	}
	logger.Info().Str("worker_id", n.Name()).Msg("daemon started")
	if err := serve(ctx, o.streams, n.shown, logger, "stopping after the chunk in progress; a second signal stops at once",
		centre.beside(n.shown, served.beside(n.shown, n.Loops()...)...)...); err != nil {
		return err
	}
	logger.Info().Msg("daemon stopped")
	return nil
}

// running is a node with its database and its monitor.
type running struct {
	*node.Node

	shown   *metrics.Monitor
	db      *database
	closers []func() error
}

// openNode opens a node with the parts that the settings name. The second signal stops it at once.
func openNode(ctx context.Context, process *processOptions, s settings.Settings, o node.Options) (n *running, err error) {
	if err := process.checkPrivate(s); err != nil {
		return nil, err
	}
	n = &running{}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.close())
			n = nil
		}
	}()
	if n.shown, err = openMonitor(ctx, s, o.Log); err != nil {
		return n, err
	}
	n.closers = append(n.closers, n.shown.Close)
	if n.db, err = openDatabase(ctx, s, process.schema(), true, o.Log); err != nil {
		return n, err
	}
	n.closers = append(n.closers, n.db.close)
	o.Config, o.Keys, o.Pool, o.Monitor = s.Node(), s.Config, n.db.Pool, n.shown
	if o.Run {
		cache, err := s.OpenCache()
		if err != nil {
			return n, err
		}
		if cache != nil {
			o.Cache = cache
			n.closers = append(n.closers, cache.Close)
		}
	}
	if o.Deliver {
		parts, err := s.Open(true, o.Log)
		if err != nil {
			return n, err
		}
		o.Senders, o.Links, o.Broker = parts.Senders, parts.Links, parts.Broker
		n.closers = append(n.closers, parts.Close)
	}
	if n.Node, err = node.Open(ctx, o); err != nil {
		return n, err
	}
	over := process.onHardStop(n.StopNow)
	n.closers = append(n.closers, n.Node.Close, func() error { over(); return nil })
	return n, nil
}

// openMonitor serves the metrics of this process on metrics.listen.
func openMonitor(ctx context.Context, s settings.Settings, logger zerolog.Logger) (*metrics.Monitor, error) {
	b := thisBuild()
	return metrics.OpenMonitor(ctx, s.Metrics, metrics.Build{Version: b.Version, Commit: b.Commit, Go: b.Go}, logger)
}

func (n *running) close() error {
	var errs []error
	for _, f := range slices.Backward(n.closers) {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// serve runs loops until ctx is cancelled, and notifies the service manager.
func serve(ctx context.Context, x *streams, shown *metrics.Monitor, log zerolog.Logger, stopping string,
	loops ...func(context.Context) error) error {
	return node.ServiceManager{Variable: x.variable, Live: shown.Live, Log: log}.Serve(ctx, stopping, loops...)
}

// untilSignal returns the error of a command that runs until a signal. A signal that interrupts its
// start is not an error.
func untilSignal(ctx context.Context, err error) error {
	if errors.Is(err, context.Canceled) && errors.Is(context.Cause(ctx), errInterrupted) {
		return nil
	}
	return err
}
