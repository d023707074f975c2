package limit

import (
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"github.com/sony/gobreaker/v2"
)

// breaker is a sender's circuit breaker, or none.
type breaker struct {
	config   BreakerConfig
	circuit  *gobreaker.TwoStepCircuitBreaker[struct{}] // nil: none
	openedAt atomic.Int64                               // Unix nanoseconds
}

func newBreaker(c Config, log zerolog.Logger) *breaker {
	b := &breaker{config: c.Breaker}
	if c.Breaker.Failures == 0 {
		return b
	}
	failures := uint32(min(c.Breaker.Failures, math.MaxInt32)) //nolint:gosec // within its bounds
	b.circuit = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Name:        c.Name,
		MaxRequests: uint32(min(max(c.Breaker.Probes, 1), math.MaxInt32)),
		Timeout:     c.Breaker.OpenFor,
		ReadyToTrip: func(n gobreaker.Counts) bool { return n.ConsecutiveFailures >= failures },
		IsExcluded:  func(err error) bool { return slices.Contains([]error{errThrottled, errNoCall, errRepeated}, err) },
		OnStateChange: func(name string, _, to gobreaker.State) {
			switch to {
			case gobreaker.StateOpen:
				b.openedAt.Store(time.Now().UnixNano())
				log.Warn().Str("sender", name).Msg("circuit breaker opened")
			case gobreaker.StateHalfOpen:
				log.Info().Str("sender", name).Msg("circuit breaker lets probes through")
			case gobreaker.StateClosed:
				log.Info().Str("sender", name).Msg("circuit breaker closed")
			}
		},
	})
	return b
}

func (b *breaker) allow() (func(error), error) {
	if b.circuit == nil {
		return func(error) {}, nil
	}
	return b.circuit.Allow()
}

func (b *breaker) open() bool { return b.circuit != nil && b.circuit.State() == gobreaker.StateOpen }
func (b *breaker) halfOpen() bool {
	return b.circuit != nil && b.circuit.State() == gobreaker.StateHalfOpen
}

// left returns the time for which an open breaker stays open.
func (b *breaker) left(now time.Time) time.Duration {
	return max(0, time.Unix(0, b.openedAt.Load()).Add(b.config.OpenFor).Sub(now))
}

func (b *breaker) String() string {
	if b.circuit == nil {
		return "off"
	}
	return strings.ReplaceAll(b.circuit.State().String(), "-", "_")
}
