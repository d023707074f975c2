// Package delivery is what operators see of a delivery, and do to it: of the rows that jobs and
// activities have written (package outbox), and of the relays, senders and carriers that work on
// them.
//
//	see   Audit, ReadHistory       what became of each recipient, and why
//	      Deliveries, EachMessage  a job's rows, counted and one by one
//	      UnsentJobs, ReadBacklog  what is still to be sent
//	      DeadLetters, DeadErrors  what gave up, and of what
//	      SenderStates, QueueStates
//	do    Recall                   takes back what nobody has seen
//	      Redrive, Discard         dead letters, by a filter
//	      Prune                    deletes what is old, by Retention
//	      Forget                   erases what there is of one channel
//	      SetSender, PauseSender, ResumeSender
//	      RebuildQueues, TakeBackQueued, Adopt
//
// It stands beside package admin and knows no operation: each function is one bounded step or a
// walk of such, for whoever composes them. Operations do, and a daemon's retention.
//
// # States
//
// Status.May of package outbox is the table of a message's edges. These are the ones that
// operators cause, by conditional statements on a row that nobody has in flight:
//
//	notification   unread ──Recall──► withdrawn
//
//	message   PENDING, QUEUED ──Recall──► CANCELLED
//	          QUEUED ──TakeBackQueued──► PENDING
//	          DEAD ──Redrive──► PENDING
//	          DEAD ──Discard──► CANCELLED
//
// A PROCESSING message is its relay's. A recall marks it, so that its attempt is the last; nothing
// else here changes it while its lease lives.
//
// # Invariants
//
//   - jobs.recalled is the number of rows that recalls have changed, in every
//     committed state. A message SENT, DEAD or in flight keeps its status in a
//     recall (I8); one in flight is not tried again.
//   - What an act changes of a job's messages is in its outbox.Progress, in every committed state.
//   - An audit gives every channel and every row of a job exactly one reason, from one
//     snapshot per page.
//   - Retention deletes rows of jobs at rest only, and no message that may still be
//     sent. A job whose rows it deletes never goes on.
//   - Each act is an event, written before the first row that it changes or together with it
//     (I14).
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
// connection are job.ErrUnreachable, of a lock job.ErrLocked, and outbox.ErrRowsLocked of rows
// that others keep locked for too long.
//
// # What it does not promise
//
// An audit tells what the data says now: it cannot see an audience's past, only who changed
// since (see Audit). A recall does not reach a phone. Retention needs a role that owns the schema.
package delivery
