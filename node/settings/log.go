package settings

import (
	"sync/atomic"

	"github.com/rs/zerolog"
)

// LogLevel returns the configured level. If quiet is set and no level is configured, it is warn.
func (s Settings) LogLevel(quiet bool) zerolog.Level {
	if quiet && s.QuietLog() {
		return zerolog.WarnLevel
	}
	level, err := zerolog.ParseLevel(s.Log.Level)
	if err != nil {
		return zerolog.InfoLevel // Validate rejects other values
	}
	return level
}

// LiveLevel discards events below a level that may change at any time. The zero value is debug.
type LiveLevel struct{ level atomic.Int32 }

// Set changes the level.
func (l *LiveLevel) Set(level zerolog.Level) { l.level.Store(int32(level)) }

// Run is zerolog's hook.
func (l *LiveLevel) Run(e *zerolog.Event, level zerolog.Level, _ string) {
	if level < zerolog.Level(l.level.Load()) { //nolint:gosec // Set stored a level
		e.Discard()
	}
}
