package belfry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/node"
	"github.com/belfryhq/belfry/outbox/relay"
)

// Config is the configuration of an Instance. Begin with DefaultConfig: the zero value is invalid. config.yaml
// documents each key. Senders, a carrier of message ids, an abort cache and metrics are options.
type Config = node.Config

// DefaultConfig returns the default configuration. database.url is empty: an Instance needs it, or a pool.
func DefaultConfig() Config { return node.DefaultConfig() }

// NameHeldError reports that another living process, or another Instance of this one, uses runner.name or
// delivery.name. An empty name is replaced by a unique one.
type NameHeldError = lifecycle.NameInUseError

// Instance is one belfry inside a program. All methods are safe for concurrent use.
type Instance struct {
	parts    node.Options // Pool is nil without WithPool
	problems []error      // of options

	reloading sync.Mutex // excludes Reload and the start of Run; locked before mu
	config    Config

	mu   sync.Mutex
	node *node.Node              // nil if it does not run yet
	stop context.CancelCauseFunc // of Run; nil if it does not run
}

// New makes an Instance and connects to nothing. The error joins every problem with the configuration and
// the options, each with its key or option and the allowed values.
func New(c Config, options ...Option) (*Instance, error) {
	i := &Instance{parts: node.Options{Log: zerolog.Nop(), Run: true}, config: c}
	for _, set := range options {
		set(i)
	}
	if err := errors.Join(append(i.problems, i.check(c))...); err != nil {
		return nil, err
	}
	return i, nil
}

// delivers reports whether the instance delivers messages.
func (i *Instance) delivers(c Config) bool { return c.Delivery.Enabled && len(i.parts.Senders) > 0 }

// check returns every problem of a configuration together with the options.
func (i *Instance) check(c Config) error {
	problems := []error{c.Validate()}
	if len(i.parts.Senders) > 0 {
		senders := make([]relay.SenderConfig, len(i.parts.Senders))
		for n, s := range i.parts.Senders {
			senders[n] = s.SenderConfig
		}
		problems = append(problems, relay.ValidateSenders("senders", senders))
	}
	need, pool := node.MinConnections, i.parts.Pool
	if i.delivers(c) {
		need += relay.Connections
	}
	switch {
	case pool != nil && int(pool.Config().MaxConns) < need:
		problems = append(problems,
			fmt.Errorf("WithPool: a pool of %d connections at most is too small; allowed values: %d or more", pool.Config().MaxConns, need))
	case pool == nil && c.Database.URL == "":
		problems = append(problems,
			errors.New("database.url: is required in an embedded belfry, which has no private PostgreSQL; allowed values: "+
				"postgres://user:password@host:5432/database, or a pool by WithPool"))
	case pool == nil && c.Database.MaxConnections < need && c.Database.MaxConnections >= node.MinConnections: // Validate reports less
		problems = append(problems,
			fmt.Errorf("database.max_connections: %d is too few; allowed values: %d to 1000", c.Database.MaxConnections, need))
	}
	return errors.Join(problems...)
}

var errRunning = errors.New("this instance runs already")

// Run runs until ctx ends or StopNow is called, and returns after the end of everything it started: nil after
// a stop, otherwise the error that prevented its start or ended it. It may be called again. After the end of
// ctx it waits at most runner.grace_period and delivery.grace_period.
//
// Errors at its start: the database is unreachable or has another schema; a *NameHeldError; an unusable
// carrier. Run waits for the end of later outages of the database.
func (i *Instance) Run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	i.mu.Lock()
	if i.stop != nil {
		i.mu.Unlock()
		return errRunning
	}
	i.stop = stop
	i.mu.Unlock()
	defer i.set(nil, nil)
	err := i.run(ctx, stop)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) { // a stop while it started
		return nil
	}
	return err
}

// set stores the running node.
func (i *Instance) set(n *node.Node, stop context.CancelCauseFunc) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.node, i.stop = n, stop
}

func (i *Instance) run(ctx context.Context, stop context.CancelCauseFunc) (err error) {
	i.reloading.Lock()
	started := sync.OnceFunc(i.reloading.Unlock)
	defer started()
	o := i.parts
	o.Config, o.Deliver = i.config, i.delivers(i.config)
	if o.Pool, err = i.open(ctx, i.config); err != nil {
		return err
	}
	if i.parts.Pool == nil {
		defer o.Pool.Close()
	}
	n, err := node.Open(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	i.set(n, stop)
	started()
	defer i.set(nil, stop)
	if err := n.Start(ctx); err != nil {
		return err
	}
	o.Log.Info().Str("worker_id", n.Name()).Msg("belfry started")
	if err := lifecycle.Together(ctx, n.Loops()...); err != nil {
		return err
	}
	o.Log.Info().Msg("belfry stopped")
	return nil
}

// startTimeout bounds the check of the database before Run starts anything.
const startTimeout = 30 * time.Second

// open returns the pool, after a check of its database.
func (i *Instance) open(ctx context.Context, c Config) (pool *pgxpool.Pool, err error) {
	if pool = i.parts.Pool; pool == nil {
		if pool, err = node.OpenPool(ctx, c.Database.URL, c.Database, true, i.parts.Log); err != nil {
			return nil, err
		}
	}
	defer func() {
		if err != nil && i.parts.Pool == nil {
			pool.Close()
		}
	}()
	if err := node.Ping(ctx, pool); err != nil {
		return pool, fmt.Errorf("the database cannot be reached: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := node.CheckSchema(ctx, pool, i.parts.Log); err != nil || i.parts.Pool == nil {
		return pool, err
	}
	odd, err := node.OddSettings(ctx, pool)
	if err == nil && len(odd) > 0 {
		err = fmt.Errorf("WithPool: sessions of the pool have values that belfry's statements do not support: %s; allowed "+
			"values: PostgreSQL's defaults, or no pool, so that belfry opens one", slices.Sorted(slices.Values(odd)))
	}
	return pool, err
}

// StopNow stops Run at once: the chunk in progress is rolled back, calls in flight are cut short, and their
// outcome is recorded as unknown. cause is logged with them; nil means context.Canceled. StopNow does nothing
// unless Run runs.
func (i *Instance) StopNow(cause error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.stop == nil {
		return
	}
	if i.node != nil {
		i.node.StopNow(cause)
	}
	i.stop(cause)
}

// Reload applies the settings of c that may change while Run runs: runner.chunk, runner.load, runner.retry,
// runner.max_skips, retention, schedules, and limits and policies of delivery. It returns the keys that wait
// for the next Run. With an error, which lists every problem, nothing has changed. An Instance that does not
// run uses all of c for its next Run. Reload waits while Run starts.
func (i *Instance) Reload(ctx context.Context, c Config) (waiting []string, err error) {
	if err := i.check(c); err != nil {
		return nil, err
	}
	i.reloading.Lock()
	defer i.reloading.Unlock()
	i.mu.Lock()
	running := i.node
	i.mu.Unlock()
	if running != nil {
		var changed []string
		if changed, waiting, err = running.Reload(ctx, node.Update{Config: c}); err != nil {
			return nil, err
		}
		i.parts.Log.Info().Strs("keys", changed).Msg("configuration reloaded")
	}
	i.config = c
	return waiting, nil
}
