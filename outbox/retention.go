package outbox

import (
	"errors"
	"fmt"
	"time"
)

// Retention sets how long what belfry has written is kept. Zero keeps permanently.
type Retention struct {
	// Notifications is how long a job's notifications are kept after it is at rest. In an
	// inbox, one that is deleted is gone.
	Notifications time.Duration `mapstructure:"notifications"`
	// Messages is how long a message is kept after it was sent, died or was cancelled; that
	// of a category with a cap at least as long as the cap looks back. An activity goes with
	// its message, and its idempotency key with it.
	Messages time.Duration `mapstructure:"messages"`
	// Jobs is how long a job's own row, with its events, skips and revisions, is kept
	// after it is at rest, and as long as any of its rows. An idempotency key is
	// forgotten with its job.
	Jobs time.Duration `mapstructure:"jobs"`
	// Events is how long the events of what is no job are kept: lanes, schedules,
	// senders, categories, channels, dead letters and retention.
	Events time.Duration `mapstructure:"events"`
	// Interval is the pause between two prunes of a daemon.
	Interval time.Duration `mapstructure:"interval"`
	// StepRows is how many rows one transaction of a prune deletes, about.
	StepRows int `mapstructure:"step_rows"`
}

// DefaultRetention deletes nothing: how long a service's notifications, and the
// proof of who got them, are to be kept is for the service to say.
func DefaultRetention() Retention { return Retention{Interval: time.Hour, StepRows: 10000} }

// Off reports whether nothing is ever deleted.
func (r Retention) Off() bool { return r.Notifications+r.Messages+r.Jobs+r.Events == 0 }

// Validate returns every problem at once, each with its key path, or nil.
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
		{"interval", r.Interval, time.Second, 24 * time.Hour},
	} {
		if p.key != "interval" && p.d == 0 || p.d >= p.low && p.d <= p.high {
			continue
		}
		zero := "0 (permanently), "
		if p.key == "interval" {
			zero = ""
		}
		problems = append(problems, fmt.Errorf("retention.%s: %s is not allowed; allowed are %s%s to %s", p.key, p.d, zero, p.low, p.high))
	}
	if r.StepRows < 100 || r.StepRows > 1_000_000 {
		problems = append(problems, fmt.Errorf("retention.step_rows: %d is not allowed; allowed are 100 to 1000000", r.StepRows))
	}
	return errors.Join(problems...)
}

// MaxRetention is a hundred years.
const MaxRetention = 876_000 * time.Hour
