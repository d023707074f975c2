package main

import (
	"context"
	"errors"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/outbox"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/node"
	"github.com/belfryhq/belfry/node/settings"
)

// executor runs operations on the database.
type executor struct {
	app *app
	env *operation.Env
}

// Question returns the confirmation that the operation asks for; the zero value if it asks for none.
func (x executor) Question(ctx context.Context, o operation.Operation, in any) (operation.Question, error) {
	if o.Confirm == nil {
		return operation.Question{}, nil
	}
	return o.Confirm(ctx, x.env, in)
}

// Run runs an operation within its deadline. On a terminal a line shows its progress.
func (x executor) Run(ctx context.Context, o operation.Operation, in any) (any, error) {
	if o.Deadline > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.Deadline)
		defer cancel()
	}
	live := x.app.live()
	defer live.Clear()
	if live.OnTerminal() {
		x.env.Progress = live.Line
	}
	return o.Run(ctx, x.env, in)
}

// withExecutor connects to the database as far as an operation needs it, and calls do.
func (c commandOptions) withExecutor(ctx context.Context, o operation.Operation, do func(context.Context, executor) error) error {
	run := func(ctx context.Context, s settings.Settings, db *database) (err error) {
		cache, err := s.OpenCache()
		if err != nil {
			return err
		}
		store := job.NewStore(db.Pool)
		if cache != nil {
			defer func() { err = errors.Join(err, cache.Close()) }()
			store = store.WithAbortCache(cache)
		}
		env, err := c.env(s, db, store)
		if err != nil {
			return err
		}
		env.InStep = func(ctx context.Context) error {
			return node.RecordRecipients(ctx, db.Pool, s.Channels, c.progressLogger(s, c.stderr))
		}
		return do(ctx, executor{c.app, env})
	}
	switch o.Need {
	case operation.NeedServer:
		return c.withDatabase(ctx, schemaAny, 0, run)
	case operation.NeedNothing:
		return c.withUncheckedDatabase(ctx, run)
	case operation.NeedConfiguration:
		s, err := c.settings()
		if err != nil {
			return err
		}
		return run(ctx, s, new(database))
	case operation.NeedSchema:
	}
	return c.withDatabase(ctx, schemaCurrent, 0, run)
}

// env returns the environment of operations. Jobs are read and written through store.
func (a *app) env(s settings.Settings, db *database, store *job.Store) (*operation.Env, error) {
	recipients, err := channels.New(s.Channels)
	if err != nil {
		return nil, err
	}
	env := &operation.Env{
		DB: db.Pool, Jobs: store, Channels: recipients, Carrier: a.carrier(s), Setup: setupOf(s, db),
		Actor: a.whoami(), Role: operation.Admin, Now: a.now, Compose: operation.Compose(s.Delivery.Compose), Retention: s.Retention,
	}
	for _, sender := range s.Senders {
		env.Senders, env.Media = append(env.Senders, sender.Name), append(env.Media, sender.Medium)
	}
	env.Compose.NoAddress = s.Senders.Targeted()
	for _, file := range s.Files {
		env.ConfigFlags += " --config " + text.ShellWord(file)
	}
	return env, nil
}

// carrier returns the configured carrier of message ids.
func (a *app) carrier(s settings.Settings) operation.Carrier {
	c := s.Delivery.Carrier
	at, carried := c.At()
	if !carried {
		return operation.Carrier{Transport: c.Transport}
	}
	key, most := c.TakenMost()
	carrier := operation.Carrier{
		Transport: c.Transport, Server: at, TakenKey: key, TakenMost: most, InFlight: s.Delivery.Relay.MaxInFlight,
		RequeueAfter: c.RequeueAfter,
		Open:         func() (outbox.Broker, error) { return c.Open(s.Delivery.Relay, a.briefLogger(s)) },
	}
	if s.Inbox.Listen != "" {
		carrier.CheckHints = func(ctx context.Context) error { return c.CheckHints(ctx, a.briefLogger(s)) }
	}
	return carrier
}

// setupOf describes this process to the doctor.
func setupOf(s settings.Settings, db *database) operation.Setup {
	setup := operation.Setup{
		Configuration: s.FilesRead(), OpenFiles: s.OpenFiles(), Console: s.API.Console(),
		Database: "given by " + s.Source("database.url").String(), Address: db.Address.String(), Private: db.Private != nil,
		Place: s.Delivery.Relay.Place, Listens: s.Runner.Listen || s.Delivery.Relay.Listen, StaleAfter: s.Runner.StaleAfter, Health: s.Runner.Load.Health,
	}
	if db.Private != nil {
		setup.Database = "private server, PostgreSQL " + db.Private.Install().Version + " of " + db.Private.Install().BinDir
	}
	return setup
}
