package lifecycle

import "time"

// Moving is the rate per second below which a count is regarded as standing still.
const Moving = 0.5

const (
	meterWindow = 5 * time.Second // of the exponential average
	meterSteady = 3 * time.Second // of growth before Left returns an estimate: the first rates are too low
)

// Meter measures the growth of a count as an exponential average over a few seconds. The zero value
// has no observations.
type Meter struct {
	at    time.Time // of the last observation; zero before the first
	n     int64
	rate  float64 // per second
	known bool
	since time.Time // of the first growth after an observation, or after a pause; zero before it
	grew  time.Time // of the last growth
}

// Rate returns the growth per second. It is known after two observations.
func (m *Meter) Rate() (perSecond float64, known bool) { return m.rate, m.known }

// Observe records the count at a time.
func (m *Meter) Observe(now time.Time, n int64) {
	took := now.Sub(m.at)
	switch {
	case m.at.IsZero():
	case took <= 0:
		return
	default:
		rate := max(float64(n-m.n)/took.Seconds(), 0)
		weight := min(float64(took)/float64(meterWindow), 1)
		if !m.known {
			weight = 1
		}
		m.rate += (rate - m.rate) * weight
		m.known = true
		if n > m.n {
			if m.since.IsZero() || m.at.Sub(m.grew) > meterWindow { // the pause is in the average
				m.since = m.at
			}
			m.grew = now
		}
	}
	m.at, m.n = now, n
}

// Left estimates the time in which the count grows by rest. It is negative if it is unknown.
func (m *Meter) Left(rest int64) time.Duration {
	if m.rate < Moving || m.since.IsZero() || m.at.Sub(m.since) < meterSteady {
		return -1
	}
	return time.Duration(float64(rest) / m.rate * float64(time.Second))
}
