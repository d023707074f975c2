// Package outbox is what a chunk writes: notifications for the in-app inbox and
// messages to deliver.
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
// # Invariants
//
//   - I2: one notification per (job, channel); one message per (job, channel).
//   - A message is written with a deliver_at that the job had when its chunk ran; the
//     job's deliver_at cannot change after its first claim.
//
// Messages are ready for delivery but this package does not deliver them.
package outbox
