package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"syscall"

	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/node"
	"github.com/belfryhq/belfry/node/metrics"
	"github.com/belfryhq/belfry/node/settings"
	"github.com/belfryhq/belfry/outbox/inbox"
	"github.com/belfryhq/belfry/outbox/inbox/live"
)

// inboxServer serves the notification centre in this process. Nil serves nothing.
type inboxServer struct {
	server *api.Server
	live   *live.Server
	db     *database // its own
	feed   *database // of the streams
	log    zerolog.Logger
	over   func() // ends the wait for the second signal
}

// openInbox listens on inbox.listen, with a pool of its own. It returns nil if inbox.listen is empty.
func openInbox(ctx context.Context, a *app, s settings.Settings, dsn string, logger zerolog.Logger) (x *inboxServer, err error) {
	if s.Inbox.Listen == "" {
		return nil, nil //nolint:nilnil // nothing to serve
	}
	hints, err := s.Delivery.Carrier.Hints(logger)
	if err != nil {
		return nil, err
	}
	own, feed := &database{DSN: dsn, writes: true}, &database{DSN: dsn, writes: true}
	defer func() {
		if err != nil {
			err = errors.Join(err, own.close(), feed.close(), hints.Close())
		}
	}()
	s.Database.MaxConnections = s.Inbox.Centre.MaxConnections
	if err := own.prepare(ctx, s, logger); err != nil {
		return nil, err
	}
	s.Database.MaxConnections = live.Connections
	if err := feed.prepare(ctx, s, logger); err != nil {
		return nil, err
	}
	store := inbox.NewStore(own.Pool)
	if _, err := store.Counts(ctx, 0); err != nil && db.KindOf(err) == db.KindForbidden {
		return nil, &exitError{codeConfiguration, fmt.Errorf("%s lacks rights for inbox.listen; `belfry roles --for inbox` prints them: %w",
			own.Address.User, err)}
	}
	handler, err := inbox.New(s.Inbox.Centre, store, logger)
	if err != nil {
		return nil, &exitError{codeConfiguration, err}
	}
	at := s.Inbox.Endpoint()
	x = &inboxServer{db: own, feed: feed, log: logger}
	x.live = live.New(feed.Pool, s.Inbox.Centre.MaxStreams, handler, job.NewOutage(logger), logger)
	if hints != nil {
		x.live.Share(hints)
	}
	handler.Handle("GET "+inbox.Prefix+"/stream", http.HandlerFunc(x.live.ServeEvents))
	handler.Handle("GET "+inbox.Prefix+"/ws", http.HandlerFunc(x.live.ServeWebSocket))
	handler.OnMark(x.live.Marked)
	if x.server, err = at.Serve(ctx, at.RequireTLS(handler)); err != nil {
		return nil, listenError(err)
	}
	x.over = a.onHardStop(func(error) { _ = x.server.Close() })
	logger.Info().Str("detail", x.server.URL()).Msg("the notification centre is served")
	return x, nil
}

// listenError is the error of an address or a certificate that cannot be served.
func listenError(err error) error {
	code := codeConfiguration
	if errors.Is(err, syscall.EADDRINUSE) {
		code = codeUnavailable
	}
	return &exitError{code, err}
}

// beside returns the loops of a process and of the notification centre.
func (x *inboxServer) beside(shown *metrics.Monitor, loops ...func(context.Context) error) []func(context.Context) error {
	if x == nil {
		return loops
	}
	shown.Inbox(x.live.Stats)
	return append(loops, shown.Loop("live", x.live.Run), shown.Loop("inbox", func(ctx context.Context) error {
		return untilStopped(ctx, x.server, x.log, func() {})
	}))
}

func (x *inboxServer) close() error {
	if x == nil {
		return nil
	}
	x.over()
	return errors.Join(x.server.Close(), x.db.close(), x.feed.close())
}

// runInbox serves the notification centre alone. The database role may lack the right to read the schema's version.
func runInbox(ctx context.Context, o *processOptions, s settings.Settings, shown *metrics.Monitor, logger zerolog.Logger) (err error) {
	polled := s
	polled.Database.MaxConnections = 1
	db, err := openDatabase(ctx, polled, schemaReadable, true, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.close()) }()
	served, err := openInbox(ctx, o.app, s, db.DSN, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, served.close()) }()
	polls := shown.Poll(node.Polled{Pool: db.Pool, Outage: job.NewOutage(logger)})
	return serve(ctx, o.streams, shown, logger, stoppingServer, served.beside(shown, polls...)...)
}
