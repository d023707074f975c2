package outboxtest

import (
	"context"
	"os"
	"sync/atomic"

	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/relay"
)

// Point is where a relay dies: between two steps of a message's way.
type Point string

// The points.
const (
	Taken    Point = "taken"    // out of the carrier, and not claimed
	Claimed  Point = "claimed"  // and not called for
	Called   Point = "called"   // and not recorded
	Recorded Point = "recorded" // and not settled in the carrier
	Removed  Point = "removed"  // settled
)

// Points are all of them, in their order.
func Points() []Point { return []Point{Taken, Claimed, Called, Recorded, Removed} }

// Dying is a Broker whose process kills itself, as kill -9 does, at the second arrival at a point.
// It is for a process that is there to die; its sender says by At when it has called.
type Dying struct {
	relay.Broker

	Point Point // "": it lives

	arrivals atomic.Int64
}

// At is an arrival at a point. It does not return from the last one.
func (d *Dying) At(p Point) {
	if p != d.Point || d.arrivals.Add(1) != 2 {
		return
	}
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Kill() // there is nobody to tell
	}
	<-make(chan struct{})
}

// Carrier implements relay.Broker.
func (d *Dying) Carrier(name string, claim relay.Claim) relay.Carrier {
	return &dyingCarrier{d.Broker.Carrier(name, func(copies []outbox.Copy) ([]outbox.Answer, error) {
		d.At(Taken)
		answers, err := claim(copies)
		d.At(Claimed)
		return answers, err
	}), d}
}

type dyingCarrier struct {
	relay.Carrier

	dying *Dying
}

// Settled implements relay.Transport.
func (c *dyingCarrier) Settled(ctx context.Context, outcomes []relay.Settled) error {
	c.dying.At(Recorded)
	err := c.Carrier.Settled(ctx, outcomes)
	c.dying.At(Removed)
	return err
}
