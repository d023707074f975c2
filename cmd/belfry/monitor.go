package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/internal/metrics"
	"github.com/belfryhq/belfry/internal/settings"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/migrations"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/relay"
)

// monitor shows this process on metrics.listen. nil shows nothing, and nothing is counted.
type monitor struct {
	metrics *metrics.Metrics
	health  *metrics.Health
	server  *metrics.Server
	every   time.Duration
	log     zerolog.Logger
	forget  func() bool // that a stop is to be noted
}

// openMonitor listens where the configuration says, until close, which follows the end of
// all that it shows. It is not ready before its loops run.
func openMonitor(ctx context.Context, s settings.Settings, logger zerolog.Logger) (*monitor, error) {
	if s.Metrics.Listen == "" {
		return nil, nil //nolint:nilnil // nothing to show
	}
	b := thisBuild()
	m := &monitor{
		metrics: metrics.New(metrics.Build{Version: b.Version, Commit: b.Commit, Go: b.Go}),
		health:  metrics.NewHealth(s.Metrics.CollectEvery), every: s.Metrics.CollectEvery, log: logger,
	}
	var err error
	if m.server, err = metrics.Listen(ctx, s.Metrics, m.metrics, m.health); err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			return nil, &exitError{codeUnavailable, fmt.Errorf("metrics.listen: %s is in use by another process; allowed values: HOST:PORT of a free port, or empty for none", s.Metrics.Listen)}
		}
		return nil, &exitError{codeConfiguration, fmt.Errorf("%w; allowed values: HOST:PORT of this machine, or empty for none", err)}
	}
	m.forget = context.AfterFunc(ctx, m.health.Stop)
	logger.Info().Str("detail", m.server.Addr()).Msg("metrics are served")
	return m, nil
}

// runner is what has a runner counted.
func (m *monitor) runner() []job.Option {
	if m == nil {
		return nil
	}
	return []job.Option{job.WithObserver(m.metrics.Runner([]string{outbox.TypeInbox, outbox.TypePush}))}
}

// relay is what has a relay counted.
func (m *monitor) relay(s settings.Settings) []relay.Option {
	if m == nil {
		return nil
	}
	return []relay.Option{relay.WithObserver(m.metrics.Relay(s.Senders.Configs()))}
}

// loop has health know of a loop of the process's.
func (m *monitor) loop(name string, run func(context.Context) error) func(context.Context) error {
	if m == nil {
		return run
	}
	return m.health.Loop(name, run)
}

// keeping is the loop that keeps the names, if there are any: without it ends at once.
func (m *monitor) keeping(held names) func(context.Context) error {
	if !held.Any() {
		return held.keep
	}
	return m.loop("names", held.keep)
}

// watch adds what is known of the database and of the relay, which may be nil, and returns
// loops with those that look at the database.
func (m *monitor) watch(s settings.Settings, db *database, outage *job.Outage, relaying *delivery, loops ...func(context.Context) error) []func(context.Context) error {
	if m == nil {
		return loops
	}
	m.metrics.Database(db.Pool, outage)
	var carrier relay.Broker
	if relaying != nil {
		m.metrics.RelayStats(relaying.Stats)
		carrier = relaying.broker
	}
	collector := m.metrics.Collector(m.every, db.Pool, carrier, s.Senders.Configs(), outage, m.log)
	failing := false
	looker := m.metrics.Looker(m.every, m.health, func(ctx context.Context) (problem string, err error) {
		began := time.Now()
		version, err := db.schemaVersion(ctx)
		if errors.Is(context.Cause(ctx), context.Canceled) {
			return "", err // by a stop
		}
		if !outage.Tried(began, err) && !failing {
			m.log.Warn().Err(err).Msg("the database cannot be looked at for metrics")
		}
		if failing = err != nil; failing {
			return "", err
		}
		if wrong := schemaProblem(version, migrations.Latest()); wrong != nil {
			problem = wrong.Error()
		}
		return problem, nil
	})
	return append(loops, m.loop("look", looker.Run), m.loop("collect", collector.Run))
}

// close ends the listener.
func (m *monitor) close() error {
	if m == nil {
		return nil
	}
	m.forget()
	return m.server.Close()
}
