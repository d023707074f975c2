package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/belfryhq/belfry/internal/keys"
)

// parsed is a flag whose text becomes a T. Its errors list the allowed values; pflag prefixes the name of
// the flag.
type parsed[T any] struct {
	parse func(string) (T, error)
	kind  string   // of the value, for the help
	words []string // the allowed values, for completion; may be nil
	text  string
	value *T // nil until set
}

func (p *parsed[T]) Set(text string) error {
	v, err := p.parse(text)
	if err != nil {
		return err
	}
	p.text, p.value = text, &v
	return nil
}

func (p *parsed[T]) choices() []string { return p.words }

func (p *parsed[T]) String() string { return p.text }
func (p *parsed[T]) Type() string   { return p.kind }

// or returns the value of the flag, or a default.
func (p *parsed[T]) or(value T) T {
	if p == nil || p.value == nil {
		return value
	}
	return *p.value
}

// flagOf adds a flag with a parser.
func flagOf[T any](flags *pflag.FlagSet, name, kind, usage string, parse func(string) (T, error)) *parsed[T] {
	p := &parsed[T]{parse: parse, kind: kind}
	flags.Var(p, name, usage)
	return p
}

// choiceOf adds a flag for one of the allowed values.
func choiceOf(flags *pflag.FlagSet, name, kind, usage string, allowed ...string) *parsed[string] {
	p := flagOf(flags, name, kind, usage, oneOf(allowed...))
	p.words = allowed
	return p
}

// checked returns a parser of texts that check accepts.
func checked(check func(string) error) func(string) (string, error) {
	return func(text string) (string, error) { return text, check(text) }
}

// intBetween returns a parser of whole numbers in a range.
func intBetween(low, high int64) func(string) (int64, error) {
	return func(text string) (int64, error) {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < low || n > high {
			if high == math.MaxInt64 {
				return 0, fmt.Errorf("allowed values: whole numbers from %d", low)
			}
			return 0, fmt.Errorf("allowed values: whole numbers from %d to %d", low, high)
		}
		return n, nil
	}
}

// oneOf returns a parser of one of the allowed values.
func oneOf(allowed ...string) func(string) (string, error) {
	return func(text string) (string, error) {
		if !slices.Contains(allowed, text) {
			return "", fmt.Errorf("allowed values: %s%s", strings.Join(allowed, ", "), keys.Hint(text, allowed))
		}
		return text, nil
	}
}

// parseDuration parses durations that are not negative.
func parseDuration(text string) (time.Duration, error) {
	return durationBetween(0, math.MaxInt64, "with their unit, such as 30s, 5m or 1h30m")(text)
}

// durationBetween returns a parser of durations in a range, which allowed describes.
func durationBetween(low, high time.Duration, allowed string) func(string) (time.Duration, error) {
	return func(text string) (time.Duration, error) {
		d, err := time.ParseDuration(text)
		if err != nil || d < low || d > high {
			return 0, errors.New("allowed values: durations " + allowed)
		}
		return d, nil
	}
}
