// Package job is belfry's engine: it takes bulk-notification requests from rows
// of belfry.jobs to completion, one RUNNING job per lane at a time, resumable to
// the row and stoppable at once.
//
// # A job
//
// A job is enqueued by INSERT (in SQL, by belfry.enqueue, by EnqueueTx: always in the caller's transaction)
// and moves through one status machine, listed edge by edge in status.go and enforced by the trigger
// jobs_transition for all clients:
//
//	            claim                exhausted
//	PENDING ───────────▶ RUNNING ───────────────▶ PROCESSED
//	 ▲ │ │ ▲              │ │ │ ▲                     │
//	 │ │ │ └──────────────┘ │ │ └─┐ take-over of a    │
//	 │ │ │   interrupted,   │ └───┘ dead run: fence+1 │
//	 │ │ │   preempted,     │                         │
//	 │ │ │   lane paused    │                         │
//	 │ │ └─────────┬────────┤                         │
//	 │ │ too late  ▼ abort  ▼ gave up                 │
//	 │ └▶EXPIRED ABORTED  FAILED                      │
//	 └──────┴──────┴────────┴─────────────────────────┘
//	   operator: retry, resume, retry, retry-skipped
//
// # A run
//
// A Runner claims one due job at a time. The claim raises the job's fencing token
// and begins a run. The first run freezes the bound, the highest recipient key of
// that moment. Then the run walks the recipients in keyset order, chunk by chunk.
// A chunk is one transaction:
//
//	BEGIN
//	  RunBegin      is the job still ours and not aborted? does it have to yield, to a
//	                more urgent job or to a pause of its lane? what are its settings now?
//	  Source.Page   who:     the recipients after the cursor
//	  Writer.Write  what:    their rows
//	  ChunkCommit   how far: move the cursor, iff RUNNING, same fence, not aborted
//	COMMIT
//
// ChunkCommit comes last, so the job's row is locked for the length of a COMMIT, and
// an abort waits for that, never for a chunk. The job is PROCESSED when no key is left up
// to the bound.
//
// # Invariants
//
// Numbers are those of the design, tests cite them.
//
//   - I1: every recipient committed before the bound was frozen, that keeps its key
//     and matches until its chunk reads it, gets exactly one row.
//   - I2: at most one row per (job, recipient): the cursor's guard and the writers'
//     primary keys.
//   - I3: rows and cursor commit together. The cursor moves back only if the server crashes and loses
//     asynchronously committed chunks, again with their rows (see AsyncCommit).
//   - I4: one RUNNING job per lane, by the unique index jobs_one_running_per_lane.
//   - I5: every guard carries the fencing token that the claim returned; a run with an older token commits
//     nothing.
//   - I6: the UPDATE that sets abort_requested and ChunkCommit lock the same row.
//     Whichever comes second sees the first: once the UPDATE has returned, no row
//     and no cursor movement of the run is committed.
//   - I7: only the edges of the picture above.
//   - I13: a run holds one chunk in memory, one connection, and a second one now and
//     then for a health check; no goroutine of its own.
//   - I14: triggers record every operator's act in the same transaction, for all clients, with actor,
//     reason, before and after.
//
// # Load
//
// Before each chunk the run's governor returns the chunk's size and the pause before it. The size aims at a
// target duration. Limits of rows per second and of the share of time spent in chunks apply to the whole
// run. Health checks slow or pause the walk while the server, a replica or the run's own chunks suffer.
// During a pause the run renews its heartbeat, records the reason in jobs.throttle, and notices aborts. All
// settings can be changed while the job runs, in its row or by Reload.
//
// # Approval
//
// A job can require the approval of a second person, by itself or by its category above a number of
// recipients. Until then it waits (awaits_approval) in any status: it is not claimed, and no message of it
// is sent. The approval covers content, audience, time and number of recipients: a change voids it, and the
// walk stops at the approved number. Persons who wrote any part of the job cannot approve it. PostgreSQL
// enforces this for all clients (jobs_approve).
//
// # Failure
//
// After any error of a chunk, in particular of COMMIT, the run reads its job's fence and cursor on a new
// connection: the row determines the outcome. Errors that a retry can fix (see retryable) repeat the same
// chunk with backoff, renewing the heartbeat. Errors caused by one recipient (a data exception, a constraint
// violation, an error of a user's trigger or of a Writer) halve the chunk until that recipient is found. It
// is recorded in job_skips and skipped, up to max_skips recipients. Other errors make the job FAILED with
// the error in last_error.
//
// A runner that dies leaves its job RUNNING. The row names the server connection that the run holds (backend
// pid and start). If that connection has ended, and the run has not recorded another within 500 ms, any
// runner takes the job over. Behind a pooler, or if the process is only suspended, the heartbeat decides: it
// uses the database's clock and is renewed only by progress, and a run is stale when it is older than
// Config.StaleAfter. The runner that takes over ends the connections of the dead run and continues from the
// cursor. Fencing makes the takeover of a live run harmless. A job that loses Config.MaxTakeovers runs in a
// row without a committed chunk is FAILED instead. A runner that is stopped softly finishes its chunk and
// hands the job back PENDING.
//
// # Accounts
//
// Each chunk records its counts in its own transaction:
//
//	channels_read: out of audience, or channels_matched
//	channels_matched: rows_written, declined by the Writer, or skipped
//
// A job whose counts do not agree becomes FAILED instead of PROCESSED.
//
// # Limits
//
// Rows that a Writer writes anywhere but through the transaction it is given are outside every guarantee.
// The order in which different jobs' rows become visible is not defined beyond single flight. Recipients
// that arrive after the bound was frozen get no row from this job.
package job
