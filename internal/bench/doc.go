// Package bench measures belfry against what one would write without it, on a
// real PostgreSQL with fsync on, and judges the figures by the project's goals.
//
// # What a benchmark is
//
// One file each, one function each: it gets an env (a database with belfry's
// schema, generated channels, a place for progress) and returns figures. A figure
// has a unit and, where the project set one, a goal. Missing a goal is a result,
// not an error: it is said plainly, in the table and as data.
//
//	walk          a job against one INSERT … SELECT of the same rows
//	alternatives  a job against one INSERT per row and against OFFSET paging
//	level         the last chunks of a long walk against its first
//	memory        peak memory of a runner process for a small and a large job
//	latency       enqueue to first chunk committed, woken by NOTIFY
//	takeover      kill -9 of a runner to the first chunk of its successor
//	radius        cost against matches; no chunk scans without bound
//	load          what a job does to pgbench beside it; only when it is named
//
// # Method
//
// What is compared runs in the same process against the same server, interleaved,
// into the same table emptied and checkpointed before each, and the ratio is taken
// within each round: machines differ and so do their minutes, ratios much less. In
// walk the order alternates, so that a machine that gets slower favours neither. The
// medians over the rounds are reported. Rows are counted after every measurement; a
// wrong count is an error, so no figure comes from work that was not done.
//
// # The database
//
// By default a private server in a temporary directory, with the durable settings
// that people's data gets, removed at the end. With Config.DatabaseURL a database
// is made on that server, used and dropped; nothing else there is touched.
//
// # Failure
//
// Errors, a wrong count of rows among them, end the run at once. Every benchmark
// has a deadline. Processes started here (runners that are killed or weighed) end
// with the run. A bench process that is itself killed leaves its temporary
// directory behind, or its database where a URL was given.
//
// # Not promised
//
// Absolute figures compare with nothing but other figures of the same run. The
// latencies of load mean something only on a machine that does nothing else; load
// says when it did.
package bench
