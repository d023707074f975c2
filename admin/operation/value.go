package operation

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// Share is a fraction from 0.01 to 1, written as 0.5 or 50%.
type Share float64

// UnmarshalText parses either form.
func (s *Share) UnmarshalText(text []byte) error {
	number, percent := strings.CutSuffix(string(text), "%")
	share, err := strconv.ParseFloat(number, 64)
	if percent {
		share /= 100
	}
	if err != nil || math.IsNaN(share) || share < 0.01 || share > 1 {
		return &NotAllowedError{"0.01 to 1, such as 0.5 or 50%"}
	}
	*s = Share(share)
	return nil
}

// Millis is a duration of 1ms to 1m in milliseconds, written with its unit.
type Millis int64

// UnmarshalText parses a duration.
func (m *Millis) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	if err != nil || d < time.Millisecond || d > time.Minute {
		return &NotAllowedError{"durations of 1ms to 1m"}
	}
	*m = Millis(d.Milliseconds())
	return nil
}

// MarshalText renders the duration.
func (m Millis) MarshalText() ([]byte, error) {
	return []byte((time.Duration(m) * time.Millisecond).String()), nil
}

// Rate is a number of calls per second, above 0 to 1,000,000.
type Rate float64

// UnmarshalText parses a number.
func (r *Rate) UnmarshalText(text []byte) error {
	n, err := strconv.ParseFloat(string(text), 64)
	if err != nil || math.IsNaN(n) || n <= 0 || n > 1_000_000 {
		return &NotAllowedError{"above 0 to 1000000"}
	}
	*r = Rate(n)
	return nil
}
