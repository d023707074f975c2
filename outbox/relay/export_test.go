package relay

import (
	"context"
	"time"

	"github.com/belfryhq/belfry/outbox"
)

// The points at which tests interfere.
const (
	PointClaim    = pointClaim
	PointHandOver = pointHandOver
	PointLook     = pointLook
	PointLooked   = pointLooked
	PointSettle   = pointSettle
	PointSettled  = pointSettled
	PointUpkeep   = pointUpkeep
)

// WithFailpoint has f called at each point.
func WithFailpoint(f func(ctx context.Context, point string) error) Option {
	return func(r *Relay) { r.at = f }
}

// WithRest has a Relay that hears hints rest for so long.
func WithRest(d time.Duration) Option { return func(r *Relay) { r.rest = d } }

// Resting reports whether the relay waits for hints alone, and hears them.
func (r *Relay) Resting() bool { return r.resting.Load() && r.ears.Load().Listening() }

// What is pure, or holds no database.
var (
	Decide        = decide
	DecideCrash   = decideCrash
	DecideReceipt = decideReceipt
	Wait          = wait
)

// Limits is a sender's, by itself.
type (
	Limits = limits
	Permit = permit
)

// What limits do.
var (
	NewLimits = newLimits
	Admit     = (*limits).admit
	End       = (*limits).end
	Blocked   = (*limits).blocked
	QueueUp   = (*limits).queueUp
)

// Operate is operate, now.
func Operate(l *Limits, o outbox.SenderOverride, relays int) { l.operate(o, relays, time.Now()) }

// Of says how many messages a permit is for, and whether they are bulk.
func Of(p Permit) (n int, bulk bool) { return p.n, p.bulk }

// Hand is what a relay holds.
type Hand = hand

// What a hand does.
var (
	NewHand = newHand
	Take    = (*hand).take
	Drop    = (*hand).drop
	Room    = (*hand).room
)

// Learned looks for a receipt four times: at first; before its result is recorded; when that
// is recorded during the look; and when it is due again after that. It returns how many
// outcomes wait to be recorded after each.
func Learned(s outbox.Settlement) (open []int) {
	b := newBooks()
	for step := range 4 {
		if step != 2 {
			b.look()
		} else {
			batch, _, _ := b.next()
			b.settled(batch)
		}
		b.learn(s)
		open = append(open, b.waiting())
	}
	return open
}
