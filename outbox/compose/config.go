package compose

import (
	"errors"
	"fmt"
	"time"
)

// Config is the settings of the package.
type Config struct {
	// TimeZone is an IANA name: the time zone of channels that have none, or one that
	// is not known, for quiet hours.
	TimeZone string `mapstructure:"time_zone"`
	// Jitter is over how long the messages are spread that wait for the end of quiet
	// hours. 0: all are due at once.
	Jitter time.Duration `mapstructure:"quiet_hours_jitter"`
	// NoAddress are the media whose senders have a target of their own, as a webhook with
	// one URL for everybody: they reach a channel that has no address for them. Set by
	// whoever knows the senders.
	NoAddress []string `mapstructure:"-"`
}

// maxJitter is the most that a message may wait beyond its quiet hours.
const maxJitter = time.Hour

// DefaultConfig is UTC, spread over five minutes.
func DefaultConfig() Config { return Config{TimeZone: "UTC", Jitter: 5 * time.Minute} }

// Validate returns every problem at once, each with its key below path, or nil.
func (c Config) Validate(path string) error {
	var problems []error
	if _, ok := loadZone(c.TimeZone); !ok {
		problems = append(problems, fmt.Errorf("%s.time_zone: %q is not a time zone; allowed are names of the IANA database such as UTC, Asia/Seoul, Europe/Berlin", path, c.TimeZone))
	}
	if c.Jitter < 0 || c.Jitter > maxJitter {
		problems = append(problems, fmt.Errorf("%s.quiet_hours_jitter: %s is not allowed; allowed are 0 to %s", path, c.Jitter, maxJitter))
	}
	return errors.Join(problems...)
}
