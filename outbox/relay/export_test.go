package relay

import (
	"context"
	"time"

	"github.com/belfryhq/belfry/outbox"
)

// The points at which tests interfere.
const (
	PointClaim       = pointClaim
	PointHandOver    = pointHandOver
	PointRecheck     = pointRecheck
	PointRechecked   = pointRechecked
	PointSettle      = pointSettle
	PointSettled     = pointSettled
	PointMaintenance = pointMaintenance
	PointPush        = pointPush
)

// WithFailpoint has f called at each point.
func WithFailpoint(f func(ctx context.Context, point string) error) Option {
	return func(r *Relay) { r.at = f }
}

// WithRest has a Relay that hears hints rest for so long.
func WithRest(d time.Duration) Option { return func(r *Relay) { r.rest = d } }

// WithMaxContent bounds the texts in memory.
func WithMaxContent(bytes int64) Option { return func(r *Relay) { r.content.limit = bytes } }

// Content returns the number of bytes of texts in memory.
func (r *Relay) Content() int64 { return r.content.held.Load() }

// Resting reports whether the relay waits for hints alone, and hears them.
func (r *Relay) Resting() bool { return r.resting.Load() && r.listener.Load().Listening() }

// Postgres is a transport such as the relay's.
func Postgres(r *Relay) outbox.Transport { return r.postgres(context.Background(), false) }

// What is pure, or holds no database.
var (
	Decide        = decide
	DecideCrash   = decideCrash
	DecideReceipt = decideReceipt
	Wait          = wait
)

// Inflight is what a relay has in flight.
type Inflight = inflight

// What is done with it.
var (
	NewInflight = newInflight
	Take        = (*inflight).take
	Room        = (*inflight).room
)

// Drop takes messages out of what is in flight.
func Drop(f *Inflight, messages []outbox.Claimed) []int64 {
	return f.drop(func(yield func(*outbox.Claimed) bool) {
		for i := range messages {
			if !yield(&messages[i]) {
				return
			}
		}
	})
}

// Learned looks for a receipt four times: at first; before its result is recorded; when that
// is recorded during the look; and when it is due again after that. It returns how many
// outcomes wait to be recorded after each.
func Learned(s outbox.Settlement) (open []int) {
	b := newBatcher()
	for step := range 4 {
		if step != 2 {
			b.forget()
		} else {
			batch, _, _ := b.next()
			b.settled(batch)
		}
		b.addReceipt(s)
		open = append(open, b.waiting())
	}
	return open
}
