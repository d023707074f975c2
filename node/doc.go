// Package node wires one process of belfry: its parts, and the order in which they start and end. Its
// callers are the command line and package belfry.
//
//	Open      names ─► runner (abort cache) ─► relay (senders, carrier)
//	Start     configured schedules ─► database; periodic maintenance
//	Loops     names │ runner │ relay │ polls of the database, for metrics
//	StopNow   the chunk in progress is rolled back, calls in flight are cut short
//	Close     maintenance ends ─► names are released
//
// Loops end when their context ends, after the chunk in progress and the calls in flight. A loop that ends
// with an error must end the others (lifecycle.Together).
//
// The maintenance of a process that runs jobs fires schedules and deletes expired rows. gocron triggers
// it, and PostgreSQL decides which of several processes does it.
//
// Reload applies settings that may change while the process runs, and names those that wait for the next
// start.
//
// The package imports no carrier, no provider client and no reader of configuration files: Options has
// them as values, so that a program that embeds belfry links only the parts it uses. node/settings
// reads files and opens these parts, and node/metrics implements Monitor.
package node
