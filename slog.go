package belfry

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/rs/zerolog"
)

// overSlog is a logger whose entries go to a handler. zerolog knows an entry's fields as JSON
// only, so they are read from that.
func overSlog(h slog.Handler) zerolog.Logger {
	enabled := zerolog.HookFunc(func(e *zerolog.Event, level zerolog.Level, _ string) {
		if !h.Enabled(context.Background(), slogLevel(level)) {
			e.Discard()
		}
	})
	return zerolog.New(slogWriter{h}).Hook(enabled)
}

// slogWriter is a zerolog.LevelWriter.
type slogWriter struct{ handler slog.Handler }

// Write is for an entry without a level.
func (w slogWriter) Write(entry []byte) (int, error) { return w.WriteLevel(zerolog.NoLevel, entry) }

// WriteLevel passes one entry on.
func (w slogWriter) WriteLevel(level zerolog.Level, entry []byte) (int, error) {
	message, attrs, err := fieldsOf(entry)
	if err != nil {
		return 0, err
	}
	record := slog.NewRecord(time.Now(), slogLevel(level), message, 0)
	record.AddAttrs(attrs...)
	return len(entry), w.handler.Handle(context.Background(), record)
}

// fieldsOf takes an entry apart, which is one JSON object.
func fieldsOf(entry []byte) (message string, attrs []slog.Attr, err error) {
	in := json.NewDecoder(bytes.NewReader(entry))
	in.UseNumber()
	if _, err := in.Token(); err != nil {
		return "", nil, err
	}
	for in.More() {
		key, err := in.Token()
		if err != nil {
			return "", nil, err
		}
		var value any
		if err := in.Decode(&value); err != nil {
			return "", nil, err
		}
		switch name, _ := key.(string); name {
		case zerolog.LevelFieldName: // the record has it
		case zerolog.MessageFieldName:
			message, _ = value.(string)
		default:
			attrs = append(attrs, slog.Any(name, number(value)))
		}
	}
	return message, attrs, nil
}

// number is an integer or a float where JSON has a number.
func number(value any) any {
	n, is := value.(json.Number)
	if !is {
		return value
	}
	if whole, err := n.Int64(); err == nil {
		return whole
	}
	if f, err := n.Float64(); err == nil {
		return f
	}
	return n.String()
}

// slogLevel is a level as slog has it. What zerolog calls fatal and panic ends no program here.
func slogLevel(level zerolog.Level) slog.Level {
	switch level {
	case zerolog.TraceLevel:
		return slog.LevelDebug - 4
	case zerolog.DebugLevel:
		return slog.LevelDebug
	case zerolog.WarnLevel:
		return slog.LevelWarn
	case zerolog.ErrorLevel:
		return slog.LevelError
	case zerolog.FatalLevel, zerolog.PanicLevel:
		return slog.LevelError + 4
	case zerolog.InfoLevel, zerolog.NoLevel, zerolog.Disabled:
	}
	return slog.LevelInfo
}
