// Command belfry sends bulk notifications as an operator wants them sent: one
// job at a time per lane, resumable to the row, stoppable at once.
//
// The command only wires: it reads the configuration, opens the database, calls
// the packages and shows what they return. What a job is and what is guaranteed
// about it is the job package's matter, and PostgreSQL keeps it.
//
// # Streams
//
// Data goes to standard output, and nothing else does: with --json exactly one
// JSON document, an array where things are listed. Logs, progress and remarks
// go to standard error. A command that fails prints no data unless the data says
// what failed (doctor, run, jobs audit).
//
// # Exit codes
//
// Codes are part of the interface, see code in exit.go: 0 done, 1 failure, 2
// usage, 4 a job was aborted, 69 the database is unreachable, 75 another runner
// holds the lane, 78 the configuration is wrong.
//
// # Configuration
//
// Defaults, then a file, then BELFRY_ variables, then flags; the later wins. A
// key, variable or value that is not understood is an error before anything is
// done, and every problem is reported at once. See config.go.
//
// # Signals
//
// The first SIGINT or SIGTERM asks: run and daemon finish the chunk in progress
// and hand the job back with its cursor, other commands stop. The second one
// insists: the chunk in progress is rolled back. Either way no row is lost or
// written twice, because a chunk is one transaction. A relay, alone or in a daemon,
// finishes the calls in flight at the first and cuts them short at the second: what
// became of those is recorded as unknown.
//
// SIGHUP has a daemon or relay read its configuration again, see reload.go. What takes effect live
// is changed, what does not is logged, and a configuration with a problem changes
// nothing. Other commands end, as any program does whose terminal is closed; that is
// safe too.
//
// # Beside the runner
//
// A daemon fires schedules and deletes what is over its retention: gocron rings, and
// PostgreSQL decides which of several nodes does it. run fires schedules before it
// runs jobs. Nothing else has a clock. With senders in the configuration a daemon also
// delivers, as the relay command does alone and run --deliver once, see relay.go.
//
// # What it does not promise
//
// Human-readable output may change between releases; --json output only grows.
package main
