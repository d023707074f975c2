// Package bench compares belfry with other ways to do the same work: plain SQL,
// River, asynq, a tuned server, and a server without belfry. It contains Go
// benchmarks only. It is a module of its own, so that the compared libraries
// stay out of belfry's go.mod. docs/benchmarks.md describes each benchmark and
// lists the goals.
//
// # Method
//
// A benchmark runs all compared sides once, in random order, in one process
// against one server, and reports the ratio. -count repeats it; benchstat
// computes the median over the repetitions. Compare ratios only: machines
// differ, and so do the minutes of one machine.
//
// Each measurement counts its rows. A wrong count fails the benchmark. A missed
// goal does not: the benchmark logs it below its line.
//
// # Server
//
// The benchmarks start a stock PostgreSQL with fsync on in the temporary
// directory ($TMPDIR) and remove it. If BELFRY_DATABASE_URL is set, they create
// a database on that server instead and drop it. Redis and NATS are private
// servers on this machine. All benchmarks that walk share one database; all
// benchmarks that deliver share another one.
//
// # Not promised
//
// Absolute figures compare only with figures of the same run. The latencies of
// Jobs/load require a machine without other work.
package bench
