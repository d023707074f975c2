package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/belfryhq/belfry/admin/access"
	"github.com/belfryhq/belfry/admin/operation"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/admin/console"
	"github.com/belfryhq/belfry/admin/jobs"
	"github.com/belfryhq/belfry/channels/unsubscribe"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/job/abortcache"
	"github.com/belfryhq/belfry/node"
	"github.com/belfryhq/belfry/node/metrics"
	"github.com/belfryhq/belfry/node/settings"
)

// apiConnections is the size of the HTTP API's own pool, so that requests take no connections from jobs
// and messages.
const apiConnections = 6

// stopConnections is the size of the reserved pool of operations that stop something, and of their
// authentication: a halt must not wait behind an abort that waits for a lock.
const stopConnections = 3

func newServeCommand(a *app) *cobra.Command {
	o := &processOptions{}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the HTTP API and the console, until a signal",
		Long: `Serve the HTTP API under /api/v1, and the console at /, until SIGINT or SIGTERM: then the
requests in progress are finished and the exit code is 0; a second signal cuts them off. Every
request needs a token, of ` + "`belfry tokens create`" + `, or a session of somebody who signed in, and
may do what its role may. ` + "`belfry daemon --listen`" + `
serves the same beside its other work.

With inbox.listen it also serves the notification centre to its readers, on an address of its own;
without api.listen it serves nothing else, and needs a database role for inbox only.

Without TLS it is served to this machine only: beyond it, api.tls.cert_file and
api.tls.key_file have to be set, or the proxy in front of it (api.proxy), or the exit code
is 78. SIGHUP: the certificate and api.unsubscribe_keys_file are read again. With --read-only
nothing is changed through it, and a standby will do.`,
		Example: `  belfry serve --listen 127.0.0.1:8470
  belfry serve --listen 127.0.0.1:8470 --read-only`,
		Args: noArgs,
	}
	addAPIFlags(cmd)
	addMetricsFlag(cmd)
	o.addPrivate(cmd)
	cmd.RunE = a.run(&o.commandOptions, func(ctx context.Context) error { return untilSignal(ctx, runServe(ctx, o)) })
	return cmd
}

// addAPIFlags adds the flags of the commands that serve the API.
func addAPIFlags(cmd *cobra.Command) {
	keyFlag(cmd.Flags(), "listen", "api.listen", "`HOST:PORT` where the HTTP API is served")
	keySwitch(cmd.Flags(), "read-only", "api.read_only", "change nothing through the HTTP API")
}

// runServe serves the HTTP API and the console.
func runServe(ctx context.Context, o *processOptions) (err error) {
	s, err := o.settings()
	if err != nil {
		return err
	}
	if s.API.Listen == "" && s.Inbox.Listen == "" {
		return &exitError{codeConfiguration,
			errors.New("api.listen: is empty; allowed values: HOST:PORT, such as 127.0.0.1:8470, here or by --listen, or inbox.listen alone")}
	}
	if err := o.checkPrivate(s); err != nil {
		return err
	}
	logger, _ := o.liveLogger(s, o.stderr)
	shown, err := openMonitor(ctx, s, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, shown.Close()) }()
	if s.API.Listen == "" {
		return runInbox(ctx, o, s, shown, logger)
	}
	s.Database.MaxConnections = min(s.Database.MaxConnections, apiConnections)
	db, err := openDatabase(ctx, s, schemaCurrent, !s.API.ReadOnly, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.close()) }()
	if !s.API.ReadOnly {
		if err := node.RecordRecipients(ctx, db.Pool, s.Channels, logger); err != nil {
			return err
		}
	}
	served, err := openAPI(ctx, o.app, s, db, shown, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, served.close()) }()
	centre, err := openInbox(ctx, o.app, s, db.DSN, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, centre.close()) }()
	return serve(ctx, o.streams, shown, logger, stoppingServer,
		centre.beside(shown, shown.Serving(db.Pool, s.Senders.Configs(), served.run)...)...)
}

const stoppingServer = "stopping after the requests in progress; a second signal stops at once"

// apiServer serves the HTTP API in this process. Nil serves nothing.
type apiServer struct {
	server   *api.Server
	cache    *abortcache.Cache
	provider *api.Provider      // may be nil
	links    *unsubscribe.Links // of recipients; may be nil
	db       *database          // of its own; may be nil
	reserve  *pgxpool.Pool      // of operations that stop something; nil if the API is read-only
	log      zerolog.Logger
	over     func() // ends the wait for the second signal
}

// openAPIBeside opens the API of a daemon, with a pool of its own on the daemon's database. It returns nil
// if api.listen is empty.
func openAPIBeside(ctx context.Context, a *app, s settings.Settings, beside *database, shown *metrics.Monitor,
	logger zerolog.Logger) (*apiServer, error) {
	if s.API.Listen == "" {
		return nil, nil //nolint:nilnil // nothing to serve
	}
	own := &database{DSN: beside.DSN, writes: !s.API.ReadOnly}
	s.Database.MaxConnections = apiConnections
	if err := own.prepare(ctx, s, logger); err != nil {
		return nil, err
	}
	x, err := openAPI(ctx, a, s, own, shown, logger)
	if err != nil {
		return nil, errors.Join(err, own.close())
	}
	x.db = own
	return x, nil
}

// openAPI listens on api.listen.
func openAPI(ctx context.Context, a *app, s settings.Settings, db *database, shown *metrics.Monitor,
	logger zerolog.Logger) (*apiServer, error) {
	x := &apiServer{log: logger}
	var err error
	if x.links, err = s.API.UnsubscribeLinks(); err != nil {
		return nil, &exitError{codeConfiguration, err}
	}
	proxy, err := s.API.TrustedProxy()
	if err != nil {
		return nil, &exitError{codeConfiguration, err}
	}
	if x.provider, err = s.API.Provider(); err != nil {
		return nil, &exitError{codeConfiguration, err}
	}
	if x.cache, err = s.OpenCache(); err != nil {
		return nil, err
	}
	all, err := openReserve(a, s, db, x.cache)
	if err != nil {
		return nil, errors.Join(err, x.closeReserve())
	}
	var stops *api.Reserve
	if !s.API.ReadOnly {
		if x.reserve, err = node.OpenReserve(ctx, db.DSN, s.Database, stopConnections, logger); err != nil {
			return nil, errors.Join(err, x.closeReserve())
		}
		if stops, err = openReserve(a, s, &database{Pool: x.reserve, DSN: db.DSN, Address: db.Address}, x.cache); err != nil {
			return nil, errors.Join(err, x.closeReserve())
		}
		stops.Env.Broadcaster = all.Env.Broadcaster
	}
	var handler *api.Handler
	handler = api.New(api.Options{
		Pages: func(served *api.Handler, at string) http.Handler {
			return console.New(served, at, admin.Operations(), s.API.Environment)
		},
		Observe:    observer(shown, func() int { return handler.Streams() }),
		Operations: admin.Operations(), Env: all.Env, Sessions: all.Sessions, Stops: stops, ReadOnly: s.API.ReadOnly,
		PublicURL: s.API.PublicURL, Proxy: proxy, OIDC: x.provider, Unsubscribe: x.links, Log: logger,
		Authenticate: all.Authenticate,
	})
	if x.server, err = api.Listen(ctx, s.API, handler); err != nil {
		return nil, errors.Join(listenError(err), x.closeReserve())
	}
	x.over = a.onHardStop(func(error) { _ = x.server.Close() })
	logger.Info().Str("detail", x.server.URL()).Msg("the HTTP API is served")
	return x, nil
}

// observer returns the function that counts requests in the metrics, or nil.
func observer(shown *metrics.Monitor, streams func() int) func(api.Answered) {
	var names []string
	for _, o := range operation.WithQuestions(admin.Operations()) {
		names = append(names, o.Name)
	}
	count := shown.API(names, streams)
	if count == nil {
		return nil
	}
	return func(r api.Answered) { count(metrics.Request(r)) }
}

// openReserve returns the environment of requests that use the connections of db.
func openReserve(a *app, s settings.Settings, db *database, cache *abortcache.Cache) (*api.Reserve, error) {
	store := job.NewStore(db.Pool)
	if cache != nil {
		store = store.WithAbortCache(cache)
	}
	env, err := a.env(s, db, store)
	if err != nil {
		return nil, err
	}
	env.Broadcaster = jobs.NewBroadcaster(api.PollInterval)
	r := &api.Reserve{Env: *env, Authenticate: func(ctx context.Context, secret string) (access.Identity, error) {
		return access.Authenticate(ctx, db.Pool, secret, !s.API.ReadOnly)
	}}
	if !s.API.ReadOnly {
		r.Sessions, err = access.NewSessions(db.Pool, s.API.Sessions.Lifetime, s.API.Sessions.Idle)
	}
	return r, err
}

// beside returns the loops of a daemon and of the API.
func (x *apiServer) beside(shown *metrics.Monitor, loops ...func(context.Context) error) []func(context.Context) error {
	if x == nil {
		return loops
	}
	return append(loops, shown.Loop("api", x.run))
}

// run serves until ctx is cancelled. At SIGHUP it reads the certificate and the keys of links again.
func (x *apiServer) run(ctx context.Context) error {
	return untilStopped(ctx, x.server, x.log, func() {
		if x.links == nil {
			return
		}
		if changed, err := x.links.Reload(); err != nil {
			x.log.Error().Err(fmt.Errorf("api.unsubscribe_keys_file: %w", err)).Msg("keys of links refused; those before stay")
		} else if changed {
			x.log.Info().Msg("keys of links read again")
		}
	})
}

// untilStopped serves until ctx is cancelled. At SIGHUP it reads the certificate again and calls reload.
func untilStopped(ctx context.Context, server *api.Server, log zerolog.Logger, reload func()) error {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	living, end := context.WithCancel(ctx)
	var loop sync.WaitGroup
	loop.Go(func() {
		on(living, hangups, func(context.Context) {
			if err := server.Reload(); err != nil {
				log.Error().Err(err).Msg("certificate refused; the one before stays")
			}
			reload()
		})
	})
	err := server.Run(ctx)
	end()
	loop.Wait()
	return err
}

// closeReserve closes the reserved pool and the abort cache.
func (x *apiServer) closeReserve() error {
	if x.reserve != nil {
		x.reserve.Close()
	}
	if x.cache == nil {
		return nil
	}
	return x.cache.Close()
}

func (x *apiServer) close() error {
	if x == nil {
		return nil
	}
	x.over()
	err := errors.Join(x.server.Close(), x.closeReserve())
	if x.provider != nil {
		x.provider.Close()
	}
	if x.db != nil {
		err = errors.Join(err, x.db.close())
	}
	return err
}
