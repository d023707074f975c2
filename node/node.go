package node

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/channels/unsubscribe"
	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/relay"
	"github.com/belfryhq/belfry/outbox/samples"
)

// Options are the parts of a process.
type Options struct {
	Config  Config
	Pool    *pgxpool.Pool // stays open
	Log     zerolog.Logger
	Run     bool       // run jobs, schedules and retention
	Deliver bool       // deliver messages
	Types   []job.Type // in addition to inbox and push

	Senders []relay.Sender     // stay open
	Broker  outbox.Broker      // the carrier of message ids, which stays open; nil means PostgreSQL
	Links   *unsubscribe.Links // the keys of opt-out links in mail, which Reload reads again; may be nil
	Cache   job.AbortCache     // stays open; may be nil
	Monitor Monitor            // may be nil
	// Samples counts the events of NewRunner and NewRelay. Open makes its own. Nil counts nothing.
	Samples *samples.Recorder
	// Keys is the configuration struct whose keys Reload compares. Nil means Config.
	Keys any
}

// senderConfigs returns the configurations of the senders.
func (o Options) senderConfigs() []relay.SenderConfig {
	list := make([]relay.SenderConfig, len(o.Senders))
	for i, s := range o.Senders {
		list[i] = s.SenderConfig
	}
	return list
}

// Node is one process of belfry. Its methods are safe for concurrent use, except Start and Close.
type Node struct {
	o           Options
	held        *lifecycle.NameLock
	outage      *job.Outage
	runner      *job.Runner  // nil if jobs do not run here
	relay       *relay.Relay // nil if no messages are delivered here
	reloader    *reloader
	maintenance *maintenance // nil if jobs do not run here
	closers     []func() error
}

// Open makes a process. It acquires the configured names; another process may hold them, which is a
// *lifecycle.NameInUseError. A part that cannot be used is a *ConfigError. Call Close after the end of all
// loops.
func Open(ctx context.Context, o Options) (n *Node, err error) {
	if o.Monitor == nil {
		o.Monitor = noMonitor{}
	}
	if err := RecordRecipients(ctx, o.Pool, o.Config.Channels, o.Log); err != nil {
		return nil, err
	}
	n = &Node{o: o, outage: job.NewOutage(o.Log)}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close())
			n = nil
		}
	}()
	if n.held, err = HoldNames(ctx, o); err != nil {
		return n, err
	}
	n.closes(func() error { return n.held.Release(ctx) })
	o.Samples = samples.New(o.Pool, n.outage, o.Log)
	stop := o.Samples.Start()
	n.closes(func() error { stop(); return nil })
	hints := make(chan struct{}, 1)
	if o.Run {
		types := []string{outbox.TypeInbox, outbox.TypePush}
		for _, t := range o.Types {
			types = append(types, t.Name())
		}
		options := append(o.Monitor.Runner(types), job.WithHint(func() { ask(hints) }), job.WithOutage(n.outage))
		if n.runner, err = NewRunner(o, options...); err != nil {
			return n, err
		}
	}
	if o.Deliver {
		options := append(o.Monitor.Relay(o.senderConfigs()), relay.WithOutage(n.outage))
		if n.relay, err = newRelay(ctx, o, options...); err != nil {
			return n, err
		}
	}
	n.reloader = newReloader(o, n.runner, n.relay)
	if o.Run {
		n.maintenance = newMaintenance(n.reloader, o.Pool, hints, n.outage)
	}
	return n, nil
}

// closes lets Close call f before the closers of parts that were opened earlier.
func (n *Node) closes(f func() error) { n.closers = append(n.closers, f) }

// Start begins the maintenance, which runs until Close.
func (n *Node) Start(ctx context.Context) error {
	if n.maintenance == nil {
		return nil
	}
	living, end := context.WithCancel(ctx)
	wait, err := n.maintenance.start(living)
	if err != nil {
		end()
		return err
	}
	n.closes(func() error {
		end()
		return wait()
	})
	return nil
}

// Loops returns the loops of the process, which run concurrently until their context ends.
func (n *Node) Loops() []func(context.Context) error {
	m := n.o.Monitor
	var loops []func(context.Context) error
	if n.held.Any() {
		loops = append(loops, m.Loop("names", n.held.Run))
	}
	if n.runner != nil {
		loops = append(loops, m.Loop("runner", n.runner.Run))
	}
	p := Polled{Pool: n.o.Pool, Broker: n.o.Broker, Senders: n.o.senderConfigs(), Outage: n.outage}
	if n.relay != nil {
		p.Stats = n.relay.Stats
		loops = append(loops, m.Loop("relay", n.relay.Run))
	}
	return append(loops, m.Poll(p)...)
}

// StopNow stops the loops at once: the chunk in progress is rolled back and calls in flight are cut
// short. cause is recorded with them.
func (n *Node) StopNow(cause error) {
	if n.runner != nil {
		n.runner.StopNow(cause)
	}
	if n.relay != nil {
		n.relay.StopNow(cause)
	}
}

// Reload applies the settings of next that may change while the process runs. It returns the changed keys,
// and the keys that wait for the next start. With an error nothing has changed.
func (n *Node) Reload(ctx context.Context, next Update) (changed, waiting []string, err error) {
	changed, waiting, err = n.reloader.reload(next)
	if n.maintenance != nil && slices.Contains(changed, "schedules") {
		n.maintenance.sync(ctx)
	}
	return changed, waiting, err
}

// Name returns the name of the runner, or "" if jobs do not run here.
func (n *Node) Name() string {
	if n.runner == nil {
		return ""
	}
	return n.runner.Name()
}

// Stats returns the statistics of the relay, or zero if no messages are delivered here.
func (n *Node) Stats() relay.Stats {
	if n.relay == nil {
		return relay.Stats{}
	}
	return n.relay.Stats()
}

// Close ends the maintenance and releases the names.
func (n *Node) Close() error {
	var errs []error
	for _, f := range slices.Backward(n.closers) {
		errs = append(errs, f())
	}
	n.closers = nil
	return errors.Join(errs...)
}

// HoldNames acquires the configured names of the runner and of the relay. Generated names need no lock.
// The caller releases them.
func HoldNames(ctx context.Context, o Options) (*lifecycle.NameLock, error) {
	var given []lifecycle.Name
	if name := o.Config.Runner.Name; o.Run && name != "" {
		given = append(given, lifecycle.Name{Kind: lifecycle.RunnerName, Name: name})
	}
	if name := o.Config.Delivery.Relay.Name; o.Deliver && name != "" {
		given = append(given, lifecycle.Name{Kind: lifecycle.RelayName, Name: name})
	}
	hold, err := lifecycle.LockNames(ctx, o.Pool, given...)
	return hold, job.TranslateOutage(err, job.ErrLocked)
}

// NewRunner makes a runner of belfry's job types and of those of o.
func NewRunner(o Options, options ...job.Option) (*job.Runner, error) {
	store, err := channels.New(o.Config.Channels)
	if err != nil {
		return nil, err
	}
	options = append(options, job.WithLogger(o.Log))
	if o.Cache != nil {
		options = append(options, job.WithAbortCache(o.Cache))
	}
	if o.Samples != nil {
		options = append(options, job.WithObserver(o.Samples.Walk()))
	}
	return job.NewRunner(o.Pool, o.Config.Runner, append(outbox.Types(store), o.Types...), options...)
}

// RecordRecipients records channels.relation in the database. Changes and failures of the database are
// logged.
func RecordRecipients(ctx context.Context, pool *pgxpool.Pool, c channels.Config, log zerolog.Logger) error {
	store, err := channels.New(c)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	was, err := store.Record(ctx, pool)
	switch {
	case err != nil:
		log.Warn().Err(err).Msg("cannot record channels.relation in the database")
	case was != "":
		log.Info().Str("detail", was+" before, "+store.Relation()+" now").Msg("channels.relation recorded in the database")
	}
	return nil
}
