// Package redislist carries message ids in lists of a Redis or Valkey server, by the reliable-queue
// pattern. It implements outbox.Broker. PostgreSQL holds the messages; the relay's dispatcher pushes ids
// again that the server has lost.
//
//	          Push                    take, up to 1,000              Settled: final
//	push.lua ──────► main (list) ───────────────────────► processing:r1 ───────────────► removed
//	  full ◄──┘        ▲   ▲  ▲                              │   │   │     DEAD ─► dead (list)
//	                   │   │  └── tail: r1 is dead ──────────┘   │   │
//	                   │   └───── head: reply was lost ──────────┘   │ PENDING, "later"
//	                   └── due ── waiting (sorted by due time) ◄─────┘
//
// There are two queues, activities and bulk. Each has its own hash tag, such as {belfry:bulk}, so that
// all keys of a queue are on the same node of a Cluster:
//
//	state          hash       epoch, first and last push
//	main           list       ids that can be taken, oldest at the head
//	waiting        sorted set ids that are due later, by the server's clock in ms
//	processing:r1  hash       ids that the relay r1 has taken, with the time of each
//	workers        sorted set relays by their last heartbeat
//	monitor        string     the relay that returns the ids of dead relays
//	dead           list       the last 1,000 ids whose messages became DEAD, newest first
//
// An id is push/job/channel/lane. The push has twelve digits.
//
// # Taking ids
//
// A script moves up to 1,000 ids to the worker's processing and returns them; one SQL statement claims
// them all. While main is empty, the worker waits in a BLMOVE from the head of main to the head of
// main, which moves nothing. So no id moves in a call that can be cancelled, and a lost reply strands
// no id. Processing is a hash, so that the cost of removal does not depend on the number of ids in
// flight.
//
// # Guarantees
//
//   - An id is in exactly one of main, waiting and one worker's processing: every change is one script.
//     An id is removed only after its claim's verdict or its outcome.
//   - Pushes are idempotent: the script that adds the ids compares and records the push number.
//   - A command is sent once. After an error, or if processing contains more ids than the worker knows,
//     the worker reads its processing and returns unknown ids to the head.
//   - The ids of a dead worker return to the tail of main once its last heartbeat is older than
//     Config.WorkerTTL. Crashes are counted by the lease: until the lease is recovered the claim answers
//     "another" and the copy is dropped; the dispatcher pushes the message afterwards. Dead workers are
//     found by SCAN for their keys, and not only in the register. A live worker that was considered dead
//     skips ids that have moved, and the claim decides.
//   - At maxmemory only pushes stop: each script begins with a write that needs no memory, and Redis
//     checks only the first write. Pushes are answered with full from 80 % of maxmemory, so a full server
//     drains.
//   - Items that belfry has not written hide no ids: take.lua takes them without credit, and they go to dead.
//     While they wait, they do not count for Inside.Oldest.
//
// # Failures
//
// While the server is unreachable, every call fails and the relay pauses. One line is logged at the
// beginning and one at the end. Outcomes recorded in the meantime are applied later. The dispatcher
// reads the server's last and oldest push; the oldest push is computed from the copies, because a
// counter would include lost ones.
//
// # Not guaranteed
//
// Order: deferred, returned and later due ids go to the tail. Durability in the server: replication and
// the append-only file are asynchronous. Isolation: a server shared with millions of other keys pays
// for a SCAN every five minutes.
package redislist
