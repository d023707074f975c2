// Package abortcache keeps abort flags in Redis, for the moment when an operator
// has to stop a job and the database no longer answers an UPDATE. It is optional
// (abort.cache) and implements job's AbortCache.
//
// # A flag
//
// One key for each job, a string with a time to live:
//
//	belfry:abort:42   {"actor":"ana","reason":"wrong audience","at":"2025-01-31T08:50:00Z"}
//
//	            Set, or SET by hand
//	absent ─────────────────────────────▶ set ──┐ Set: the newest wins, its time
//	   ▲                                   │ ▲  │ to live begins anew
//	   └── Clear, DEL, time to live over ──┘ └──┘
//
// # Guarantees
//
//  1. A Set that returned nil is seen by every later Get until Clear, the end of
//     its time to live, or the loss of what that Redis holds.
//  2. A key that exists is a flag, whatever it holds. What cannot be read as
//     {"actor", "reason"} was meant to stop the job all the same, and stopping is
//     the side on which a mistake is fixed by a resume; it is returned with the
//     actor UnknownActor. So `redis-cli SET belfry:abort:42 1` stops job 42; such a
//     key has no end but Clear or DEL.
//  3. Every call returns within Timeout and asks at most once: no retry, no second
//     connection. Behind a Redis that refuses connections it returns at once.
//  4. No error holds the URL, user or password, and nothing is logged.
//
// # Failure
//
// An error says that nothing is known. After one from Set or Clear the change may
// have happened, and if Redis was merely frozen it may yet happen when it goes on.
// Get's error is not a flag: the column abort_requested decides, as without a
// cache. A Redis that returns is found by the next call.
//
// # Not promised
//
// The flag is a hint, no invariant hangs on it: the database's column is what
// makes an abort whole (I6). Redis may lose it (restart without persistence,
// eviction, failover). It outlives an abort until its time is over, so whoever
// resumes a job has to Clear it first and must not go on when that fails. Keys
// carry no name of the database: two installations that share a Redis need
// different database numbers in their URLs.
package abortcache
