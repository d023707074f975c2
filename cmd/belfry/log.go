package main

import (
	"io"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/node/settings"
)

// progressLogger returns the logger of a command that shows its progress itself: its level is
// warn unless the configuration sets one.
func (x *streams) progressLogger(s settings.Settings, w io.Writer) zerolog.Logger {
	return x.logger(s, w).Level(logLevel(s, true)).With().Timestamp().Logger()
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
func (x *streams) liveLogger(s settings.Settings, w io.Writer) (zerolog.Logger, *liveLevel) {
	level := new(liveLevel)
	level.set(logLevel(s, false))
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

// logLevel returns the configured level. If quiet is set and no level is configured, it is warn.
func logLevel(s settings.Settings, quiet bool) zerolog.Level {
	if quiet && s.QuietLog() {
		return zerolog.WarnLevel
	}
	level, err := zerolog.ParseLevel(s.Log.Level)
	if err != nil {
		return zerolog.InfoLevel // Validate rejects other values
	}
	return level
}

// liveLevel discards events below a level that may change at any time.
type liveLevel struct{ atomic.Int32 }

func (l *liveLevel) set(level zerolog.Level) { l.Store(int32(level)) }

// Run is zerolog's hook.
func (l *liveLevel) Run(e *zerolog.Event, level zerolog.Level, _ string) {
	if level < zerolog.Level(l.Load()) { //nolint:gosec // set stored a level
		e.Discard()
	}
}
