package outbox

import (
	"errors"
	"fmt"
	"time"
)

// Retention sets how long rows are stored. Zero means permanently.
type Retention struct {
	// Notifications is the time for which a job's notifications are stored after it has finished. A deleted
	// notification disappears from its inbox.
	Notifications time.Duration `mapstructure:"notifications"`
	// Messages is the time for which a message is stored after it was sent, died or was cancelled. Messages of a
	// category with a cap are stored at least for the cap's period. An activity and its idempotency key are
	// deleted with its message; one with a notification when the times of both have passed.
	Messages time.Duration `mapstructure:"messages"`
	// Jobs is the time for which a job's row, with its events, skips and revisions, is stored after it has
	// finished, and at least as long as its notifications and messages. Its idempotency key is deleted with it.
	Jobs time.Duration `mapstructure:"jobs"`
	// Events is the time for which events without a job are stored: those about lanes, schedules, senders,
	// categories, channels, dead letters and retention.
	Events time.Duration `mapstructure:"events"`
	// Samples is the time for which figures per minute (belfry.samples) are stored.
	Samples time.Duration `mapstructure:"samples"`
	// Interval is the pause between two prunes of a daemon.
	Interval time.Duration `mapstructure:"interval"`
	// StepRows is the approximate number of rows that one transaction of a prune deletes.
	StepRows int `mapstructure:"step_rows"`
}

// DefaultRetention deletes only samples: each service must decide how long it stores notifications and the proof
// of their delivery.
func DefaultRetention() Retention {
	return Retention{Samples: 14 * 24 * time.Hour, Interval: time.Hour, StepRows: 10000}
}

// Off reports whether nothing but samples is ever deleted.
func (r Retention) Off() bool { return r.Notifications+r.Messages+r.Jobs+r.Events == 0 }

// Validate returns all problems, each with its key path, or nil.
func (r Retention) Validate() error {
	var problems []error
	for _, p := range []struct {
		key       string
		d         time.Duration
		low, high time.Duration
	}{
		{"notifications", r.Notifications, time.Minute, MaxRetention},
		{"messages", r.Messages, time.Minute, MaxRetention},
		{"jobs", r.Jobs, time.Minute, MaxRetention},
		{"events", r.Events, time.Minute, MaxRetention},
		{"samples", r.Samples, time.Minute, MaxRetention},
		{"interval", r.Interval, time.Second, 24 * time.Hour},
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
	if r.StepRows < 100 || r.StepRows > 1_000_000 {
		problems = append(problems, fmt.Errorf("retention.step_rows: %d is not allowed; allowed values: 100 to 1000000", r.StepRows))
	}
	return errors.Join(problems...)
}

// MaxRetention is a hundred years.
const MaxRetention = 876_000 * time.Hour
