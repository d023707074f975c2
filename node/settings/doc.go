// Package settings is the whole configuration of belfry: a Config struct with a section for each package,
// its defaults, and its validation. It also opens the parts that the configuration names.
//
//	Default ─► files ─► BELFRY_ variables ─► flags ─► Validate ─► Settings ─► Open
//	           (internal/config reads them)                                  senders, links, carrier
//
// Each problem names its key and the allowed values, and Load returns all problems at once. Load connects to
// nothing. A part that cannot be opened is a node.ConfigError.
//
// Settings contain secrets in the clear. [Settings.Shown] returns them without secrets.
package settings
