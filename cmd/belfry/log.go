package main

import (
	"io"
	"time"

	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/node/settings"
)

// progressLogger returns the logger of a command that shows its progress itself: its level is
// warn unless the configuration sets one.
func (x *streams) progressLogger(s settings.Settings, w io.Writer) zerolog.Logger {
	return x.logger(s, w).Level(s.LogLevel(true)).With().Timestamp().Logger()
}

// briefLogger returns the logger of a short command. With a database of the user it drops
// warnings about the server, which run, relay and doctor report.
func (x *streams) briefLogger(s settings.Settings) zerolog.Logger {
	logger := x.progressLogger(s, x.stderr)
	if s.Database.URL != "" && logger.GetLevel() == zerolog.WarnLevel {
		return logger.Level(zerolog.ErrorLevel)
	}
	return logger
}

// liveLogger returns the logger of a process, and its level, which may change while the logger is
// used.
func (x *streams) liveLogger(s settings.Settings, w io.Writer) (zerolog.Logger, *settings.LiveLevel) {
	level := new(settings.LiveLevel)
	level.Set(s.LogLevel(false))
	return x.logger(s, w).Hook(level).With().Timestamp().Logger(), level
}

// logger returns a logger of every level, in the configured format.
func (x *streams) logger(s settings.Settings, w io.Writer) zerolog.Logger {
	_, tty := terminal(x.stderr, x.environ)
	if s.Log.Format == "console" || s.Log.Format == "auto" && tty {
		w = zerolog.ConsoleWriter{Out: w, TimeFormat: time.TimeOnly, NoColor: !tty || x.variable("NO_COLOR") != ""}
	}
	return zerolog.New(w)
}
