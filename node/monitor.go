package node

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/relay"
)

// Monitor exposes the metrics and the health of a process; see metrics.Monitor.
type Monitor interface {
	// Runner returns the options of a runner with these job types.
	Runner(types []string) []job.Option
	// Relay returns the options of a relay with these senders.
	Relay(senders []relay.SenderConfig) []relay.Option
	// Loop returns run, with its state in the health of the process.
	Loop(name string, run func(context.Context) error) func(context.Context) error
	// Poll returns loops that poll the database and the carrier.
	Poll(p Polled) []func(context.Context) error
}

// Polled are the sources that a monitor polls.
type Polled struct {
	Pool    *pgxpool.Pool
	Stats   func() relay.Stats // nil if no relay runs
	Broker  outbox.Broker      // may be nil
	Senders []relay.SenderConfig
	Outage  *job.Outage
}

// noMonitor exposes nothing.
type noMonitor struct{}

func (noMonitor) Runner([]string) []job.Option              { return nil }
func (noMonitor) Relay([]relay.SenderConfig) []relay.Option { return nil }
func (noMonitor) Poll(Polled) []func(context.Context) error { return nil }
func (noMonitor) Loop(_ string, run func(context.Context) error) func(context.Context) error {
	return run
}
