package settings

import (
	"errors"
	"os"
	"slices"

	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/channels/unsubscribe"
	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/keys"
	"github.com/belfryhq/belfry/job/abortcache"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/relay"
)

// Settings is a configuration together with the source of each value.
type Settings struct {
	Config
	*config.Loaded
}

// Read loads the configuration from files, the later over the earlier, and from the process's BELFRY_
// variables. Without files it reads the file that BELFRY_CONFIG names, or else ./config.yaml if it exists,
// as the command line does. The error lists every problem.
func Read(files ...string) (Settings, error) {
	return Load(config.Input{Files: files, Environ: os.Environ()}, Config.Delivers)
}

// Load merges defaults, files, environment and flags, the later over the earlier. If secrets returns true
// for the result, it also checks the files with secrets. The error is a *config.Error that contains every
// problem.
func Load(in config.Input, secrets func(Config) bool) (Settings, error) {
	c := Default()
	loaded := config.Read(in, &c, map[string]config.List{
		"senders": {
			Form: `[{"name": …, "kind": …, …}]`, Of: "senders, each with name, kind and the settings of its kind",
			Decode: func(sections []any) (err error) {
				c.Senders, err = DecodeSenders(sections, c.Delivery.Relay.Retry)
				return err
			},
		},
		"schedules":  {Form: `[{"name": …, "cron": …, "template": {…}}]`, Of: "schedules, each with name, cron or every, and template"},
		"inbox.keys": {Form: `[{"id": …, "algorithm": …, "key_file": …}]`, Of: "keys, each with id, algorithm, and key or key_file"},
	})
	loaded.Check(c.Validate())
	if secrets != nil && secrets(c) {
		_, noLinks := c.API.UnsubscribeLinks()
		loaded.Check(errors.Join(c.Senders.checkSecrets(loaded.Wrong), noLinks))
		if c.API.Validate() == nil { // otherwise Validate has reported the problem
			loaded.Check(c.API.CheckSecrets())
		}
		if c.Inbox.validate() == nil {
			loaded.Check(c.Inbox.checkServed())
		}
	}
	if err := loaded.Err(); err != nil {
		return Settings{}, err
	}
	return Settings{c, loaded}, nil
}

// Always requires the check of files with secrets.
func Always(Config) bool { return true }

// Parts are the parts of a process that the configuration names.
type Parts struct {
	Senders []relay.Sender
	Links   *unsubscribe.Links // nil without api.unsubscribe_keys_file
	Broker  outbox.Broker      // nil for PostgreSQL

	close []func() error
}

// Open opens the senders, the keys of links and, if carrier is set, the carrier. The error is a
// *node.ConfigError.
func (c Config) Open(carrier bool, log zerolog.Logger) (p *Parts, err error) {
	p = &Parts{}
	if carrier {
		if p.Broker, err = c.Delivery.Carrier.Open(c.Delivery.Relay, log); err != nil {
			return nil, err
		}
		if p.Broker != nil {
			p.close = append(p.close, p.Broker.Close)
		}
	}
	if p.Links, err = c.OpenLinks(); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	senders, done, err := c.OpenSenders(p.Links)
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	p.Senders, p.close = senders, append(p.close, done)
	return p, nil
}

// Close closes the parts, after the end of the relay. A nil Parts has none.
func (p *Parts) Close() error {
	if p == nil {
		return nil
	}
	var errs []error
	for _, f := range slices.Backward(p.close) {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// OpenCache returns the abort cache, or nil without one. The caller closes it.
func (c Config) OpenCache() (*abortcache.Cache, error) {
	if c.Abort.URL == "" {
		return nil, nil //nolint:nilnil // no cache is not an error
	}
	return abortcache.Open(c.Abort)
}

// Given returns the number of keys that a file, a variable or a flag sets.
func (s Settings) Given() (n int64) {
	for _, k := range keys.Of(s.Config) {
		if s.Source(k.Name).Kind != config.FromDefault {
			n++
		}
	}
	return n
}

// QuietLog reports whether no log level was requested. A file that repeats the default, such as the shipped
// one, requests none.
func (s Settings) QuietLog() bool {
	from := s.Source("log.level").Kind
	return from == config.FromDefault || from == config.FromFile && s.Log.Level == Default().Log.Level
}
