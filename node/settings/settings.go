package settings

import (
	"errors"

	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/job/abortcache"
)

// Settings is a configuration together with where each value came from.
type Settings struct {
	Config
	*config.Loaded
}

// Load merges defaults, files, environment and flags, in rising order, and tries the
// files with secrets as well if secrets says so of what came out; nil: never. The
// error is a *config.Error that holds every problem found.
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
		"schedules": {Form: `[{"name": …, "cron": …, "template": {…}}]`, Of: "schedules, each with name, cron or every, and template"},
	})
	loaded.Check(c.Validate())
	if secrets != nil && secrets(c) {
		_, noLinks := c.API.UnsubscribeLinks()
		loaded.Check(errors.Join(c.Senders.checkSecrets(loaded.Wrong), noLinks, c.API.CheckSecrets()))
	}
	if err := loaded.Err(); err != nil {
		return Settings{}, err
	}
	return Settings{c, loaded}, nil
}

// Always has the files of senders tried.
func Always(Config) bool { return true }

// UnfitError is about something that settings name and that cannot be used: a file with a key,
// the server of a carrier. Trying again does not help.
type UnfitError struct{ Err error }

// Error is that of Err.
func (e *UnfitError) Error() string { return e.Err.Error() }

// Unwrap is Err.
func (e *UnfitError) Unwrap() error { return e.Err }

// OpenCache returns the abort cache; nil when there is none. The caller closes it.
func (c Config) OpenCache() (*abortcache.Cache, error) {
	if c.Abort.URL == "" {
		return nil, nil //nolint:nilnil // no cache is not an error
	}
	return abortcache.Open(c.Abort)
}

// QuietLog reports that no level of logs was asked for. A file that repeats the default, as
// the shipped one does, asks for nothing.
func (s Settings) QuietLog() bool {
	asked := s.Source("log.level").Kind
	return asked == config.FromDefault || asked == config.FromFile && s.Log.Level == Default().Log.Level
}
