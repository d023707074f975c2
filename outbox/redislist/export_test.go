package redislist

import "time"

// Pace is what goes by the clock.
func (b *Broker) Pace(tick, alive, stuck time.Duration) {
	b.pace.tick, b.pace.alive, b.pace.stuck = tick, alive, stuck
}

// Scan has all keys be looked through so often.
func (b *Broker) Scan(d time.Duration) { b.pace.scan = d }

// Held has ids be deferred earlier.
func (b *Broker) Held(held, off time.Duration) { b.pace.held, b.pace.off = held, off }
