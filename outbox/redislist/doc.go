// Package redislist is a carrier of ids on the lists of a Redis or Valkey server: the reliable
// queue. It implements relay.Broker; PostgreSQL remains the truth, and what the server loses is
// pushed again by the relay's dispatcher.
//
//	          Push                    take, many at once                 Settled: final
//	push.lua ──────► main (list) ───────────────────────► processing:r1 ───────────────► gone
//	  full ◄──┘        ▲   ▲  ▲                              │   │   │     DEAD ─► dead (list)
//	                   │   │  └── tail: r1 is dead ──────────┘   │   │
//	                   │   └───── head: nobody has it ───────────┘   │ PENDING, "later"
//	                   └── due ── waiting (sorted by due time) ◄─────┘
//
// There are two queues, activities and bulk, each with a hash tag of its own, {belfry:bulk}:
// one queue lives on one node of a Cluster. Its keys:
//
//	state          hash       epoch, first and last push
//	main           list       ids that may be taken, oldest at the head
//	waiting        sorted set ids that are due later, by the server's clock in ms
//	processing:r1  hash       ids that the relay r1 has taken, each with when
//	workers        sorted set relays, by their last sign of life
//	monitor        string     the relay that looks after dead ones
//	dead           list       the last 1000 ids whose messages became DEAD, newest first
//
// An id is push/job/channel/lane, the push of twelve digits.
//
// # How it is taken
//
// A script moves up to a thousand ids into the worker's processing and says what they are; one
// statement claims them all. What waits for the first id is a BLMOVE from the head of main to
// the same place: a look that blocks. No id is ever on its way by a call that
// can be given up, and a reply that is lost strands nothing there. Processing is a hash and not
// a list, so that removal does not depend on how much is in flight.
//
// # What holds
//
//   - An id is in exactly one of main, waiting and processing of one worker: every change is one
//     script. Nothing is removed that was not claimed, recorded, or answered by a verdict.
//   - Pushes are compared and counted by the script that takes them, and idempotent.
//   - A command is sent once. After an error, and whenever more is in processing than the
//     worker knows of, it reads its processing and puts what it does not know back to the head.
//   - What a worker has taken when it dies returns to the tail of main, not before its last sign
//     of life is Config.WorkerTTL old. Crashes are counted by the lease: until then the claim
//     answers "another", the copy is dropped, and the dispatcher pushes the message when its
//     lease was recovered. Who has died is read from the keys there are, found by SCAN, and not
//     only from the register. A worker that was thought dead and is not finds its ids elsewhere,
//     which is passed, and the claim decides.
//   - At maxmemory all goes on but pushes: scripts begin with a write that needs no memory, and
//     Redis refuses only the first. Pushes are answered with full from 80 % on, so a full server
//     drains by itself.
//
// # Failure behaviour
//
// While the server is away, every call fails, the relay pauses, and one line says so; one says
// that it is back. What was settled meanwhile is repeated. How much the server remembers the
// dispatcher asks; the oldest push inside is read from the copies, so that lost ones are
// noticed that no counter would miss.
//
// # What it does not promise
//
// Order: what is deferred, returned or due again goes to the tail. That nothing is lost by the
// server: replication and the append-only file are asynchronous. That a Redis shared with
// millions of other keys does not notice the SCAN every five minutes.
package redislist
