// Package redisstream carries message ids on a Redis or Valkey server. Each of the two queues is a
// stream with one consumer group. PostgreSQL stores the messages. The server has copies only, each a key
// with the number of its push; lost copies are pushed again.
//
//	Push ─► push.lua: number = last + 1? ─► stream ─ XREADGROUP ─► pending, of this consumer
//	                                          ▲                       │ held in memory until the
//	                                          │                       ▼ credits of its job come
//	             move.lua: due, by the        │                    ClaimCopies, in PostgreSQL
//	             server's clock               │                       ├─ claimed: stays pending until Settled
//	                                          │                       ├─ finished, another's, held: acknowledged
//	                                       waiting ◄── settle.lua ────┴─ later, PENDING, no credits
//
//	a worker dies ─► idle too long ─► reclaim.lua: to the live worker that a hash of the entry's id and
//	                                  deliveries selects ─► it reads its own pending entries first
//
// Each queue has these keys. All share the hash tag of the queue, {prefix:bulk} or {prefix:activities},
// so that a queue is on one node of a Cluster.
//
//	stream     entries with one copy each, "job channel push lane"; its group is belfry
//	state      epoch and number of the last push, written by push.lua settleBatch with the copies
//	waiting    copies by due time, in milliseconds of the server's clock
//	returned   by push number: the waiting copies, and the entries that were waiting before
//	consumers  workers by their last heartbeat, by the server's clock
//	dead       the last copies of messages that are DEAD in PostgreSQL, for inspection
//
// # Invariants
//
//   - A push is applied once: push.lua compares its number, adds the copies and stores the number in one
//     script.
//   - A copy is in the stream or in waiting: a script that moves it adds it before it removes it. A copy is
//     removed only after PostgreSQL's verdict or outcome. The number of deliveries removes no copy; a copy
//     that was delivered often is also added to dead if its message is DEAD.
//   - Inside.Oldest is the push of the first entry or of the earliest returned copy, whichever is lower.
//     inside.lua trims, reads and corrects in one script. It trims below the lowest pending id, or up to
//     the last delivered id if that is lower. Streams are never trimmed by length.
//   - A lost reply strands no entry: at the start and after every error, timeout and reconnect, a consumer
//     reads its own pending entries before new ones. Entries that were delivered to a dead connection are
//     found this way, or reclaimed once they are idle.
//   - An idle entry goes to one live consumer, independently of the order of polls. If consumers disagree
//     about the live ones, XCLAIM with a minimum idle time locks the entry, and the claim in PostgreSQL
//     decides.
//   - The script that deletes a consumer checks that it has no pending entries and no recent heartbeat.
//   - At maxmemory only pushes stop: reading, settling, moving and heartbeats continue. Pushes are full from
//     80 % of maxmemory, or with MaxQueued waiting copies.
//   - A worker reads no more unclaimed entries than it has credits.
//
// # Failures
//
// While the server is unreachable, Receive and Push return errors and the relay retries. One line is
// logged at the beginning and one at the end. A missing group is created from the beginning of the
// stream. The dispatcher reads the server's last and oldest push from Inside and pushes the rest again. If
// Settled fails, the copy stays pending: this worker claims it again, learns that it is finished, and
// acknowledges it.
//
// # Not guaranteed
//
// Order: waiting copies return behind new ones. Durability in the server. One queue on several nodes.
// Redis before 6.2.
package redisstream
