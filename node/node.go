package node

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/node/settings"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/relay"
)

// Options are what a process is made of. One that neither runs jobs nor delivers does nothing.
type Options struct {
	Settings settings.Settings
	Pool     *pgxpool.Pool // stays open
	Log      zerolog.Logger
	Run      bool           // jobs, schedules and retention
	Deliver  bool           // messages
	Types    []job.Type     // besides inbox and push
	Senders  []relay.Sender // besides those of the settings; stay open
	Monitor  *Monitor       // nil: none
}

// senders are all senders as the relay is told of them, with s for those of the settings.
func (o Options) senders(s settings.Senders) []relay.SenderConfig {
	list := s.Configs()
	for _, own := range o.Senders {
		list = append(list, own.SenderConfig)
	}
	return list
}

// Node is one process of belfry. Its methods are safe for concurrent use, but for Start and
// Close.
type Node struct {
	o           Options
	held        *lifecycle.NameLock
	outage      *job.Outage
	runner      *job.Runner // nil: jobs are not run here
	delivery    *Delivery   // nil: nothing is delivered here
	reloader    *reloader
	maintenance *maintenance // nil: jobs are not run here
	closers     []func() error
}

// Open makes a process. It takes the names that the settings give, which another process may
// hold: a *lifecycle.NameInUseError. Something that they name and that is unfit is a
// *settings.UnfitError. Close follows the end of all loops.
func Open(ctx context.Context, o Options) (n *Node, err error) {
	s := o.Settings
	if err := RecordRecipients(ctx, o.Pool, s.Channels, o.Log); err != nil {
		return nil, err
	}
	n = &Node{o: o, outage: job.NewOutage(o.Log)}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close())
			n = nil
		}
	}()
	if n.held, err = HoldNames(ctx, s, o.Pool, o.Run, o.Deliver); err != nil {
		return n, err
	}
	n.closes(func() error { return n.held.Release(ctx) })
	hints := make(chan struct{}, 1)
	if o.Run {
		options := append(o.Monitor.runner(o.Types), job.WithHint(func() { ask(hints) }), job.WithOutage(n.outage))
		runner, done, err := NewRunner(s, o.Pool, o.Types, o.Log, options...)
		if err != nil {
			return n, err
		}
		n.runner = runner
		n.closes(done)
	}
	if o.Deliver {
		options := append(o.Monitor.relay(o.senders(s.Senders)), relay.WithOutage(n.outage))
		if n.delivery, err = newDelivery(ctx, s, o.Pool, o.Senders, o.Log, options...); err != nil {
			return n, err
		}
		n.closes(n.delivery.Close)
	}
	n.reloader = newReloader(o, n.runner, n.delivery)
	if o.Run {
		n.maintenance = newMaintenance(n.reloader, o.Pool, hints, n.outage)
	}
	return n, nil
}

// closes has Close call f before what was opened earlier.
func (n *Node) closes(f func() error) { n.closers = append(n.closers, f) }

// Start begins what goes on beside the loops, until Close.
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

// Loops are what is to run, side by side, until its context ends.
func (n *Node) Loops() []func(context.Context) error {
	m := n.o.Monitor
	var loops []func(context.Context) error
	if n.held.Any() {
		loops = append(loops, m.Loop("names", n.held.Run))
	}
	if n.runner != nil {
		loops = append(loops, m.Loop("runner", n.runner.Run))
	}
	if n.delivery != nil {
		loops = append(loops, m.Loop("relay", n.delivery.Run))
	}
	return append(loops, m.watch(n)...)
}

// StopNow stops at once what a cancelled context stops softly. cause is what is recorded of
// it.
func (n *Node) StopNow(cause error) {
	if n.runner != nil {
		n.runner.StopNow(cause)
	}
	if n.delivery != nil {
		n.delivery.StopNow(cause)
	}
}

// Reload puts what of next may change live into force, and returns the keys that changed, and
// those that wait for the next start. With an error nothing has changed.
func (n *Node) Reload(ctx context.Context, next settings.Config) (changed, waiting []string, err error) {
	changed, waiting, err = n.reloader.reload(next)
	if n.maintenance != nil && slices.Contains(changed, "schedules") {
		n.maintenance.sync(ctx)
	}
	return changed, waiting, err
}

// Name is the runner's; empty where jobs are not run.
func (n *Node) Name() string {
	if n.runner == nil {
		return ""
	}
	return n.runner.Name()
}

// Stats are the relay's so far; zero where nothing is delivered.
func (n *Node) Stats() relay.Stats {
	if n.delivery == nil {
		return relay.Stats{}
	}
	return n.delivery.Stats()
}

// Close ends what Start began, closes what Open opened, and gives the names back.
func (n *Node) Close() error {
	var errs []error
	for _, f := range slices.Backward(n.closers) {
		errs = append(errs, f())
	}
	n.closers = nil
	return errors.Join(errs...)
}

// HoldNames takes the names of the runner and of the relay, those of them that are given: a
// name that belfry makes up is nobody else's. They are to be released.
func HoldNames(ctx context.Context, s settings.Settings, pool *pgxpool.Pool, runner, relay bool) (*lifecycle.NameLock, error) {
	var given []lifecycle.Name
	if runner && s.Runner.Name != "" {
		given = append(given, lifecycle.Name{Kind: lifecycle.RunnerName, Name: s.Runner.Name})
	}
	if relay && s.Delivery.Relay.Name != "" {
		given = append(given, lifecycle.Name{Kind: lifecycle.RelayName, Name: s.Delivery.Relay.Name})
	}
	hold, err := lifecycle.LockNames(ctx, pool, given...)
	return hold, job.TranslateOutage(err, job.ErrLocked)
}

// NewRunner makes a runner of belfry's own job types and of others. The returned function
// closes what it needs.
func NewRunner(s settings.Settings, pool *pgxpool.Pool, types []job.Type, log zerolog.Logger, options ...job.Option) (*job.Runner, func() error, error) {
	store, err := channels.New(s.Channels)
	if err != nil {
		return nil, nil, err
	}
	cache, err := s.OpenCache()
	if err != nil {
		return nil, nil, err
	}
	done := func() error { return nil }
	options = append(options, job.WithLogger(log))
	if cache != nil {
		done = cache.Close
		options = append(options, job.WithAbortCache(cache))
	}
	runner, err := job.NewRunner(pool, s.Runner, append(outbox.Types(store), types...), options...)
	if err != nil {
		return nil, nil, errors.Join(err, done())
	}
	return runner, done, nil
}

// RecordRecipients brings what the database knows of channels.relation in step with the
// settings; the log says what changed, and what keeps it from that.
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
