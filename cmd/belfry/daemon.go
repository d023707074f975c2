package main

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/node"
	"github.com/belfryhq/belfry/node/metrics"
	"github.com/belfryhq/belfry/node/settings"
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
	privateFlag(a, cmd)
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
	if deliver = deliver && s.Delivers(); deliver {
		collect(gcRelay)
	}
	n, err := a.openNode(ctx, need, node.Options{Settings: s, Log: logger, Run: true, Deliver: deliver})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	served, err := a.openAPIBeside(ctx, s, n.db, n.shown, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, served.close()) }()
	defer a.reloads(cmd, n.Node, logger, level)()
	if err := n.Start(ctx); err != nil {
		return err
	}
	logger.Info().Str("worker_id", n.Name()).Msg("daemon started")
	if err := a.serve(ctx, logger, "stopping after the chunk in progress; a second signal stops at once", served.beside(n.shown, n.Loops()...)...); err != nil {
		return err
	}
	logger.Info().Msg("daemon stopped")
	return nil
}

// running is a node with what it stands on.
type running struct {
	*node.Node

	shown   *node.Monitor
	db      *database
	closers []func() error
}

// openNode opens what a node stands on, and it. Pool and Monitor are openNode's to give. The
// second signal stops it at once.
func (a *app) openNode(ctx context.Context, need schemaNeed, o node.Options) (n *running, err error) {
	if err := a.checkPrivate(o.Settings); err != nil {
		return nil, err
	}
	n = &running{}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.close())
			n = nil
		}
	}()
	if n.shown, err = openMonitor(ctx, o.Settings, o.Log); err != nil {
		return n, err
	}
	o.Monitor = n.shown
	n.closers = append(n.closers, n.shown.Close)
	if n.db, err = a.openPrimary(ctx, o.Settings, need, o.Log); err != nil {
		return n, err
	}
	n.closers = append(n.closers, n.db.close)
	o.Pool = n.db.Pool
	if n.Node, err = node.Open(ctx, o); err != nil {
		return n, err
	}
	over := a.stopHard(n.StopNow)
	n.closers = append(n.closers, n.Node.Close, func() error { over(); return nil })
	return n, nil
}

// openMonitor shows this process where the configuration says.
func openMonitor(ctx context.Context, s settings.Settings, logger zerolog.Logger) (*node.Monitor, error) {
	b := thisBuild()
	return node.OpenMonitor(ctx, s.Metrics, metrics.Build{Version: b.Version, Commit: b.Commit, Go: b.Go}, logger)
}

func (n *running) close() error {
	var errs []error
	for _, f := range slices.Backward(n.closers) {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
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
	err := lifecycle.Together(ctx, loops...)
	close(over)
	<-told
	return err
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
