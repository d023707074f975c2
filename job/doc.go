// Package job is belfry's engine: it takes bulk-notification requests from rows
// of belfry.jobs to completion, one RUNNING job per lane at a time, resumable to
// the row and stoppable at once.
//
// # A job
//
// A job is enqueued by INSERT (in SQL, by belfry.enqueue, by EnqueueTx: always
// in the caller's transaction) and moves through one status machine, listed edge
// by edge in status.go and enforced by the trigger jobs_transition for whoever
// writes:
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
//   - I3: rows and cursor commit together; the cursor never moves back, but when the
//     server crashes and loses chunks it had committed asynchronously: rows and cursor
//     together (see AsyncCommit).
//   - I4: one RUNNING job per lane, by the unique index jobs_one_running_per_lane.
//   - I5: every guard carries the fencing token that the claim returned; a run with an
//     older token commits nothing, whatever it was doing while it was presumed dead.
//   - I6: the UPDATE that sets abort_requested and ChunkCommit lock the same row.
//     Whichever comes second sees the first: once the UPDATE has returned, no row
//     and no cursor movement of the run is committed.
//   - I7: only the edges of the picture above.
//   - I13: a run holds one chunk in memory, one connection, and a second one now and
//     then for a health check; no goroutine of its own.
//   - I14: what an operator does is recorded by triggers in the same transaction, with
//     actor, reason, before and after, whoever writes.
//
// # Load
//
// Before each chunk the run's governor says how large it may be and how long to wait:
// the size aims at a target duration; limits of rows per second and of the share of
// time spent in chunks hold over the run; health checks slow or pause the walk while
// the server, a replica or the run's own chunks suffer. While it waits the run renews
// its heartbeat, says why in jobs.throttle, and notices aborts. All of it may be
// changed while the job runs, in its row or by Reload.
//
// # Approval
//
// A job that needs the approval of a second person, because it asks for it or its category
// demands it above so many recipients, waits for it (awaits_approval) in whatever status it is:
// it is not claimed, and no message of it goes out. The approval binds to what the job says, to
// whom, when, and to how many: a change voids it, and the walk stops at what was approved. Who
// wrote any of it cannot approve it. PostgreSQL keeps all of that, whoever writes (jobs_approve).
//
// # Failure
//
// After any error of a chunk, a COMMIT error above all, the run reads its job's
// fence and cursor on a fresh connection before it decides: the outcome is what
// the row says. Errors that a retry can fix (see retryable) repeat the same chunk
// with backoff, renewing the heartbeat. Errors for which one recipient is to blame (a
// data exception, a constraint violation, what a user's trigger raises, a Writer's own)
// halve the chunk until that one is found; it is recorded in job_skips and skipped, up
// to max_skips of them.
// The rest make the job FAILED with the error in last_error.
//
// A runner that dies leaves its job RUNNING. The row names the server connection that
// the run holds (backend pid and start): when the server does not have it any more,
// and the run has not recorded another within 500 ms, any runner takes the job over. Where that cannot be known, because a pooler
// stands between or the process was only stopped, the heartbeat decides: kept in the
// database's clock and renewed only by the loop's progress, it makes a run stale when
// it is older than Config.StaleAfter. Who takes over ends the connections that the
// dead run left behind and goes on from the cursor; fencing makes a take-over of a
// run that lives after all harmless. A job that loses Config.MaxTakeovers runs in a
// row without a committed chunk is FAILED instead. A runner that is stopped softly
// finishes its chunk and hands the job back PENDING.
//
// # Accounts
//
// Each chunk records what it did in the transaction that does it:
//
//	channels_read: out of audience, or channels_matched
//	channels_matched: rows_written, declined by the Writer, or skipped
//
// A job whose accounts do not agree is not PROCESSED but FAILED.
//
// # Not promised
//
// Rows that a Writer writes anywhere but through the transaction it is given are
// outside every guarantee. The order in which different jobs' rows become visible
// is not defined beyond single flight. Recipients that arrive after the bound was
// frozen get nothing from this job.
package job
