package node

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/internal/metrics"
	"github.com/belfryhq/belfry/internal/settings"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/migrations"
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

// loop has health know of a loop of the process's.
func (m *Monitor) loop(name string, run func(context.Context) error) func(context.Context) error {
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
	m.metrics.Database(n.o.Pool, n.outage)
	var carrier relay.Broker
	if n.delivery != nil {
		m.metrics.RelayStats(n.delivery.Stats)
		carrier = n.delivery.broker
	}
	collector := m.metrics.Collector(m.every, n.o.Pool, carrier, n.o.senders(n.o.Settings.Senders), n.outage, m.log)
	failing := false
	looker := m.metrics.Looker(m.every, m.health, func(ctx context.Context) (problem string, err error) {
		began := time.Now()
		version, err := admin.SchemaVersion(ctx, n.o.Pool)
		if errors.Is(context.Cause(ctx), context.Canceled) {
			return "", err // by a stop
		}
		if !n.outage.Tried(began, err) && !failing {
			m.log.Warn().Err(err).Msg("the database cannot be looked at for metrics")
		}
		if failing = err != nil; failing {
			return "", err
		}
		if wrong := admin.SchemaProblem(version, migrations.Latest()); wrong != nil {
			problem = wrong.Error()
		}
		return problem, nil
	})
	return []func(context.Context) error{m.loop("look", looker.Run), m.loop("collect", collector.Run)}
}

// Close ends the listener.
func (m *Monitor) Close() error {
	if m == nil {
		return nil
	}
	m.forget()
	return m.server.Close()
}
