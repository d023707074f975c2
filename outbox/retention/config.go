package retention

import (
	"errors"
	"fmt"
	"time"
)

// Config sets how long rows are stored. Zero means permanently.
type Config struct {
	// Notifications is the time for which a job's notifications are stored after it has finished. A deleted
	// notification disappears from its inbox.
	Notifications time.Duration `mapstructure:"notifications"`
	// Messages is the time for which a message is stored after it was sent, died or was cancelled. Messages of a
	// category with a cap are stored at least for the cap's period. An activity and its idempotency key are
	// deleted with its message.
	Messages time.Duration `mapstructure:"messages"`
	// Jobs is the time for which a job's row, with its events, skips and revisions, is stored after it has
	// finished, and at least as long as its notifications and messages. Its idempotency key is deleted with it.
	Jobs time.Duration `mapstructure:"jobs"`
	// Events is the time for which events without a job are stored: those about lanes, schedules, senders,
	// categories, channels, dead letters and retention.
	Events time.Duration `mapstructure:"events"`
	// Interval is the pause between two prunes of a daemon.
	Interval time.Duration `mapstructure:"interval"`
	// StepRows is the approximate number of rows that one transaction of a prune deletes.
	StepRows int `mapstructure:"step_rows"`
}

// DefaultConfig deletes nothing: each service must decide how long it stores notifications and the proof of
// their delivery.
func DefaultConfig() Config { return Config{Interval: time.Hour, StepRows: 10000} }

// Off reports whether nothing is ever deleted.
func (c Config) Off() bool { return c.Notifications+c.Messages+c.Jobs+c.Events == 0 }

// Validate returns all problems, each with its key path, or nil.
func (c Config) Validate() error {
	var problems []error
	for _, p := range []struct {
		key       string
		d         time.Duration
		low, high time.Duration
	}{
		{"notifications", c.Notifications, time.Minute, MaxAge},
		{"messages", c.Messages, time.Minute, MaxAge},
		{"jobs", c.Jobs, time.Minute, MaxAge},
		{"events", c.Events, time.Minute, MaxAge},
		{"interval", c.Interval, time.Second, 24 * time.Hour},
	} {
		if p.key != "interval" && p.d == 0 || p.d >= p.low && p.d <= p.high {
			continue
		}
		zero := "0 (permanently), "
		if p.key == "interval" {
			zero = ""
		}
		problems = append(problems, fmt.Errorf("retention.%s: %s is not allowed; allowed values: %s%s to %s", p.key, p.d, zero, p.low, p.high))
	}
	if c.StepRows < 100 || c.StepRows > 1_000_000 {
		problems = append(problems, fmt.Errorf("retention.step_rows: %d is not allowed; allowed values: 100 to 1000000", c.StepRows))
	}
	return errors.Join(problems...)
}

// MaxAge is a hundred years.
const MaxAge = 876_000 * time.Hour
