// Package outbox is what a chunk writes, and how it is delivered: notifications for
// the in-app inbox, messages, and the Ledger by which relays deliver these. What operators
// see of it and do to it is package admin/delivery.
//
// It implements the engine's Writer (package job) twice:
//
//   - inbox: one row of belfry.notifications per channel. Nothing leaves the
//     database because of it, so its chunks may commit asynchronously.
//   - push: one row of belfry.messages per channel, PENDING and due at the job's
//     deliver_at, or now when that is not set.
//
// Rows are narrow: title, body and data live once, in the job. They go out through
// COPY in binary form, straight from the chunk's channel ids, in the chunk's
// transaction; there is no ON CONFLICT and no foreign key. Uniqueness (I2) is the
// tables' primary key, so a row that is already there is an error that fails the
// job loudly instead of a duplicate or a silent skip: together with the cursor's
// guard it cannot happen but by somebody else's writes.
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
// A message is QUEUED by a push, whose number it keeps, while a carrier of ids has a copy of
// its key; without carriers none is. PENDING and QUEUED messages of an ABORTED job are held
// and not sent until the job is resumed; a QUEUED one becomes PENDING when its copy comes up. A PROCESSING message is in flight, under
// a lease, or a provider has accepted it and its receipt is awaited. Status.May is the
// table of the edges; recall, redrive and discard are operators'.
//
// # How a relay delivers
//
// The Ledger has every statement of it, and a relay changes messages by no other way.
//
//	Candidates ─► ClaimJob ─► HandOver ─► Look ─► the call ─► Settle ─► MarkDelivered
//	                 │ lease     │ handover                     │ lease and handovers gone
//	                 └─ Renew ───┴──────────────────────────────┘
//	                        └─ Lost ─► Recover, by any relay
//
// With a carrier, QueueJob and QueueActivities make the pushes, in the relay that has the Lead,
// and ClaimCopies claims by key what the carrier hands out:
//
//	Lead ─► QueueJob ─► the carrier ─► ClaimCopies ─► HandOver …
//	  │        ▲                          └ held: PENDING
//	  └ RenewQueue, QueuedBy: what the carrier has forgotten is pushed again
//	        Unqueue: what it has lost without knowing is PENDING
//
// What holds there:
//
//   - The view belfry.sendable_messages is the one rule of what may be sent: a message
//     that is not finished and not recalled, of a job that is not ABORTED. Claims and
//     looks repeat it.
//   - A claim is one transaction of one job: messages and a lease, which names them.
//     It goes on from a position, so that it costs the same at the end of a job, and
//     while vacuum is held back. It is durable with the handover that follows at the
//     latest; a claim that a crash of the server has lost is lost to the look too: the
//     id of its lease is random, and nobody else gets it.
//   - A push is durable before a carrier hears of it, and has a number that no other has, in
//     either queue. Which messages it has is read from these: what is QUEUED by its number.
//     A message that is claimed, finished, held or pushed later leaves its copies behind,
//     and each of them is answered so.
//   - A handover, durable, says which messages are about to be called for, and by which
//     step of their routes. The look comes after it and right before the call, as the
//     owner: no VerdictSend, no call. A message whose look has been read counts as
//     handed to the provider.
//   - A settlement is a conditional UPDATE by the owner. What was recalled meanwhile
//     becomes CANCELLED where it would be tried again; the constraint
//     messages_waiting_check refuses PENDING and QUEUED.
//   - Of an expired lease, what was handed over has an unknown outcome and is
//     recorded as crashed; the rest comes back as it was. Nothing is taken from a lease
//     that lives: an orphan is ended first, in a commit of its own.
//   - A message whose receipt is awaited has no lease: the receipt is its owner's proof.
//
// # Invariants
//
//   - I2: one notification per (job, channel); one message per (job, channel).
//   - I6: no message of an ABORTED job is claimed, and none is called for whose look
//     came after the abort.
//   - I8: a message enters SENT at most once and never leaves; each attempt has one
//     owner, by lease or by receipt.
//   - I9: what may have been accepted is on record as unknown or crashed.
//   - I10: a message that is not final is due at a recorded time, QUEUED by a push that the
//     carrier has a copy of or will be found to have none of, under a lease that
//     expires, or due for a look at its receipt. A lease ends when nothing is left under
//     it, never before.
//   - A message is written with a deliver_at that the job had when its chunk ran; the
//     job's deliver_at cannot change after its first claim.
//   - A job's Progress is that of its messages, in every committed state, for whoever changes
//     them: a chunk, a settlement, an operator's act.
//
// Locks are taken rows first, in key order and skipping locked ones, the job's row
// last. A settlement alone waits for rows, in the order of their place in the table, and
// then takes leases, skipping locked ones; a push takes its queue's row last; a recovery takes
// its lease, then rows, skipping locked ones.
// MarkDelivered locks the job's row and no other.
//
// # Failure behaviour
//
// Nothing is retried but what is locked. Each of the calls can be made again after any
// error, an unknown COMMIT among them, and goes on where it was. Errors of the
// connection are job.ErrUnreachable, of a lock job.ErrLocked. A claim whose answer was
// lost, and a relay that is gone, are found by Ledger.Lost.
//
// # What it does not promise
//
// This package sends nothing: package relay does, with the clients of package sender. A
// message may be sent twice where a call's outcome was unknown, that of a relay which
// was paused in the middle of it included.
package outbox
