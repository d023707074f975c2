// Package jetstream carries message ids on a cluster of NATS servers, in two replicated work queues:
// activities and bulk. PostgreSQL stores the messages (outbox.Transport).
//
//	one stream for each queue, <prefix>_bulk             one consumer, all workers pull from it
//	┌─────────────────────────────────────────────┐
//	│ <prefix>.bulk.ids    17 … 17 18 18 … 18     │ ──► ready ── pull ≤ free slots ──► taken
//	│ <prefix>.bulk.state                     18 ─┼─ the count: epoch, first, last       │
//	└─────────────────────────────────────────────┘      ▲                               │ claim by key
//	      ▲                                              │ later, given back,            ▼
//	   Push: ids and count, as a whole, or nothing       │ no answer for a lease     held ── InProgress
//	         if the count is still 17                    └───────────────────────────────┤
//	                                                       PENDING soon: with a delay    │ Settled
//	                                                       final: Ack, Term ─► gone ◄────┘
//
// # Invariants
//
//   - A push is one atomic batch (NATS 2.12) of its ids, followed by the queue's count. The batch is
//     stored only if the last count is the one that the pusher knows. So a push can be repeated, a push out
//     of order is a gap, and the count never exceeds the stored pushes. A push of a thousand ids or more is
//     stored in parts, the count with the last part.
//   - The count is the last message of its push. If a crash of all servers truncates the stream, the count
//     is truncated too, and a deleted stream has no count. The dispatcher repeats the lost pushes. This does
//     not depend on publish acknowledgements or sync_interval.
//   - Copies have no Nats-Msg-Id. The server's duplicate window would discard repeated pushes, even after
//     the message was acknowledged or purged, and store two minutes of ids in the memory of each server.
//     The condition on the count prevents duplicates without a window.
//   - A stream is never trimmed: DiscardNew, no MaxAge, MaxDeliver -1. A push that does not fit is answered
//     with PushFull. A stream with other settings is rejected; the error lists the differences.
//   - No more copies are pulled than credits permit, so that no copy ages in a buffer. While a queue is
//     empty, a pull waits for one copy; if it is no longer wanted, it is returned.
//   - A copy is removed when its message is settled, or by the claim's verdict. DEAD is recorded in
//     PostgreSQL before Term. Only PostgreSQL counts attempts and crashes.
//   - The consumer's name contains the creation time of its stream. Acknowledgements of copies of a lost
//     stream therefore have no effect on a new stream, whose messages have the same sequence numbers.
//   - A worker renews its copies in flight three times per lease. The copies of a dead worker are
//     delivered to other workers after the lease.
//
// # Failures
//
// While no server answers, or the cluster has no leader, every call fails after its timeout. One line is
// logged at the beginning and one at the end. Failed calls are not buffered; the relay retries. A missing
// stream or consumer is created. A copy whose acknowledgement was lost is delivered again after the lease,
// and the claim finds the message finished. Only the consumer's leader stores delays: after a change of
// leader a copy may arrive early, and is delayed again. A leader that refuses a push for five seconds,
// although it has all earlier ones, is asked to step down. Copies of messages that are due in more than a
// minute leave the stream; the dispatcher pushes them when they are due.
//
// # Not guaranteed
//
// Single or ordered delivery of a copy: the claim decides. Redelivery before the end of the lease of copies
// that a pull received while its connection broke. Durability if most servers lose their disks: the lost
// copies are pushed again. The copies of a job whose senders have no credit are delivered and returned, up
// to two thousand per second; while max_ack_pending copies are delivered, the rest of the queue waits.
package jetstream
