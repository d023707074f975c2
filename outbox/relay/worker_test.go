package relay_test

import (
	"context"
	"testing"

	"github.com/belfryhq/belfry/dev/outboxtest"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/relay"
)

// equip has a worker arrive at the points that PostgreSQL's own way has.
func equip(_ outboxtest.Worker, d *outboxtest.Dying) ([]relay.Option, error) {
	return []relay.Option{relay.WithFailpoint(func(_ context.Context, at string) error {
		switch at {
		case relay.PointHandOver:
			d.At(outboxtest.Claimed)
		case relay.PointSettled:
			d.At(outboxtest.Recorded)
		}
		return nil
	})}, nil
}

// place is no carrier.
func place(testing.TB, string) (outboxtest.Worker, outbox.Broker) { return outboxtest.Worker{}, nil }

// Taking and claiming are one statement, and there is no copy to remove: two points fewer than
// carriers have.
func TestFault_WorkerDiesBetweenSteps(t *testing.T) {
	t.Parallel()
	outboxtest.Dies(t, []outboxtest.Point{outboxtest.Claimed, outboxtest.Called, outboxtest.Recorded}, place)
}

func TestFault_WorkerStopsPastItsHeartbeat(t *testing.T) {
	t.Parallel()
	outboxtest.Stops(t, place)
}
