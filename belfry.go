package belfry

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/admin/doctor"
	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/migrations"
	"github.com/belfryhq/belfry/node"
	"github.com/belfryhq/belfry/node/settings"
	"github.com/belfryhq/belfry/outbox/relay"
)

// Config is everything that belfry can be told; config.yaml documents each key. Its zero value
// is of no use: begin with DefaultConfig. Durations are as Go has them, times of a schedule in
// its own time zone.
type Config = settings.Config

// DefaultConfig is what holds when nothing is said. database.url is empty: an Instance needs
// it, or a pool.
func DefaultConfig() Config { return settings.Default() }

// Load reads the files, the later over the earlier, and the process's BELFRY_ variables over
// them. Without files it reads the one that BELFRY_CONFIG names, otherwise ./config.yaml if it
// exists, as the command line does. The error lists every problem, each with its place and
// key. It connects to nothing; of the files that senders name it reads those of a
// configuration that delivers.
func Load(files ...string) (Config, error) {
	s, err := settings.Load(config.Input{Files: files, Environ: os.Environ()}, Config.Delivers)
	return s.Config, err
}

// NameHeldError says that runner.name or delivery.name belongs to another living process, or to
// another Instance of this one. A name that is left empty is made up, and nobody else's.
type NameHeldError = lifecycle.NameInUseError

// Instance is one belfry inside of a program. All methods are safe for concurrent use.
type Instance struct {
	pool     *pgxpool.Pool // nil: opened as the configuration says
	log      zerolog.Logger
	types    []job.Type
	senders  []relay.Sender
	problems []error // of options

	reloading sync.Mutex // one at a time, and not while Run starts; before mu
	config    Config

	mu   sync.Mutex
	node *node.Node              // nil: does not run, or not yet
	stop context.CancelCauseFunc // of Run; nil: does not run
}

// New makes an Instance and connects to nothing. The error joins every problem with the
// configuration and the options, each with its key or option and what is allowed.
func New(c Config, options ...Option) (*Instance, error) {
	i := &Instance{log: zerolog.Nop(), config: c}
	for _, set := range options {
		set(i)
	}
	if err := errors.Join(append(i.problems, i.check(c))...); err != nil {
		return nil, err
	}
	return i, nil
}

// delivers reports whether messages are delivered: with senders, unless delivery.enabled is
// false.
func (i *Instance) delivers(c Config) bool {
	return c.Delivery.Enabled && len(c.Senders)+len(i.senders) > 0
}

// check returns every problem of a configuration with these options.
func (i *Instance) check(c Config) error {
	problems := []error{c.Validate()}
	if c.API.Listen != "" {
		problems = append(problems, fmt.Errorf("api.listen: %q is not allowed in a program of one's own; allowed values: empty; `belfry serve` serves the HTTP API beside it", c.API.Listen))
	}
	if len(i.senders) > 0 {
		all := c.Senders.Configs()
		for _, own := range i.senders {
			all = append(all, own.SenderConfig)
		}
		problems = append(problems, relay.ValidateSenders("senders", all))
	}
	need := settings.MinConnections
	if i.delivers(c) {
		need += relay.Connections
	}
	switch {
	case i.pool != nil && int(i.pool.Config().MaxConns) < need:
		problems = append(problems, fmt.Errorf("WithPool: a pool of %d connections at most is too small; allowed values: %d or more", i.pool.Config().MaxConns, need))
	case i.pool == nil && c.Database.URL == "":
		problems = append(problems, errors.New("database.url: is required in a program of one's own, which has no private PostgreSQL; allowed values: postgres://user:password@host:5432/database, or a pool by WithPool"))
	case i.pool == nil && c.Database.MaxConnections < need && !c.Delivers(): // else Validate has said so
		problems = append(problems, fmt.Errorf("database.max_connections: %d is too few; allowed values: %d to 1000", c.Database.MaxConnections, need))
	}
	return errors.Join(problems...)
}

var errRunning = errors.New("this instance runs already")

// Run runs until ctx ends, or StopNow, and returns when everything it started has ended: nil
// after a stop, otherwise what kept it from starting or going on. It may be called again then.
// What it waits for after ctx has ended is bounded by runner.grace_period and
// delivery.grace_period.
//
// Errors when it starts: the database does not answer or has another schema; a *NameHeldError;
// what the configuration names cannot be opened. Later outages of the database are waited out.
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

// set notes what runs.
func (i *Instance) set(n *node.Node, stop context.CancelCauseFunc) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.node, i.stop = n, stop
}

func (i *Instance) run(ctx context.Context, stop context.CancelCauseFunc) (err error) {
	i.reloading.Lock()
	started := sync.OnceFunc(i.reloading.Unlock)
	defer started()
	c := i.config
	shown, err := node.OpenMonitor(ctx, c.Metrics, thisBuild(), i.log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, shown.Close()) }()
	pool, err := i.open(ctx, c)
	if err != nil {
		return err
	}
	if i.pool == nil {
		defer pool.Close()
	}
	n, err := node.Open(ctx, node.Options{
		Settings: settings.Settings{Config: c, Loaded: new(config.Loaded)}, Pool: pool, Log: i.log,
		Run: true, Deliver: i.delivers(c), Types: i.types, Senders: i.senders, Monitor: shown,
	})
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
	i.log.Info().Str("worker_id", n.Name()).Msg("belfry started")
	if err := lifecycle.Together(ctx, n.Loops()...); err != nil {
		return err
	}
	i.log.Info().Msg("belfry stopped")
	return nil
}

// startTimeout bounds each look at the database before anything runs.
const startTimeout = 30 * time.Second

// open returns the pool, with a database behind it that belfry can work on.
func (i *Instance) open(ctx context.Context, c Config) (pool *pgxpool.Pool, err error) {
	if pool = i.pool; pool == nil {
		if pool, err = node.OpenPool(ctx, c.Database.URL, c.Database, true, i.log); err != nil {
			return nil, err
		}
	}
	defer func() {
		if err != nil && i.pool == nil {
			pool.Close()
		}
	}()
	if err := node.Ping(ctx, pool); err != nil {
		return pool, fmt.Errorf("the database cannot be reached: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	version, err := doctor.SchemaVersion(ctx, pool)
	if err == nil {
		err = doctor.SchemaProblem(version, migrations.Latest())
	}
	if err != nil || i.pool == nil {
		return pool, err
	}
	odd, err := node.OddSettings(ctx, pool)
	if err == nil && len(odd) > 0 {
		err = fmt.Errorf("WithPool: sessions of the pool have other values than belfry's statements are written for: %s; allowed values: PostgreSQL's own defaults, or no pool, so that belfry opens one", slices.Sorted(slices.Values(odd)))
	}
	return pool, err
}

// StopNow stops Run at once: the chunk in progress is rolled back, calls in flight are cut
// short, and what became of these is recorded as unknown. cause is logged with what it cut
// short; nil is context.Canceled. Nothing happens where Run does not run.
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

// Reload puts of c into force what may change while it runs: runner.chunk, runner.load,
// runner.retry, runner.max_skips, retention, schedules, and limits and policies of delivery and
// senders. It returns the keys that wait for the next Run. With an error, which lists every
// problem, nothing has changed. An Instance that does not run takes all of c for its next Run,
// and while Run starts Reload waits for that.
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
		if changed, waiting, err = running.Reload(ctx, c); err != nil {
			return nil, err
		}
		i.log.Info().Strs("keys", changed).Msg("configuration reloaded")
	}
	i.config = c
	return waiting, nil
}
