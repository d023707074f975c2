// Package belfry runs belfry inside a service: jobs, delivery, schedules and retention, as `belfry daemon`
// does, without its signals, exit codes and HTTP API.
//
//	your service ──── tx: its own rows + job.EnqueueTx ────► PostgreSQL
//	                                                         ▲   │
//	New(config, options) ─► Run(ctx)                         │   ▼
//	   runner      claims jobs of your types and belfry's, chunk by chunk; takes over dead runs
//	   relay       delivers messages through your senders and your carrier
//	   maintenance fires schedules, and deletes expired rows
//
//	ctx ends    soft: the chunk in progress and the calls in flight are finished
//	StopNow     hard: the chunk is rolled back, calls are cut short
//
// Either stop leaves every job resumable from its cursor. Any number of instances, daemons and
// relays work on one database, in any number of processes.
//
// # Configuration
//
// A [Config] begins with [DefaultConfig]. Its sections are the Config structs of their packages (job, channels,
// outbox/relay, …); docs/configuration.md and config.yaml document each key. Carriers, provider clients, the
// abort cache and metrics are options, so that a program links only those that it imports. Package
// node/settings reads the files of the command line and opens the parts that they name.
//
// # Enqueueing
//
// A request for a job is a row that joins your transaction: job.EnqueueTx for pgx, and
// `SELECT belfry.enqueue(…)` for database/sql and every other language. A program that only enqueues runs no
// instance.
//
// # The database
//
// belfry opens a pool with database.url, or uses one of yours ([WithPool]), which it never closes. The database
// needs the schema: run `belfry migrate up`, or call migrations.Up when the service starts. Jobs use three
// connections, and delivery relay.Connections.
//
// # Not promised
//
// Run returns an error if the database is unreachable at its start; the service tries again. It waits for the
// end of later outages. The package handles no signals, starts no private PostgreSQL and serves no HTTP API;
// `belfry serve` does. A program whose schedules or quiet hours name time zones needs their data, from the
// system or from time/tzdata. The garbage collector is unchanged; `belfry daemon` tunes it.
package belfry
