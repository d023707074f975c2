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
//	  ▲ │ ▲               │ │ │ ▲
//	  │ │ └───────────────┘ │ │ └─┐ resume of a stale run: fence + 1
//	  │ │   interrupted     │ └───┘
//	  │ └─────────┬─────────┤
//	  │     abort ▼         ▼ gave up
//	  │        ABORTED   FAILED
//	  └───────────┴─────────┘
//	    operator: resume, retry, from the cursor
//
// # A run
//
// A Runner claims one due job at a time. The claim raises the job's fencing token
// and begins a run. The first run freezes the bound, the highest recipient key of
// that moment. Then the run walks the recipients in keyset order, chunk by chunk.
// A chunk is one transaction:
//
//	BEGIN
//	  RunBegin      is the job still ours and not aborted? deadlines for the server
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
//   - I13: a run holds one chunk in memory, one connection, no goroutine of its own.
//
// # Failure
//
// After any error of a chunk, a COMMIT error above all, the run reads its job's
// fence and cursor on a fresh connection before it decides: the outcome is what
// the row says. Errors that a retry can mend (see retryable) repeat the same chunk
// with backoff, renewing the heartbeat; the rest make the job FAILED with the error
// in last_error. A runner that dies leaves its job RUNNING; when the heartbeat, kept
// in the database's clock and renewed only by the loop's progress, is older than
// Config.StaleAfter, any runner resumes it from the cursor and ends the backend
// connections that the dead run left behind. A runner that is stopped softly
// finishes its chunk and hands the job back PENDING.
//
// # Not promised
//
// Rows that a Writer writes anywhere but through the transaction it is given are
// outside every guarantee. The order in which different jobs' rows become visible
// is not defined beyond single flight. Recipients that arrive after the bound was
// frozen get nothing from this job.
package job
