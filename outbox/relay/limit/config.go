package limit

import "time"

// Config contains the limits of a sender.
type Config struct {
	Name        string
	Concurrency int // calls at once
	// RatePerSecond is the number of messages, not calls, per second. The live relays that have the
	// sender share it. 0 means no limit.
	RatePerSecond float64
	// Burst is the number of messages that may be sent at once after a pause. 0 means a tenth of a
	// second's, at least one.
	Burst   int
	Breaker BreakerConfig
}

// BreakerConfig specifies when a sender's circuit breaker opens and closes.
type BreakerConfig struct {
	Failures int           `mapstructure:"failures"` // in a row, that open it; 0: no breaker
	OpenFor  time.Duration `mapstructure:"open_for"` // until probes are let through
	Probes   int           `mapstructure:"probes"`   // at once, and successes in a row that close it
}

// burst returns the size of the token bucket at a rate.
func (c Config) burst(rate float64) int {
	if c.Burst > 0 {
		return c.Burst
	}
	return max(1, int(rate/10))
}
