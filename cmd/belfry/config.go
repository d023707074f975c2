package main

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/spf13/viper"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/job/abortcache"
	"github.com/belfryhq/belfry/job/schedule"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/compose"
	"github.com/belfryhq/belfry/outbox/relay"
)

// config is everything that belfry can be told. config.yaml documents each key.
type config struct {
	Database  databaseConfig        `mapstructure:"database"`
	Server    serverConfig          `mapstructure:"server"`
	Runner    job.Config            `mapstructure:"runner"`
	Channels  channels.Config       `mapstructure:"channels"`
	Abort     abortcache.Config     `mapstructure:"abort"`
	Retention outbox.Retention      `mapstructure:"retention"`
	Delivery  deliveryConfig        `mapstructure:"delivery"`
	Senders   senderList            `mapstructure:"senders"`
	Schedules []schedule.Definition `mapstructure:"schedules"`
	Log       logConfig             `mapstructure:"log"`
}

// databaseConfig says where PostgreSQL is.
type databaseConfig struct {
	// URL is a PostgreSQL connection string, in URL or keyword form. Empty means
	// the private server of serverConfig.
	URL string `mapstructure:"url"`
	// MaxConnections bounds the connections of one belfry process.
	MaxConnections int `mapstructure:"max_connections"`
	// ConnectTimeout bounds one attempt to connect.
	ConnectTimeout time.Duration `mapstructure:"connect_timeout"`
}

// serverConfig is about the private PostgreSQL, used when no URL is given.
type serverConfig struct {
	// DataDir holds its cluster; empty means the user's data directory.
	DataDir string `mapstructure:"data_dir"`
}

// deliveryConfig is about relays: what they do with messages, and how these are made.
type deliveryConfig struct {
	// Enabled has a daemon deliver, if there are senders.
	Enabled bool           `mapstructure:"enabled"`
	Relay   relay.Config   `mapstructure:",squash"`
	Compose compose.Config `mapstructure:",squash"`
}

// logConfig says what is logged and how. Logs go to standard error.
type logConfig struct {
	Level  string `mapstructure:"level"`
	Format string `mapstructure:"format"`
}

var logLevels = []string{"debug", "info", "warn", "error"}

var logFormats = []string{"auto", "json", "console"}

// minConnections is what a runner needs at least: one for its run, one that
// listens, one to look at the job's row while the first is stuck.
const minConnections = 3

// defaultConfig is what holds when nothing is said.
func defaultConfig() config {
	return config{
		Database:  databaseConfig{MaxConnections: 16, ConnectTimeout: 10 * time.Second},
		Runner:    job.DefaultConfig(),
		Channels:  channels.DefaultConfig(),
		Abort:     abortcache.DefaultConfig(),
		Retention: outbox.DefaultRetention(),
		Delivery:  deliveryConfig{Enabled: true, Relay: relay.DefaultConfig(), Compose: compose.DefaultConfig()},
		Senders:   senderList{},
		Schedules: []schedule.Definition{},
		Log:       logConfig{Level: zerolog.LevelInfoValue, Format: "auto"},
	}
}

// Validate reports every value that cannot be used, each error starting with
// the key.
func (c config) Validate() error {
	var errs []error
	if c.Database.URL != "" {
		if _, err := pgxpool.ParseConfig(c.Database.URL); err != nil {
			errs = append(errs, fmt.Errorf("database.url: %s", parseURLProblem(err)))
		}
	}
	if c.Database.MaxConnections < minConnections || c.Database.MaxConnections > 1000 {
		errs = append(errs, fmt.Errorf("database.max_connections: %d is not allowed; allowed values: %d to 1000", c.Database.MaxConnections, minConnections))
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
	if c.delivers() && c.Database.MaxConnections < minConnections+relay.Connections {
		errs = append(errs, fmt.Errorf("database.max_connections: %d is too few to deliver as well: a relay uses %d beside the %d of a runner; allowed values: %d to 1000, or delivery.enabled: false",
			c.Database.MaxConnections, relay.Connections, minConnections, minConnections+relay.Connections))
	}
	errs = append(errs, c.Runner.Validate(), c.Channels.Validate(), c.Abort.Validate(), c.Retention.Validate(),
		c.Delivery.Relay.Validate("delivery"), c.Delivery.Compose.Validate("delivery"))
	errs = append(errs, c.Senders.validate()...)
	return errors.Join(append(errs, validateSchedules(c.Schedules)...)...)
}

// delivers reports whether a daemon delivers.
func (c config) delivers() bool { return c.Delivery.Enabled && len(c.Senders) > 0 }

// configInput is where configuration comes from. Tests inject it, which is why
// the environment is a list and not the process's own.
type configInput struct {
	Files   []string          // from --config; none: BELFRY_CONFIG, else config.yaml if there is one
	Environ []string          // as os.Environ returns it
	Secrets bool              // try the files that senders name as well
	Values  map[string]any    // by key, of the flags that were given
	Flags   map[string]string // by key, the names of those flags
}

// settings is a configuration together with where each value came from.
type settings struct {
	config
	Files   []string          // the files that were read
	sources map[string]source // by key
	values  map[string]any    // by key, as decoded
}

// source is where a value came from.
type source struct {
	kind string // "default", "file", "environment", "flag"
	name string // how to find it: config.yaml:12, BELFRY_LOG_LEVEL, --log-level
}

func (s source) String() string {
	if s.kind == sourceDefault {
		return s.kind
	}
	return s.name
}

const (
	sourceDefault = "default"
	sourceFile    = "file"
	sourceEnv     = "environment"
	sourceFlag    = "flag"
)

// defaultFile is read when it exists and no other file is named.
const defaultFile = "config.yaml"

// variable names that are no keys.
const (
	variablePrefix = "BELFRY_"
	fileVariable   = "BELFRY_CONFIG"
)

// foreignPrefixes belong to belfry's tests and to the watchdog of the private
// server.
var foreignPrefixes = []string{"BELFRY_TEST_", "BELFRY_PGSERVER_"}

// loadConfig merges defaults, file, environment and flags, in rising order. The
// error is a *configError that holds every problem found.
func loadConfig(in configInput) (settings, error) {
	l := loader{viper: viper.New(), sources: make(map[string]source), lists: make(map[string][]listItem), broken: make(map[string]bool)}
	for _, k := range configKeys() {
		l.viper.SetDefault(k.Name, k.Default)
		l.sources[k.Name] = source{kind: sourceDefault}
	}
	environ := l.environment(in.Environ)
	files := l.readFiles(in.Files, environ[fileVariable])
	l.applyEnvironment(environ)
	for key, value := range in.Values {
		l.viper.Set(key, value)
		l.replaced(key, source{sourceFlag, "--" + in.Flags[key]})
	}
	s := settings{Files: files, sources: l.sources, values: make(map[string]any)}
	l.decode(&s)
	if in.Secrets {
		l.checkSecrets(s.Senders)
	}
	if len(l.problems) > 0 {
		return settings{}, &configError{l.problems}
	}
	return s, nil
}

// loader gathers one configuration and what is wrong with it.
type loader struct {
	viper    *viper.Viper
	sources  map[string]source
	lists    map[string][]listItem // of sections, by key, from all files
	broken   map[string]bool       // paths whose value cannot be used
	problems []problem
}

// problem is one thing wrong with the configuration.
type problem struct {
	from source
	text string
}

func (l *loader) problem(from source, format string, args ...any) {
	l.problems = append(l.problems, problem{from, fmt.Sprintf(format, args...)})
}

// environment returns the BELFRY_ variables. Empty ones count as not set, as
// compose files and unit files write them.
func (l *loader) environment(environ []string) map[string]string {
	vars := make(map[string]string)
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		foreign := slices.ContainsFunc(foreignPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
		if strings.HasPrefix(name, variablePrefix) && !foreign && value != "" {
			vars[name] = value
		}
	}
	return vars
}

// applyEnvironment gives each variable to its key. A variable overrides the file,
// which viper's own precedence cannot express for injected variables, so the
// value is set, and flags after it.
func (l *loader) applyEnvironment(environ map[string]string) {
	known := []string{fileVariable}
	for _, k := range configKeys() {
		known = append(known, k.Variable)
		if value, ok := environ[k.Variable]; ok {
			l.viper.Set(k.Name, value)
			l.replaced(k.Name, source{sourceEnv, k.Variable})
		}
	}
	for name := range environ {
		if !slices.Contains(known, name) {
			l.problem(source{sourceEnv, name}, "unknown variable%s", didYouMean(name, known))
		}
	}
}

// decode checks each value by itself, so that every problem is named with its
// source, and then decodes and validates the whole. A value that cannot be used
// is replaced by the default, so that it hides no other problem; of a list of
// sections, what can be used is kept.
func (l *loader) decode(s *settings) {
	for _, k := range configKeys() {
		value, err := convert(l.viper.Get(k.Name), k.Type)
		if err != nil {
			l.misfit(k.Name, err)
			if value == nil {
				value = k.Default
			}
			l.viper.Set(k.Name, value)
		}
		s.values[k.Name] = value
	}
	if err := l.viper.UnmarshalExact(&s.config, viper.DecodeHook(decodeHook)); err != nil {
		l.problem(source{}, "%s", err)
		return
	}
	s.Senders = s.Senders.over(s.Delivery.Relay.Retry)
	s.values["senders"] = s.Senders
	for _, err := range flatten(s.Validate()) {
		if key, _, _ := strings.Cut(err.Error(), ":"); !l.isBroken(key) {
			l.problem(l.sourceOf(key), "%s", err)
		}
	}
}

// isBroken reports whether a value, or a section around it, could not be used.
func (l *loader) isBroken(key string) bool {
	for i, r := range key {
		if (r == '.' || r == '[') && l.broken[key[:i]] {
			return true
		}
	}
	return l.broken[key]
}

// misfit reports a value that cannot be used. Of a list each problem may name its item.
func (l *loader) misfit(key string, err error) {
	for _, one := range flatten(err) {
		text := one.Error()
		if !strings.HasPrefix(text, key+"[") {
			l.broken[key] = true
			l.problem(l.sources[key], "%s: %s", key, text)
			continue
		}
		path, _, _ := strings.Cut(text, ":")
		l.broken[strings.TrimSuffix(path, "."+keyKind)] = true // a kind decides about every other key
		l.problem(l.sourceOf(text), "%s", text)
	}
}

// sourceOf finds where a key was given; of schedules[0].cron where the list has its
// first item.
func (l *loader) sourceOf(key string) source {
	list, rest, ok := strings.Cut(key, "[")
	if !ok {
		return l.sources[key]
	}
	item, _, _ := strings.Cut(rest, "]")
	if from, ok := l.sources[list+"["+item+"]"]; ok {
		return from
	}
	return l.sources[list]
}

// decodeHook converts as convert does.
func decodeHook(_, to reflect.Type, data any) (any, error) {
	if to.Kind() == reflect.Struct {
		return data, nil
	}
	return convert(data, to)
}

// configError holds every problem of a configuration.
type configError struct {
	problems []problem
}

// code is that of usage when only flags are wrong.
func (e *configError) code() code {
	for _, p := range e.problems {
		if p.from.kind != sourceFlag {
			return codeConfiguration
		}
	}
	return codeUsage
}

// lines returns one line for each problem, in a stable order.
func (e *configError) lines() []string {
	lines := make([]string, 0, len(e.problems))
	for _, p := range e.problems {
		if p.from.name == "" {
			lines = append(lines, p.text)
			continue
		}
		lines = append(lines, p.from.name+": "+p.text)
	}
	slices.SortStableFunc(lines, compareNatural)
	return slices.Compact(lines)
}

// Error lists the problems, one to a line.
func (e *configError) Error() string {
	lines := e.lines()
	if len(lines) == 1 {
		return "configuration: " + lines[0]
	}
	return fmt.Sprintf("configuration: %d problems\n  %s", len(lines), strings.Join(lines, "\n  "))
}

// flatten undoes errors.Join.
func flatten(err error) []error {
	if err == nil {
		return nil
	}
	// Only the outermost layers are joins.
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, e := range joined.Unwrap() {
		all = append(all, flatten(e)...)
	}
	return all
}

// fileExists reports whether a file can be read by name; a directory is none.
func fileExists(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir()
}
