package node

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/job/schedule"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/compose"
	"github.com/belfryhq/belfry/outbox/relay"
)

// Config is the configuration of a process. The mapstructure tags are the keys of config.yaml, which
// documents each.
type Config struct {
	Database  Database              `mapstructure:"database"`
	Runner    job.Config            `mapstructure:"runner"`
	Channels  channels.Config       `mapstructure:"channels"`
	Retention outbox.Retention      `mapstructure:"retention"`
	Delivery  Delivery              `mapstructure:"delivery"`
	Schedules []schedule.Definition `mapstructure:"schedules"`
}

// Database specifies the connections to PostgreSQL.
type Database struct {
	// URL is a PostgreSQL connection string, in URL or keyword form.
	URL string `mapstructure:"url"`
	// MaxConnections is the maximum number of connections of one process.
	MaxConnections int `mapstructure:"max_connections"`
	// ConnectTimeout bounds one attempt to connect.
	ConnectTimeout time.Duration `mapstructure:"connect_timeout"`
}

// Delivery configures relays and the composition of messages.
type Delivery struct {
	// Enabled lets a process with senders deliver.
	Enabled bool `mapstructure:"enabled"`
	// RequeueAfter is the age at which a push that the carrier has lost is pushed again.
	RequeueAfter time.Duration  `mapstructure:"requeue_after"`
	Relay        relay.Config   `mapstructure:",squash"`
	Compose      compose.Config `mapstructure:",squash"`
}

// MinConnections is the minimum size of a runner's pool: one connection for its run, one that listens,
// and one that reads the job's row while the first is blocked.
const MinConnections = 3

// The allowed values of delivery.requeue_after.
const minRequeueAfter, maxRequeueAfter = 10 * time.Second, 24 * time.Hour

// DefaultConfig returns the default configuration, without database.url.
func DefaultConfig() Config {
	return Config{
		Database:  Database{MaxConnections: 16, ConnectTimeout: 10 * time.Second},
		Runner:    job.DefaultConfig(),
		Channels:  channels.DefaultConfig(),
		Retention: outbox.DefaultRetention(),
		Delivery:  Delivery{Enabled: true, RequeueAfter: outbox.RequeueAfter, Relay: relay.DefaultConfig(), Compose: compose.DefaultConfig()},
		Schedules: []schedule.Definition{},
	}
}

// Validate returns every problem, each with its key.
func (c Config) Validate() error {
	errs := []error{
		c.Runner.Validate(), c.Channels.Validate(), c.Retention.Validate(), c.Delivery.Compose.Validate("delivery"),
		c.Delivery.Relay.Validate("delivery"),
	}
	if c.Database.URL != "" {
		if _, err := pgxpool.ParseConfig(c.Database.URL); err != nil {
			errs = append(errs, fmt.Errorf("database.url: %s", parseProblem(err)))
		}
	}
	if c.Database.MaxConnections < MinConnections || c.Database.MaxConnections > 1000 {
		errs = append(errs, fmt.Errorf("database.max_connections: %d is not allowed; allowed values: %d to 1000",
			c.Database.MaxConnections, MinConnections))
	}
	if c.Database.ConnectTimeout < 100*time.Millisecond || c.Database.ConnectTimeout > 10*time.Minute {
		errs = append(errs, fmt.Errorf("database.connect_timeout: %s is not allowed; allowed values: 100ms to 10m", c.Database.ConnectTimeout))
	}
	if after := c.Delivery.RequeueAfter; after < minRequeueAfter || after > maxRequeueAfter {
		errs = append(errs,
			fmt.Errorf("delivery.requeue_after: %s is not allowed; allowed values: %s to %s", after, minRequeueAfter, maxRequeueAfter))
	}
	first := make(map[string]int)
	for i, d := range c.Schedules {
		prefix := fmt.Sprintf("schedules[%d]", i)
		errs = append(errs, d.Validate(prefix))
		if at, twice := first[d.Name]; twice && d.Name != "" {
			errs = append(errs,
				fmt.Errorf("%s.name: %q is given twice, first in schedules[%d]; allowed values: different names", prefix, d.Name, at))
			continue
		}
		first[d.Name] = i
	}
	return errors.Join(errs...)
}

// parseProblem describes an invalid connection string without repeating it: a string that cannot be
// parsed cannot be redacted.
func parseProblem(err error) string {
	text := err.Error()
	if i := strings.LastIndex(text, "`: "); i >= 0 {
		text = text[i+len("`: "):]
	}
	text, _, _ = strings.Cut(text, " (")
	text = strings.Replace(text, "failed to ", "cannot ", 1)
	return "is no connection string (" + text + "); write it as postgres://user:password@host:5432/database"
}

// ConfigError reports something that the configuration names and that cannot be used, such as a file
// with a key or the server of a carrier. Trying again does not help.
type ConfigError struct{ Err error }

// Error returns the text of Err.
func (e *ConfigError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *ConfigError) Unwrap() error { return e.Err }

// BusyError reports something that another process uses. Trying again later helps.
type BusyError struct{ Err error }

// Error returns the text of Err.
func (e *BusyError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *BusyError) Unwrap() error { return e.Err }
