package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// lookTimeout bounds each look at the database, waiting for a connection included.
const lookTimeout = 5 * time.Second

// Looker looks at the database by its own timer, so that nobody who asks for metrics or
// health has to.
type Looker struct {
	every  time.Duration
	health *Health
	look   func(context.Context) (problem string, err error)

	failures prometheus.Counter
	at       prometheus.Gauge
}

// Looker returns a Looker that tells health, every so often, what look found: what stands in
// the way of using the database, or that it did not answer.
func (m *Metrics) Looker(every time.Duration, health *Health, look func(context.Context) (problem string, err error)) *Looker {
	return &Looker{
		every: every, health: health, look: look,
		failures: m.counter("belfry_look_failures_total", "Looks at the database, every metrics.collect_every, that failed.").WithLabelValues(),
		at:       m.gauge("belfry_last_look_timestamp_seconds", "When the last look at the database succeeded, in Unix time; 0: none did.").WithLabelValues(),
	}
}

// Run looks at once and then every so often, until ctx ends. It returns nil.
func (l *Looker) Run(ctx context.Context) error {
	tick := time.NewTicker(l.every)
	defer tick.Stop()
	for {
		l.once(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (l *Looker) once(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	problem, err := l.look(limited)
	if ctx.Err() != nil {
		return
	}
	now := time.Now()
	l.health.Looked(now, problem, err)
	if err != nil {
		l.failures.Inc()
		return
	}
	l.at.Set(float64(now.UnixMilli()) / 1000)
}
