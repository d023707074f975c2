// Command bench measures belfry on a real PostgreSQL with fsync on and judges the figures
// by the project's goals. It is a module of its own, so that what belfry is compared with,
// and what only measuring needs, never enters belfry's go.mod.
//
// # What a benchmark is
//
// One function each: it gets an env (a database with belfry's schema, generated channels, a
// place for progress) and adds figures to a result. A figure has a unit and may have a goal.
// Missing a goal is a result, not an error: it is said plainly, in the table and as data.
// docs/benchmarks.md and docs/load.md say what each measures.
//
// # Method
//
// What is compared runs in the same process against the same server, in turns, and the
// ratio is taken within each round: machines differ and so do their minutes, ratios much
// less. In pairs the order alternates, so that a machine that gets slower favours neither.
// Medians over the rounds are reported. Rows are counted after every measurement; a wrong
// count is an error, so no figure comes from work that was not done.
//
// # The database
//
// By default a private stock server in a temporary directory, with the durable settings
// that people's data gets, removed at the end. On a server that is given by URL a database
// is made, used and dropped; nothing else there is touched.
//
// # Failure
//
// The first error ends the run, as FailNow ends a test: what measures passes no errors on,
// and what it has deferred undoes what it has started. Every benchmark has a deadline.
// Processes started here (runners that are killed or weighed, pgbench) end with the run. A
// bench that is itself killed leaves its temporary directory behind, or its database where a
// URL was given. Exit codes: 0 the benchmarks ran, whether or not they meet their goals; 1 an
// error; 2 wrong usage.
//
// # Not promised
//
// Absolute figures compare with nothing but other figures of the same run. The latencies of
// load mean something only on a machine that does nothing else; load says when it did.
package main
