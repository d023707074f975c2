package metrics

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/node"
	"github.com/belfryhq/belfry/outbox/inbox/live"
	"github.com/belfryhq/belfry/outbox/relay"
)

// Monitor exposes a process on metrics.listen. It implements node.Monitor. A nil Monitor exposes and counts
// nothing.
type Monitor struct {
	metrics *Metrics
	health  *Health
	server  *Server
	every   time.Duration
	log     zerolog.Logger
	forget  func() bool // ends the wait for a stop
}

// OpenMonitor listens on c.Listen until Close, which follows the end of all loops. It returns nil if
// c.Listen is empty. A port in use is a *node.BusyError, any other error a *node.ConfigError.
func OpenMonitor(ctx context.Context, c node.MetricsConfig, b Build, log zerolog.Logger) (*Monitor, error) {
	if c.Listen == "" {
		return nil, nil //nolint:nilnil // nothing to show
	}
	m := &Monitor{metrics: New(b), health: NewHealth(c.CollectEvery), every: c.CollectEvery, log: log}
	var err error
	if m.server, err = Listen(ctx, c, m.metrics, m.health); err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			return nil, &node.BusyError{Err: fmt.Errorf(
				"metrics.listen: %s is in use by another process; allowed values: HOST:PORT of a free port, or empty for none", c.Listen)}
		}
		return nil, &node.ConfigError{Err: fmt.Errorf("%w; allowed values: HOST:PORT of this machine, or empty for none", err)}
	}
	m.forget = context.AfterFunc(ctx, m.health.Stop)
	log.Info().Str("detail", m.server.Addr()).Msg("metrics are served")
	return m, nil
}

// Runner implements node.Monitor.
func (m *Monitor) Runner(types []string) []job.Option {
	if m == nil {
		return nil
	}
	return []job.Option{job.WithObserver(m.metrics.Runner(types))}
}

// Relay implements node.Monitor.
func (m *Monitor) Relay(senders []relay.SenderConfig) []relay.Option {
	if m == nil {
		return nil
	}
	return []relay.Option{relay.WithObserver(m.metrics.Relay(senders))}
}

// Loop implements node.Monitor.
func (m *Monitor) Loop(name string, run func(context.Context) error) func(context.Context) error {
	if m == nil {
		return run
	}
	return m.health.Loop(name, run)
}

// Live returns the reasons to restart the process; see Health.Live. It returns none if nothing is exposed.
func (m *Monitor) Live(now time.Time) []string {
	if m == nil {
		return nil
	}
	return m.health.Live(now)
}

// Serving returns the loops of a process that only serves the HTTP API: serve, and the polls of its
// database.
func (m *Monitor) Serving(pool *pgxpool.Pool, senders []relay.SenderConfig,
	serve func(context.Context) error) []func(context.Context) error {
	if m == nil {
		return []func(context.Context) error{serve}
	}
	return append(m.Poll(node.Polled{Pool: pool, Senders: senders, Outage: job.NewOutage(m.log)}), m.Loop("api", serve))
}

// API returns a function that counts the requests of an HTTP API with these operations. It returns nil if nothing
// is exposed. open returns the number of open streams.
func (m *Monitor) API(operations []string, open func() int) func(Request) {
	if m == nil {
		return nil
	}
	return m.metrics.API(operations, open)
}

// Inbox shows the notification centre's streams.
func (m *Monitor) Inbox(stats func() live.Stats) {
	if m != nil {
		m.metrics.Inbox(stats)
	}
}

// Poll implements node.Monitor.
func (m *Monitor) Poll(p node.Polled) []func(context.Context) error {
	if m == nil {
		return nil
	}
	if p.Stats != nil {
		m.metrics.RelayStats(p.Stats)
	}
	m.metrics.Database(p.Pool, p.Outage)
	collector := m.metrics.Collector(m.every, p.Pool, p.Broker, p.Senders, p.Outage, m.log)
	failing := false
	poller := m.metrics.Poller(m.every, m.health, func(ctx context.Context) (problem string, err error) {
		began := time.Now()
		schema, err := node.ReadSchema(ctx, p.Pool)
		if errors.Is(context.Cause(ctx), context.Canceled) {
			return "", err // the process stops
		}
		if !p.Outage.Observe(began, err) && !failing {
			m.log.Warn().Err(err).Msg("the database cannot be polled for metrics")
		}
		if failing = err != nil; failing {
			return "", err
		}
		if wrong := schema.Check(); wrong != nil {
			problem = wrong.Error()
		}
		return problem, nil
	})
	return []func(context.Context) error{m.Loop("poll", poller.Run), m.Loop("collect", collector.Run)}
}

// Close ends the listener.
func (m *Monitor) Close() error {
	if m == nil {
		return nil
	}
	m.forget()
	return m.server.Close()
}
