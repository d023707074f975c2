// Package schedule enqueues recurring jobs.
//
// A schedule is a row of belfry.schedules: a name, a recurrence (cron in a time zone,
// or an interval), a template of the job, or of the group of jobs, and optionally a
// query of the operator's, each row of which becomes one job. Rows come from plain
// SQL, from a Store, or from the configuration file (SyncConfig).
//
//	             occurrence due                     next_at moves on
//	waiting ───────────────────────▶ one transaction ───────────────▶ waiting
//	 ▲   │                            │ lock the row, SKIP LOCKED
//	 │   │ pause                      │ run the query, enqueue
//	 │   ▼                            │ record
//	paused                            └─ error: nothing enqueued, retry_at, last_error
//
// Every node calls Firer.FireDue at each of its ticks, and so does a one-shot run.
// None of them is in charge: whoever locks the row first fires it, in one
// transaction that enqueues the jobs and moves next_at.
//
// # Invariants
//
//  1. An occurrence enqueues its jobs once, with any number of nodes, after a crash
//     at any point, and after a COMMIT whose outcome nobody learnt: the jobs and the
//     move of next_at are committed together or not at all. The idempotency key
//     schedule:<name>:<occurrence in UTC>[:<row>] says so again.
//  2. No occurrence is lost silently: each one after armed_at has fired, or counts in
//     skipped with an event that says why, or is still ahead of next_at.
//  3. A schedule that fails (a definition that cannot be read, a query that does not
//     run or takes its time, a template that is refused) keeps no other from firing.
//  4. Every act of an operator, every firing, every skip and every new error is in
//     belfry.events, written in the same transaction (I14 of the design).
//
// # Time
//
// A cron expression has five fields, minute, hour, day of month, month and day of week,
// or is one of @hourly, @daily, @weekly, @monthly, @yearly. Lists, ranges, steps and
// the English three-letter names of months and days are understood; Sunday is 0. When
// both days are restricted either is enough; a step such as */2 restricts.
//
// Where clocks are changed, an hour field that contains * follows real time: it fires
// in both of the repeated hours and not in the one that is left out. Any other hour
// field follows the clock on the wall: what falls into the hour that is left out fires
// at the first instant after it, once; what falls into a repeated hour fires in the
// first of the two.
//
// Intervals count from the row's created_at in elapsed time; no delay shifts the grid.
//
// An occurrence is missed when nobody looked within missed_after of it: skip drops
// missed occurrences; once makes up for all of them with the newest, or with one that
// is due just then and not missed; all fires each. What falls into a pause is dropped,
// and so is what has outlived the template's expires_after.
//
// # Failure
//
// A failing occurrence is tried again after 1, 2, 4 … seconds, at most 60, until it
// has been failing for missed_after; then it is skipped and recorded, and the next
// one has its turn. An error of the database is not the schedule's: the transaction is
// rolled back and the next tick begins again.
//
// # Not promised
//
// A job's start: the occurrence is when it is enqueued for (schedule_at); lanes and
// priorities decide the rest. The order of schedules that are due at the same time.
// Two rows of a query are two jobs even when they are equal.
//
// # Queries
//
// A query runs read only, for query_timeout at the most, beside those of other schedules:
// a Firer runs up to four at once, and keeps the last place from schedules that fail. It
// runs as query_role, inside a function with that role's rights, which it cannot leave
// (QueryGuard in queries.sql). Without one it runs with the rights of the node's database
// role: who may write belfry.schedules may read what that role can.
package schedule
