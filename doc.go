// Package belfry runs the whole of belfry inside a service: jobs, delivery, schedules,
// retention and, where they are wanted, metrics. It is what `belfry daemon` runs, with the same
// configuration, without its signals, exit codes and HTTP API.
//
//	your service ──── tx: its own rows + job.EnqueueTx ────► PostgreSQL
//	                                                         ▲   │
//	New(config, options) ─► Run(ctx)                         │   ▼
//	   runner      claims jobs of your types and belfry's, chunk by chunk; takes over dead runs
//	   relay       delivers messages through your senders and those of the configuration
//	   schedules   are fired;  retention lets go of what is over;  metrics.listen shows all that
//
//	ctx ends    soft: the chunk in progress and the calls in flight are finished
//	StopNow     hard: the chunk is rolled back, calls are cut short
//
// Either stop leaves every job resumable from its cursor. Any number of instances, daemons and
// relays work on one database, in any number of processes.
//
// # Configuration
//
// A [Config] begins with [DefaultConfig], whose fields may be set, or is read by [Load]: by the
// rules of the command line, from the same files. Its sections are the Config structs of the
// packages that they are about (job, channels, outbox/relay, …); docs/configuration.md and
// config.yaml say what each key does. server.data_dir and log.* are the command's: an instance
// starts no server, and logs where it is told to.
//
// # Enqueueing
//
// A request for a job is a row that joins your transaction: job.EnqueueTx for pgx, and
// `SELECT belfry.enqueue(…)` for database/sql and every other language. No instance has to run
// where requests are made.
//
// # The database
//
// belfry opens a pool as database.url says, or takes one of yours ([WithPool]), which it never
// closes. The schema has to be there: `belfry migrate up`, or migrations.Up, which a service
// may call when it starts. Connections are used by few at a time: three for jobs, and
// relay.Connections for delivery.
//
// # Not promised
//
// An instance that cannot reach its database when it starts ends with an error, and it is the
// service that tries again; later outages are waited out. There are no signals here, no
// private PostgreSQL and no HTTP API: `belfry serve` beside the service has that. A program
// whose schedules or quiet hours name time zones needs their data, from the system or by
// importing time/tzdata. The garbage collector is left as it is; `belfry daemon` tunes it.
package belfry
