package settings

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/job/abortcache"
	"github.com/belfryhq/belfry/job/schedule"
	"github.com/belfryhq/belfry/node/metrics"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/compose"
	"github.com/belfryhq/belfry/outbox/relay"
)

// Config is everything that belfry can be told. config.yaml documents each key.
type Config struct {
	Database  Database              `mapstructure:"database"`
	Server    Server                `mapstructure:"server"`
	Runner    job.Config            `mapstructure:"runner"`
	Channels  channels.Config       `mapstructure:"channels"`
	Abort     abortcache.Config     `mapstructure:"abort"`
	Retention outbox.Retention      `mapstructure:"retention"`
	Delivery  Delivery              `mapstructure:"delivery"`
	Senders   Senders               `mapstructure:"senders"`
	Schedules []schedule.Definition `mapstructure:"schedules"`
	API       api.Config            `mapstructure:"api"`
	CLI       CLI                   `mapstructure:"cli"`
	Metrics   metrics.Config        `mapstructure:"metrics"`
	Log       Log                   `mapstructure:"log"`
}

// Database says where PostgreSQL is.
type Database struct {
	// URL is a PostgreSQL connection string, in URL or keyword form. Empty means
	// the private server of Server.
	URL string `mapstructure:"url"`
	// MaxConnections bounds the connections of one belfry process.
	MaxConnections int `mapstructure:"max_connections"`
	// ConnectTimeout bounds one attempt to connect.
	ConnectTimeout time.Duration `mapstructure:"connect_timeout"`
}

// Server is about the private PostgreSQL, used when no URL is given.
type Server struct {
	// DataDir holds its cluster; empty means the user's data directory.
	DataDir string `mapstructure:"data_dir"`
}

// Delivery is about relays: what they do with messages, and how these are made.
type Delivery struct {
	// Enabled has a daemon deliver, if there are senders.
	Enabled bool           `mapstructure:"enabled"`
	Carrier Carrier        `mapstructure:",squash"`
	Relay   relay.Config   `mapstructure:",squash"`
	Compose compose.Config `mapstructure:",squash"`
}

// Log says what is logged and how. Logs go to standard error.
type Log struct {
	Level  string `mapstructure:"level"`
	Format string `mapstructure:"format"`
}

var logLevels = []string{"debug", "info", "warn", "error"}

var logFormats = []string{"auto", "json", "console"}

// MinConnections is what a runner needs at least: one for its run, one that
// listens, one to look at the job's row while the first is stuck.
const MinConnections = 3

// CLI is the behaviour of the command line.
type CLI struct {
	// NoInput refuses what the command line would ask at a terminal.
	NoInput bool `mapstructure:"no_input" variable:"NO_INPUT"`
}

// Default is what holds when nothing is said.
func Default() Config {
	return Config{
		Database:  Database{MaxConnections: 16, ConnectTimeout: 10 * time.Second},
		Runner:    job.DefaultConfig(),
		Channels:  channels.DefaultConfig(),
		Abort:     abortcache.DefaultConfig(),
		Retention: outbox.DefaultRetention(),
		Delivery:  Delivery{Enabled: true, Carrier: defaultCarrier(), Relay: relay.DefaultConfig(), Compose: compose.DefaultConfig()},
		Senders:   Senders{},
		Schedules: []schedule.Definition{},
		API:       api.DefaultConfig(),
		Metrics:   metrics.DefaultConfig(),
		Log:       Log{Level: zerolog.LevelInfoValue, Format: "auto"},
	}
}

// Validate reports every value that cannot be used, each error starting with
// the key.
func (c Config) Validate() error {
	var errs []error
	if c.Database.URL != "" {
		if _, err := pgxpool.ParseConfig(c.Database.URL); err != nil {
			errs = append(errs, fmt.Errorf("database.url: %s", ParseProblem(err)))
		}
	}
	if c.Database.MaxConnections < MinConnections || c.Database.MaxConnections > 1000 {
		errs = append(errs, fmt.Errorf("database.max_connections: %d is not allowed; allowed values: %d to 1000", c.Database.MaxConnections, MinConnections))
	}
	if c.Database.ConnectTimeout < 100*time.Millisecond || c.Database.ConnectTimeout > 10*time.Minute {
		errs = append(errs, fmt.Errorf("database.connect_timeout: %s is not allowed; allowed values: 100ms to 10m", c.Database.ConnectTimeout))
	}
	if !slices.Contains(logLevels, c.Log.Level) {
		errs = append(errs, fmt.Errorf("log.level: %q is not allowed; allowed values: %s", c.Log.Level, strings.Join(logLevels, ", ")))
	}
	if !slices.Contains(logFormats, c.Log.Format) {
		errs = append(errs, fmt.Errorf("log.format: %q is not allowed; allowed values: %s", c.Log.Format, strings.Join(logFormats, ", ")))
	}
	if c.Delivers() && c.Database.MaxConnections < MinConnections+relay.Connections {
		errs = append(errs, fmt.Errorf("database.max_connections: %d is too few to deliver as well: a relay uses %d beside the %d of a runner; allowed values: %d to 1000, or delivery.enabled: false",
			c.Database.MaxConnections, relay.Connections, MinConnections, MinConnections+relay.Connections))
	}
	errs = append(errs, c.Runner.Validate(), c.Channels.Validate(), c.Abort.Validate(), c.Retention.Validate(), c.API.Validate(), c.Metrics.Validate(),
		c.Delivery.Compose.Validate("delivery"), c.Delivery.Carrier.validate(c.Delivery.Relay))
	errs = append(errs, c.validateLinks()...)
	delivery := config.Flatten(c.Delivery.Relay.Validate("delivery"))
	errs = append(append(errs, delivery...), c.Senders.Validate(delivery)...)
	return errors.Join(append(errs, validateSchedules(c.Schedules)...)...)
}

// Delivers reports whether a daemon delivers.
func (c Config) Delivers() bool { return c.Delivery.Enabled && len(c.Senders) > 0 }

// validateSchedules reports every problem of every schedule.
func validateSchedules(list []schedule.Definition) []error {
	var errs []error
	first := make(map[string]int)
	for i, d := range list {
		prefix := fmt.Sprintf("schedules[%d]", i)
		errs = append(errs, d.Validate(prefix))
		if at, twice := first[d.Name]; twice && d.Name != "" {
			errs = append(errs, fmt.Errorf("%s.name: %q is given twice, first in schedules[%d]; allowed values: different names", prefix, d.Name, at))
			continue
		}
		first[d.Name] = i
	}
	return errs
}
