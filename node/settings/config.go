package settings

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/keys"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/job/abortcache"
	"github.com/belfryhq/belfry/job/schedule"
	"github.com/belfryhq/belfry/node"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/compose"
	"github.com/belfryhq/belfry/outbox/relay"
)

// Config is the whole configuration of belfry. config.yaml documents each key.
type Config struct {
	Database  node.Database         `mapstructure:"database"`
	Server    Server                `mapstructure:"server"`
	Runner    job.Config            `mapstructure:"runner"`
	Channels  channels.Config       `mapstructure:"channels"`
	Abort     abortcache.Config     `mapstructure:"abort"`
	Retention outbox.Retention      `mapstructure:"retention"`
	Delivery  Delivery              `mapstructure:"delivery"`
	Senders   Senders               `mapstructure:"senders"`
	Schedules []schedule.Definition `mapstructure:"schedules"`
	API       api.Config            `mapstructure:"api"`
	Inbox     Inbox                 `mapstructure:"inbox"`
	CLI       CLI                   `mapstructure:"cli"`
	Metrics   node.MetricsConfig    `mapstructure:"metrics"`
	Log       Log                   `mapstructure:"log"`
}

// Server configures the private PostgreSQL, which is used without database.url.
type Server struct {
	// DataDir contains its cluster; empty means the user's data directory.
	DataDir string `mapstructure:"data_dir"`
}

// Delivery configures relays and the composition of messages.
type Delivery struct {
	// Enabled lets a daemon with senders deliver.
	Enabled bool           `mapstructure:"enabled"`
	Carrier Carrier        `mapstructure:",squash"`
	Relay   relay.Config   `mapstructure:",squash"`
	Compose compose.Config `mapstructure:",squash"`
}

// Log configures the log, which goes to standard error.
type Log struct {
	Level  string `mapstructure:"level"`
	Format string `mapstructure:"format"`
}

var logLevels = []string{"debug", "info", "warn", "error"}

var logFormats = []string{"auto", "json", "console"}

// CLI configures the command line.
type CLI struct {
	// NoInput disables prompts at a terminal.
	NoInput bool `mapstructure:"no_input" variable:"NO_INPUT"`
}

// Default returns the default configuration.
func Default() Config {
	n := node.DefaultConfig()
	return Config{
		Database:  n.Database,
		Runner:    n.Runner,
		Channels:  n.Channels,
		Abort:     abortcache.DefaultConfig(),
		Retention: n.Retention,
		Delivery:  Delivery{Enabled: n.Delivery.Enabled, Carrier: defaultCarrier(), Relay: n.Delivery.Relay, Compose: n.Delivery.Compose},
		Senders:   Senders{},
		Schedules: n.Schedules,
		API:       api.DefaultConfig(),
		Inbox:     defaultInbox(),
		Metrics:   node.DefaultMetricsConfig(),
		Log:       Log{Level: zerolog.LevelInfoValue, Format: "auto"},
	}
}

// Node returns the configuration of a process. The media whose senders need no address of a channel are
// in Delivery.Compose.NoAddress.
func (c Config) Node() node.Config {
	n := node.Config{
		Database: c.Database, Runner: c.Runner, Channels: c.Channels, Retention: c.Retention, Schedules: c.Schedules,
		Delivery: node.Delivery{Enabled: c.Delivery.Enabled, RequeueAfter: c.Delivery.Carrier.RequeueAfter, Relay: c.Delivery.Relay,
			Compose: c.Delivery.Compose},
	}
	n.Delivery.Compose.NoAddress = slices.Concat(n.Delivery.Compose.NoAddress, c.Senders.Targeted())
	return n
}

// Update returns the configuration next for a running process that was started with c. Senders whose kind
// or target changed wait for the next start.
func (c Config) Update(next Config) node.Update {
	u := node.Update{Config: next.Node(), Keys: next}
	if slices.EqualFunc(c.Senders, next.Senders, func(a, b Sender) bool {
		return a.Name == b.Name && a.Kind == b.Kind && a.Medium == b.Medium && slices.Equal(a.Platforms, b.Platforms) &&
			reflect.DeepEqual(a.Settings, b.Settings)
	}) {
		u.Senders = next.Senders.Configs()
	}
	return u
}

// Validate returns every problem. Each begins with its key.
func (c Config) Validate() error {
	errs := []error{c.Node().Validate(), c.Abort.Validate(), c.API.Validate(), c.Inbox.validate(), c.Metrics.Validate(),
		c.Delivery.Carrier.validate(c.Delivery.Relay)}
	if !slices.Contains(logLevels, c.Log.Level) {
		errs = append(errs, fmt.Errorf("log.level: %q is not allowed; allowed values: %s", c.Log.Level, strings.Join(logLevels, ", ")))
	}
	if !slices.Contains(logFormats, c.Log.Format) {
		errs = append(errs, fmt.Errorf("log.format: %q is not allowed; allowed values: %s", c.Log.Format, strings.Join(logFormats, ", ")))
	}
	if c.Delivers() && c.Database.MaxConnections < node.MinConnections+relay.Connections {
		errs = append(errs,
			fmt.Errorf("database.max_connections: %d is too few to deliver as well: a relay uses %d beside the %d of a runner; "+
				"allowed values: %d to 1000, or delivery.enabled: false",
				c.Database.MaxConnections, relay.Connections, node.MinConnections, node.MinConnections+relay.Connections))
	}
	errs = append(errs, c.validateLinks()...)
	return errors.Join(append(errs, c.Senders.Validate(keys.Flatten(c.Delivery.Relay.Validate("delivery")))...)...)
}

// Delivers reports whether a daemon delivers.
func (c Config) Delivers() bool { return c.Delivery.Enabled && len(c.Senders) > 0 }
