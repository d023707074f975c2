// Package redisstream is a carrier on a Redis or Valkey server: a consumer group on a stream for
// each of the two queues. PostgreSQL holds the messages; what is here are copies, a key and the
// number of a push each, and losing them costs time only.
//
//	Push ─► push.lua: number = last + 1? ─► stream ─ XREADGROUP ─► pending, of this consumer
//	                                          ▲                       │ held in memory until the
//	                                          │                       ▼ credits of its job come
//	             move.lua: due, by the        │                    ClaimCopies, in PostgreSQL
//	             server's clock               │                       ├─ claimed: stays pending until Settled
//	                                          │                       ├─ finished, another's, held: acknowledged
//	                                       waiting ◄── settle.lua ────┴─ later, PENDING, no credits
//
//	a worker dies ─► idle too long ─► reclaim.lua: to the live worker that the entry's id and its
//	                                  number of deliveries choose ─► it reads its own pending first
//
// Each queue has these keys, all with its one hash tag, {prefix:bulk} or {prefix:activities}: in
// a cluster a queue is on one node.
//
//	stream     a copy each, as "job channel push lane"; its group is belfry
//	state      the epoch and number of the last push, set by the script that takes the copies
//	waiting    copies by when they are due, in milliseconds of the server's clock
//	returned   by push: the copies that wait, and the entries of those that have waited
//	consumers  the workers by when they showed last that they live, by the server's clock
//	dead       the last copies of messages that are DEAD in PostgreSQL, for a look at them
//
// # Invariants
//
//   - A push is made once. push.lua compares the number, takes the copies and counts in one step.
//   - A copy is in the stream or waits, never in neither: what moves it adds before it removes, in
//     one script. It goes when PostgreSQL has said that it may, and never because of a number of
//     deliveries: beyond some of them, it is kept in dead if the message is DEAD.
//   - Inside.Oldest is that of the first entry left or the earliest that has waited. inside.lua
//     trims, reads and corrects in one step: the trim point is the lower of the lowest
//     pending id and the one after the last delivered; no length ever trims.
//   - Whose answer may be lost is looked for: after every error, timeout and reconnect, and at the
//     start, a consumer reads its own pending entries before it reads new ones. What was
//     served to a connection that was dead already is found so, or reclaimed when it is idle.
//   - An idle entry goes to one live consumer, whoever polls first. While they disagree
//     about who lives, XCLAIM with its minimum of idleness is the lock of the entry, which expires
//     as that does, and the claim in PostgreSQL decides.
//   - A consumer is deleted in the step that has seen that nothing is pending for it and that it
//     no longer shows that it lives.
//   - Whatever gives memory back works at maxmemory: taking, settling, moving and the sign of
//     life. Pushes are full at four fifths of it, or with MaxQueued copies that wait.
//   - What is taken and not claimed is no more than the credits.
//
// # Failure behaviour
//
// While the server is away, which is said once, Receive and Push return errors and the relay tries
// again. A group that is gone is made anew from the stream's beginning. How much the server
// remembers is in Inside; the dispatcher pushes the rest again. Settled that fails leaves the copy
// pending: this worker claims it once more, hears that it is finished, and acknowledges it.
//
// # What it does not promise
//
// Order: what waits comes again behind what is new. That the memory of a server survives it. One
// queue on several nodes. Redis before 6.2.
package redisstream
