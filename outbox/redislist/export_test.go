package redislist

import "time"

// Pace sets the intervals.
func (b *Broker) Pace(tick, alive, stuck time.Duration) {
	b.pace.tick, b.pace.alive, b.pace.stuck = tick, alive, stuck
}

// Scan sets the interval between scans of all keys.
func (b *Broker) Scan(d time.Duration) { b.pace.scan = d }

// Held sets the time after which ids without credit are deferred, and their delay.
func (b *Broker) Held(held, off time.Duration) { b.pace.held, b.pace.off = held, off }
