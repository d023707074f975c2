package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// pollTimeout limits a poll of the database, including the wait for a connection.
const pollTimeout = 5 * time.Second

// Poller queries the database on its own timer, so that requests for metrics and health do not.
type Poller struct {
	every  time.Duration
	health *Health
	poll   func(context.Context) (problem string, err error)

	failures prometheus.Counter
	at       prometheus.Gauge
}

// Poller returns a Poller that calls poll at each interval and reports the result to health. poll
// returns the reason why the database cannot be used, or an error if the database does not respond.
func (m *Metrics) Poller(every time.Duration, health *Health, poll func(context.Context) (problem string, err error)) *Poller {
	return &Poller{
		every: every, health: health, poll: poll,
		failures: m.counter("belfry_database_poll_failures_total",
			"Failed polls of the database, at each metrics.collect_every.").WithLabelValues(),
		at: m.gauge("belfry_last_database_poll_timestamp_seconds",
			"Unix time of the last successful poll of the database; 0 before the first.").WithLabelValues(),
	}
}

// Run polls immediately and then at each interval, until ctx ends. It returns nil.
func (p *Poller) Run(ctx context.Context) error {
	tick := time.NewTicker(p.every)
	defer tick.Stop()
	for {
		p.once(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (p *Poller) once(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	problem, err := p.poll(limited)
	if ctx.Err() != nil {
		return
	}
	now := time.Now()
	p.health.Polled(now, problem, err)
	if err != nil {
		p.failures.Inc()
		return
	}
	p.at.Set(float64(now.UnixMilli()) / 1000)
}
