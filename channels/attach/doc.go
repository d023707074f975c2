// Package attach lets belfry.channels follow a table of the application whose keys are uuid, text
// or integers. At most one table is attached at a time:
//
//	            Attach             Backfill                 Detach
//	(detached) ───────► attached ───────────► filled ─────────────────► (detached)
//	                        ▲                   │
//	                        └───────────────────┘ Attach with other columns
//
// Attach creates triggers on the table. They write the channel in the transaction of its row.
// Backfill writes the channels of existing rows. Verify finds and repairs rows that were written
// without the triggers. A deleted row leaves its channel, inactive and without addresses,
// attributes and location.
//
// # Invariants
//
//  1. After Backfill, the active channels equal the active rows in every committed state, except for
//     writes that Status.Missed counts and writes without triggers.
//  2. A write of the application never fails because of the triggers. It waits for one step of
//     Backfill or Verify at most, and needs no rights on the schema belfry.
//  3. A step locks no row of the application. Its cost depends on its rows, not on the sizes of
//     the tables. Its position in belfry.attachments commits with its channels.
//  4. If a mapped column is renamed, dropped or retyped, channels stay as they are until Attach is
//     repeated.
//
// # Failure behaviour
//
// Backfill and Verify repeat a step after a lock timeout or a deadlock, with fewer rows. Other
// errors end them; a repeated Backfill resumes after the last committed step. A table that cannot
// be attached is ErrTable, missing rights are ErrRights.
package attach
