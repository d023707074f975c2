// Package outbox contains the rows that a chunk writes, which are notifications for the in-app inbox and
// messages, and the Ledger by which relays deliver messages. The operators' view is package admin/delivery.
//
// It implements the engine's Writer (package job) twice:
//
//   - inbox: one row of belfry.notifications per channel. Nothing leaves the
//     database because of it, so its chunks may commit asynchronously.
//   - push: one row of belfry.message_rows per channel, PENDING and due at the job's
//     deliver_at, or now when that is not set.
//
// Rows are narrow: title, body and data live once, in the job. They go out through COPY in binary form,
// straight from the chunk's channel ids, in the chunk's transaction; there is no ON CONFLICT and no foreign
// key. Uniqueness (I2) is the tables' primary key, so a row that is already there is an error that fails the
// job, instead of a duplicate or a silent skip. With the cursor's guard this can only happen through writes
// by other programs.
//
// # States
//
//	notification   unread ──reader──► read
//	                 └──recall──► withdrawn
//
//	message   PENDING ──► QUEUED ──► PROCESSING ──► SENT, permanently
//	             │           │           ├──► DEAD, with a reason ──redrive──► PENDING
//	             │           │           │                └──discard──► CANCELLED
//	             │           │           ├──► CANCELLED, when refused or recalled
//	             │           │           └──► PENDING, for another attempt, unless recalled
//	             └───recall──┴──► CANCELLED
//
// A message is QUEUED by a push while a carrier has a copy of its key. The push has the keys of messages that were never
// changed; the others store its number.
// Without a carrier no message is QUEUED. PENDING and QUEUED messages of an ABORTED job are held and not
// sent until the job is resumed. A QUEUED message becomes PENDING when a relay claims its copy. A PROCESSING
// message is in flight under a lease, or a provider has accepted it and it awaits a receipt. Status.May is
// the table of the transitions. Operators cause recall, redrive and discard.
//
// The first claim of a job's message does not change its row (ADR 0053). The row in belfry.message_rows tells, with
// belfry.job_claims, which of these a message is:
//
//	PENDING, lease_id NULL      never changed; after job_claims.claimed_to it waits, else it is QUEUED by the push with
//	                            its key or in flight under the lease with its key, and the view belfry.messages
//	                            shows that
//	PENDING, lease_id NOT NULL  waits after an earlier claim, or was written behind the claims
//	other                       as it says
//
// # How a relay delivers
//
// A relay changes messages only through the Ledger.
//
//	Candidates ─► ClaimJob ─► HandOver ─► Recheck ─► the call ─► Settle ─► MarkDelivered
//	                 │ lease     │ handover                        │ lease and handovers deleted
//	                 └─ Renew ───┴─────────────────────────────────┘
//	                        └─ Lost ─► Recover, by any relay
//
// With a carrier, the relay with the Lead makes pushes by QueueJob and QueueActivities. ClaimCopies claims
// the keys that the carrier delivers:
//
//	Lead ─► QueueJob ─► the carrier ─► ClaimCopies ─► HandOver …
//	  │        ▲                          └ held: PENDING
//	  └ RenewQueue, QueuedBy: push again after the carrier lost its data
//	        Unqueue: messages that the carrier lost unnoticed become PENDING
//
// Rules:
//
//   - The view belfry.sendable_messages is the only definition of sendable messages: not finished, not
//     recalled, and of a job that is not ABORTED. Claims and rechecks repeat it.
//   - A claim takes messages of one job under a lease, in one transaction: those that were never claimed in the
//     order of their channels, from where the last claim of any relay ended, and the others from a position of
//     this relay. Both cost the same until the end of a job, and also while vacuum cannot clean up. It
//     becomes durable at the latest with the handover. If a server crash loses a claim, the recheck fails
//     too, because lease ids are random and never reused.
//   - A push is durable before the carrier receives it, and its number is unique in its queue. Its
//     messages are its keys, or those QUEUED by its number. A claim of a copy takes the key out of the push, under the
//     lock of the push. Copies of messages that were claimed, finished, held or
//     pushed again remain in the carrier; the claim of such a copy returns this state.
//   - A handover durably records the messages that are about to be sent, with the step of their routes.
//     The recheck follows it, right before the call: without VerdictSend there is no call. After a recheck
//     with VerdictSend the message counts as handed to the provider.
//   - A settlement is a conditional UPDATE by the owner. A message that was recalled in the meantime
//     becomes CANCELLED instead of being retried; the constraint messages_waiting_check rejects PENDING
//     and QUEUED.
//   - Messages of an expired lease that were handed over have an unknown outcome and are recorded as
//     crashed. The others return unchanged. Messages are never taken from a valid lease: an orphan is
//     ended first, in its own commit.
//   - A message that awaits a receipt has no lease. The receipt identifies its owner.
//
// # Invariants
//
//   - I2: one notification per (job, channel); one message per (job, channel).
//   - I6: no message of an ABORTED job is claimed, and none is sent if its recheck follows the abort.
//   - I8: a message enters SENT at most once and never leaves; each attempt has one
//     owner, by lease or by receipt.
//   - I9: every attempt that a provider may have accepted is recorded as unknown or crashed.
//   - I10: a message that is not final is due at a recorded time, QUEUED by a push that the carrier has a
//     copy of or that Unqueue finds lost, under a lease that expires, or due for a receipt query. A lease
//     ends only when it has no message left.
//   - A message is written with a deliver_at that the job had when its chunk ran; the
//     job's deliver_at cannot change after its first claim.
//   - A job's Progress matches its messages in every committed state. Chunks, settlements and operators'
//     acts all maintain it.
//
// Transactions lock the job's claims first, then pushes in the order of their numbers, then message rows, in key order
// and skipping locked rows, and the job's row last. Claims wait for a job's claims, which a recall, an erasure or
// retention keeps until it has changed messages.
// Only a settlement waits for rows, in the order of their position in the table, and then locks leases, skipping locked
// ones. After a moment it gives up, records the messages that are not locked, and the relay settles the others later.
// A claim waits a moment for the job's claims, too, and leaves the job for a second; a claim of copies waits as long for
// their pushes, and leaves them for a tenth of a second. A push locks its queue's row last. A recovery locks its lease,
// then rows, skipping locked ones. MarkDelivered locks only the job's row.
//
// # Failure behaviour
//
// Only locked rows are retried. Each call can be repeated after any error, including an unknown COMMIT, and
// continues where it was. Connection errors are job.ErrUnreachable, lock timeouts job.ErrLocked. Ledger.Lost
// finds claims whose response was lost and relays that died.
//
// # Limits
//
// This package sends nothing; package relay does, with the clients of package sender. A message can be sent
// twice if a call's outcome is unknown, for example because its relay was suspended during the call.
package outbox
