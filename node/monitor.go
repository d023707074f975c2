package node

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/admin/doctor"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/migrations"
	"github.com/belfryhq/belfry/node/metrics"
	"github.com/belfryhq/belfry/node/settings"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/relay"
)

// Monitor shows this process on metrics.listen. nil shows nothing, and nothing is counted.
type Monitor struct {
	metrics *metrics.Metrics
	health  *metrics.Health
	server  *metrics.Server
	every   time.Duration
	log     zerolog.Logger
	forget  func() bool // that a stop is to be noted
}

// OpenMonitor listens where the configuration says, until Close, which follows the end of all
// that it shows; nil: nowhere. It is not ready before its loops run. A port that another process
// has is a *BusyError, any other error a *settings.UnfitError.
func OpenMonitor(ctx context.Context, c metrics.Config, b metrics.Build, log zerolog.Logger) (*Monitor, error) {
	if c.Listen == "" {
		return nil, nil //nolint:nilnil // nothing to show
	}
	m := &Monitor{metrics: metrics.New(b), health: metrics.NewHealth(c.CollectEvery), every: c.CollectEvery, log: log}
	var err error
	if m.server, err = metrics.Listen(ctx, c, m.metrics, m.health); err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			return nil, &BusyError{fmt.Errorf("metrics.listen: %s is in use by another process; allowed values: HOST:PORT of a free port, or empty for none", c.Listen)}
		}
		return nil, &settings.UnfitError{Err: fmt.Errorf("%w; allowed values: HOST:PORT of this machine, or empty for none", err)}
	}
	m.forget = context.AfterFunc(ctx, m.health.Stop)
	log.Info().Str("detail", m.server.Addr()).Msg("metrics are served")
	return m, nil
}

// BusyError is about something that another process has. Trying again later helps.
type BusyError struct{ Err error }

// Error is that of Err.
func (e *BusyError) Error() string { return e.Err.Error() }

// Unwrap is Err.
func (e *BusyError) Unwrap() error { return e.Err }

// runner is what has a runner counted.
func (m *Monitor) runner(own []job.Type) []job.Option {
	if m == nil {
		return nil
	}
	types := []string{outbox.TypeInbox, outbox.TypePush}
	for _, t := range own {
		types = append(types, t.Name())
	}
	return []job.Option{job.WithObserver(m.metrics.Runner(types))}
}

// relay is what has a relay counted.
func (m *Monitor) relay(senders []relay.SenderConfig) []relay.Option {
	if m == nil {
		return nil
	}
	return []relay.Option{relay.WithObserver(m.metrics.Relay(senders))}
}

// Loop has health know of a loop of the process's.
func (m *Monitor) Loop(name string, run func(context.Context) error) func(context.Context) error {
	if m == nil {
		return run
	}
	return m.health.Loop(name, run)
}

// watch adds what is known of the database and of the relay, and returns the loops that look at
// the database.
func (m *Monitor) watch(n *Node) []func(context.Context) error {
	if m == nil {
		return nil
	}
	var carrier relay.Broker
	if n.delivery != nil {
		m.metrics.RelayStats(n.delivery.Stats)
		carrier = n.delivery.broker
	}
	return m.polls(n.o.Pool, carrier, n.o.senders(n.o.Settings.Senders), n.outage)
}

// Serving returns the loops of a process that serves the HTTP API without a Node: serve, and the polls
// of its database.
func (m *Monitor) Serving(s settings.Settings, pool *pgxpool.Pool, serve func(context.Context) error) []func(context.Context) error {
	if m == nil {
		return []func(context.Context) error{serve}
	}
	return append(m.polls(pool, nil, s.Senders.Configs(), job.NewOutage(m.log)), m.Loop("api", serve))
}

// API returns a function that counts a request to the HTTP API, or nil without metrics. open returns
// the number of open streams.
func (m *Monitor) API(open func() int) func(api.Answered) {
	if m == nil {
		return nil
	}
	var names []string
	for _, o := range operation.WithQuestions(admin.Operations()) {
		names = append(names, o.Name)
	}
	count := m.metrics.API(names, open)
	return func(r api.Answered) { count(metrics.Request(r)) }
}

// polls registers the metrics of the database and returns the loops that poll it.
func (m *Monitor) polls(pool *pgxpool.Pool, carrier relay.Broker, senders []relay.SenderConfig, outage *job.Outage) []func(context.Context) error {
	m.metrics.Database(pool, outage)
	collector := m.metrics.Collector(m.every, pool, carrier, senders, outage, m.log)
	failing := false
	poller := m.metrics.Poller(m.every, m.health, func(ctx context.Context) (problem string, err error) {
		began := time.Now()
		version, err := doctor.SchemaVersion(ctx, pool)
		if errors.Is(context.Cause(ctx), context.Canceled) {
			return "", err // by a stop
		}
		if !outage.Observe(began, err) && !failing {
			m.log.Warn().Err(err).Msg("the database cannot be looked at for metrics")
		}
		if failing = err != nil; failing {
			return "", err
		}
		if wrong := doctor.SchemaProblem(version, migrations.Latest()); wrong != nil {
			problem = wrong.Error()
		}
		return problem, nil
	})
	return []func(context.Context) error{m.Loop("look", poller.Run), m.Loop("collect", collector.Run)}
}

// Close ends the listener.
func (m *Monitor) Close() error {
	if m == nil {
		return nil
	}
	m.forget()
	return m.server.Close()
}
