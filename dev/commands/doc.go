// Package commands runs the commands of belfry for development: `belfry fake`, `belfry demo`, `belfry demo-app` and
// `belfry channels generate`. cmd/belfry/dev.go parses their flags and is the only file of belfry
// outside dev that imports this package.
package commands

import "github.com/belfryhq/belfry/internal/text"

// Output is the output of a command.
type Output interface {
	// Printf writes text to standard output.
	Printf(format string, args ...any)
	// PrintJSON writes one JSON document to standard output.
	PrintJSON(v any) error
	// Remark writes a line to standard error.
	Remark(format string, args ...any)
	// Page returns a renderer of text for standard output.
	Page() *text.Terminal
	// Ticker returns the live line of the command on standard error.
	Ticker() *text.Ticker
}
