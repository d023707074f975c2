// Package schedule enqueues recurring jobs.
//
// A schedule is a row of belfry.schedules: a name, a recurrence (cron in a time zone, or an interval), a
// template of the job or group of jobs, and optionally an operator's query. Each row of the query becomes one
// job, or with Template.Values the content of one recipient of a single job. Schedules are stored by plain SQL, by a
// Store, or from the configuration file (SyncConfig).
//
//	             occurrence due                     next_at moves on
//	waiting ───────────────────────▶ one transaction ───────────────▶ waiting
//	 ▲   │                            │ lock the row, SKIP LOCKED
//	 │   │ pause                      │ run the query, enqueue
//	 │   ▼                            │ record
//	paused                            └─ error: nothing enqueued, retry_at, last_error
//
// Every node calls Firer.FireDue at each of its ticks, and so does a one-shot run. There is no leader: the first
// node that locks the row fires the schedule, in one transaction that enqueues the jobs and moves next_at.
//
// # Invariants
//
//  1. An occurrence enqueues its jobs once, with any number of nodes, after a crash at any point, and after a
//     COMMIT with an unknown outcome: the jobs and the move of next_at are committed together or not at all. The
//     idempotency key schedule:<name>:<occurrence in UTC>[:<row>] enforces it too.
//  2. No occurrence is lost silently: each occurrence after armed_at has fired, or is counted in skipped with an
//     event that contains the reason, or is not before next_at.
//  3. A failing schedule (an invalid definition, a failing or slow query, a rejected template) does not prevent
//     other schedules from firing.
//  4. Every change by an operator, every firing, every skip and every new error is in belfry.events, written in
//     the same transaction (I14 of the design).
//
// # Time
//
// A cron expression has five fields, minute, hour, day of month, month and day of week, or is @hourly, @daily,
// @weekly, @monthly or @yearly. It may have lists, ranges, steps and the English three-letter names of months and
// days; Sunday is 0. If both days are restricted, either must match; a step such as */2 is a restriction.
//
// When clocks change, an hour field that contains * follows real time: it fires in both repeated hours and not in
// the skipped hour. Any other hour field follows local time: an occurrence in the skipped hour fires once, at the
// first instant after it, and an occurrence in a repeated hour fires in the first of the two.
//
// Intervals count from the row's created_at in elapsed time; a delay does not shift the grid.
//
// An occurrence is missed if no node fires it within missed_after. The policy skip drops missed occurrences. The
// policy once replaces all of them by the newest, or by an occurrence that is due at that moment and not missed.
// The policy all fires each. Occurrences during a pause are dropped, and so are occurrences that are older than
// the template's expires_after.
//
// # Failures
//
// A failing occurrence is retried after 1, 2, 4 … seconds, at most 60, until it has been failing for
// missed_after. Then it is skipped and recorded, and the next occurrence follows. An error of the database is not
// an error of the schedule: the transaction is rolled back and the next tick retries.
//
// # Not guaranteed
//
// The start time of a job: the occurrence is its schedule_at; lanes and priorities determine the start. The order
// of schedules that are due at the same time. Two equal rows of a query are two jobs.
//
// # Queries
//
// A query runs read only, for at most query_timeout, concurrently with queries of other schedules: a Firer runs up
// to four, and reserves the last place for schedules that do not fail. It runs as query_role, inside a function
// with the rights of that role, which it cannot leave (QueryGuard in queries.sql). It leaves nothing in the session, and
// the connection is closed after the transaction (db.Foreign). Every error of it is recorded with the schedule, also if it
// has ended the connection; one that goes on after its time is terminated. Without a query_role it runs
// with the rights of the node's database role: a role that may write belfry.schedules can then read everything
// that the node can.
//
// With Template.Values the rows fill belfry.job_values in the same transaction, by COPY as the node. A firing has
// up to 64 MiB of rows in memory.
package schedule
