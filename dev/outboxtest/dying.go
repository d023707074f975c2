package outboxtest

import (
	"context"
	"os"
	"sync/atomic"

	"github.com/belfryhq/belfry/outbox"
)

// Point is a place between two steps of a message at which a relay dies.
type Point string

// The points.
const (
	Taken    Point = "taken"    // from the carrier, not claimed
	Claimed  Point = "claimed"  // not called
	Called   Point = "called"   // not recorded
	Recorded Point = "recorded" // not settled in the carrier
	Removed  Point = "removed"  // settled
)

// Points lists all points in order.
func Points() []Point { return []Point{Taken, Claimed, Called, Recorded, Removed} }

// Dying is a Broker whose process kills itself with SIGKILL at the second arrival at a point. Its sender must call At after
// each call.
type Dying struct {
	outbox.Broker

	Point Point // empty to survive

	arrivals atomic.Int64
}

// At records an arrival at a point. The last arrival does not return.
func (d *Dying) At(p Point) {
	if p != d.Point || d.arrivals.Add(1) != 2 {
		return
	}
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Kill() // the process is the test's child
	}
	<-make(chan struct{})
}

// Carrier implements outbox.Broker.
func (d *Dying) Carrier(name string, claim outbox.Claim) outbox.Carrier {
	return &dyingCarrier{d.Broker.Carrier(name, func(copies []outbox.Copy) ([]outbox.Answer, error) {
		d.At(Taken)
		answers, err := claim(copies)
		d.At(Claimed)
		return answers, err
	}), d}
}

type dyingCarrier struct {
	outbox.Carrier

	dying *Dying
}

// Settled implements outbox.Transport.
func (c *dyingCarrier) Settled(ctx context.Context, outcomes []outbox.Settled) error {
	c.dying.At(Recorded)
	err := c.Carrier.Settled(ctx, outcomes)
	c.dying.At(Removed)
	return err
}
