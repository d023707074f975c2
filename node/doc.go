// Package node wires one process of belfry from its settings: what runs beside what, and in
// which order it begins and ends. The command line and package belfry are its callers.
//
//	Open      names ─► runner (abort cache) ─► relay (senders, carrier)
//	Start     schedules of the settings ─► database; maintenance by the clock
//	Loops     names │ runner │ relay │ looks at the database, for metrics
//	StopNow   the chunk in progress is rolled back, calls in flight are cut short
//	Close     maintenance ends ─► relay ─► runner ─► names are given back
//
// Loops end when their context does: softly, the chunk in progress and the calls in flight are
// finished. One that ends with an error is to end the others (lifecycle.Together).
//
// Beside the loops goes the maintenance of a process that runs jobs: it fires schedules and
// deletes what retention lets go. gocron rings, and PostgreSQL decides which of several
// processes does it.
//
// Reload puts settings into force that may change live. The rest waits for the next start,
// and is named.
//
// Monitor shows such a process on metrics.listen, and one that serves the HTTP API alone.
//
// Nothing here reads a file of configuration, asks a person or knows a signal.
package node
