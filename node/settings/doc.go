// Package settings is all that belfry can be told: a Config struct for each section, most of
// them of the package that it is about, with their defaults, and what may be wrong about them
// as a whole.
//
//	Default ─► files ─► BELFRY_ variables ─► flags ─► Validate ─► Settings
//	           (internal/config reads them)                       Open…: carrier, senders, cache
//
// A value that cannot be used is an error that names its key and what is allowed, and all of
// them are found at once. Nothing is connected to before something is opened. What settings
// name and cannot be used when it is opened is an [UnfitError].
//
// Secrets are in the settings in the clear. Whoever shows settings shows those of
// [Settings.Shown].
package settings
