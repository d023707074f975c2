// Package outbox is what a chunk writes, and what becomes of it: notifications for
// the in-app inbox and messages to deliver, how they are taken back, accounted for
// and deleted.
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
//	                 └──Recall──► withdrawn
//
//	message   PENDING ──► QUEUED ──► PROCESSING ──► SENT
//	             │           │           ├──► DEAD, or CANCELLED when it was recalled
//	             │           │           └──► PENDING, for another attempt, unless recalled
//	             └───Recall──┴──► CANCELLED
//
// PENDING and QUEUED messages of an ABORTED job are held: they keep their status and
// are not sent until the job is resumed.
//
// # What a relay has to respect
//
// The view belfry.sendable_messages is the one rule of what may be sent: a message
// that is not finished and not recalled, of a job that is not ABORTED. A relay
//
//   - finds jobs with something to do in belfry.sendable_jobs, which steps over held
//     jobs whatever they hold, and claims from belfry.sendable_messages by job, with
//     FOR UPDATE SKIP LOCKED, which locks messages only;
//   - looks at the message in belfry.sendable_messages again right before it calls a
//     provider, in a transaction of its own, as its owner: no row, no call (I6). A
//     message whose look has been committed counts as handed to the provider;
//   - records every outcome with a conditional UPDATE. A failed attempt of a message
//     with recalled_at becomes CANCELLED; the constraint messages_recalled_check
//     refuses PENDING and QUEUED. So does one whose relay died: it is sent again only
//     while it is in the view.
//
// # Invariants
//
//   - I2: one notification per (job, channel); one message per (job, channel).
//   - A message is written with a deliver_at that the job had when its chunk ran; the
//     job's deliver_at cannot change after its first claim.
//   - jobs.recalled is the number of rows that recalls have changed, in every
//     committed state. A message SENT, DEAD or in a relay's hands keeps its status in a
//     recall (I8); one in a relay's hands is not tried again.
//   - An audit gives every channel and every row of a job exactly one reason, from one
//     snapshot per page.
//   - Retention deletes rows of jobs at rest only, and no message that may still be
//     sent. A job whose rows it deletes never goes on.
//   - Recall, Audit, Deliveries and Prune work in short transactions of a bounded number
//     of keys, and hold one step in memory (I13).
//
// Locks are taken rows first, in key order and skipping locked ones, the job's row
// last; retention marks the job in a transaction of its own before.
//
// # Failure behaviour
//
// Nothing is retried but what is locked. Each of the calls can be made again after any
// error, an unknown COMMIT among them, and goes on where it was. Errors of the
// connection are job.ErrUnreachable, of a lock job.ErrLocked.
//
// # What it does not promise
//
// Messages are ready for delivery but this package does not deliver them yet. An audit
// tells what the data says now: it cannot see an audience's past, only who changed
// since (see Audit). A recall does not reach a phone. Retention needs a role that owns
// the schema.
package outbox
