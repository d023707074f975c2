// Package jetstream is a carrier of ids on a cluster of NATS servers: two replicated work
// queues, one of activities and one of bulk. PostgreSQL holds the messages (relay.Transport).
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
//   - A push is one atomic batch (NATS 2.12): its ids, and after them the count of the queue on
//     the condition that the last count is the one that the pusher knows. So a push is repeated
//     at will, one that comes out of turn is a gap, and the count never says more than what is
//     stored before it. A push of a thousand ids or more comes in parts, the count with the last.
//   - The count is the last message of its push. What a crash of all servers cuts off the stream
//     takes the count with it, and a stream that was deleted has none: the dispatcher pushes
//     again what is above, or everything. That holds whatever became of the acknowledgements of
//     publishers, and of sync_interval.
//   - No copy has a Nats-Msg-Id. The server's window of duplicates swallows an id for its time
//     even after the message was acknowledged or purged, and a recorded push is made again under
//     its own number; and it would keep every id of two minutes in the memory of each server.
//     The condition on the count does what it is for, without a window.
//   - A stream is never trimmed: DiscardNew, no MaxAge, MaxDeliver -1. What does not fit is
//     PushFull. A stream that was made otherwise is refused, with the differences.
//   - No more is pulled than credits grant now, so that no copy ages in a buffer. While there is
//     nothing, one copy is waited for; what comes that nobody asks for any more is given back.
//   - A copy is removed when its message is settled, or by the claim's verdict. DEAD is recorded
//     in PostgreSQL before Term. Attempts and crashes are counted there alone.
//   - The consumer has the name of its stream's making: what a worker holds of a stream that was
//     lost is acknowledged to nobody, though other messages have its numbers in the new one.
//   - All of a worker's copies that are in flight are renewed three times in a lease. A worker
//     that dies leaves them to the others after it.
//
// # Failure behaviour
//
// While no server answers, or the cluster has no leader, every call fails after its timeout,
// which is said once, and once that the carrier is back. Nothing that could not be sent is sent
// later: the relay tries again. Stream and consumer are made anew when they are gone. A copy
// whose acknowledgement was lost comes again after the lease, and its claim says that it is
// finished. A delay is kept by the consumer's leader alone: after it moved a copy may come
// early, and is put back. Copies whose message is due later than in a minute leave the stream:
// the dispatcher pushes them then.
//
// # What it does not promise
//
// That a copy is handed out once, or in order: the claim decides. That what a pull was given
// while its connection broke comes sooner than after a lease. That it survives the loss of the
// disks of most servers: what they have forgotten is pushed again. A job whose senders have no
// credit has its copies come up and handed back, up to two thousand a second; if max_ack_pending
// of them are out, the others of the queue wait.
package jetstream
