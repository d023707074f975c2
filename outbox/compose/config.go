package compose

import (
	"errors"
	"fmt"
	"time"
)

// Config is the settings of the package.
type Config struct {
	// TimeZone is the IANA name of the time zone whose quiet hours apply to channels without a known
	// time zone.
	TimeZone string `mapstructure:"time_zone"`
	// Jitter is the period over which messages are spread that wait for the end of quiet hours. 0 makes
	// all of them due at once.
	Jitter time.Duration `mapstructure:"quiet_hours_jitter"`
	// NoAddress lists media whose senders have a fixed target, such as a webhook with one URL. They
	// reach channels that have no address for them. The owner of the senders sets it.
	NoAddress []string `mapstructure:"-"`
}

// maxJitter is the maximum of Jitter.
const maxJitter = time.Hour

// DefaultConfig returns UTC and a jitter of five minutes.
func DefaultConfig() Config { return Config{TimeZone: "UTC", Jitter: 5 * time.Minute} }

// Validate returns every problem at once, each with its key below path, or nil.
func (c Config) Validate(path string) error {
	var problems []error
	if _, ok := loadZone(c.TimeZone); !ok {
		problems = append(problems,
			fmt.Errorf("%s.time_zone: %q is not a time zone; allowed values: names of the IANA database such as UTC, "+
				"Asia/Seoul, Europe/Berlin", path, c.TimeZone))
	}
	if c.Jitter < 0 || c.Jitter > maxJitter {
		problems = append(problems, fmt.Errorf("%s.quiet_hours_jitter: %s is not allowed; allowed values: 0 to %s", path, c.Jitter, maxJitter))
	}
	return errors.Join(problems...)
}
