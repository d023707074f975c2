// Package delivery shows and changes deliveries: the rows that jobs and activities have written (package
// outbox), and the relays, senders and carriers that process them.
//
//	show  Deliveries, EachMessage  the rows of a job, counted and one by one
//	      UnsentJobs, ReadBacklog  unsent messages
//	      DeadLetters, DeadErrors  dead letters and their errors
//	      SenderStates, QueueStates
//	do    Recall                   withdraws unread notifications and unsent messages
//	      Redrive, Discard         dead letters, by a filter
//	      SetSender, PauseSender, ResumeSender
//	      RebuildQueues, TakeBackQueued, Adopt
//
// Each function is one bounded step or a walk of such steps.
//
// # States
//
// Status.May of package outbox has all transitions of a message. Operators cause these, by conditional
// statements on rows that are not in flight:
//
//	notification   unread ──Recall──► withdrawn
//
//	message   PENDING, QUEUED ──Recall──► CANCELLED
//	          QUEUED ──TakeBackQueued──► PENDING
//	          DEAD ──Redrive──► PENDING
//	          DEAD ──Discard──► CANCELLED
//
// A PROCESSING message belongs to its relay. A recall marks it, so that the current attempt is the last;
// no other function changes it while its lease is valid.
//
// # Invariants
//
//   - jobs.recalled is the number of rows that recalls have changed, in every
//     committed state. A message SENT, DEAD or in flight keeps its status in a
//     recall (I8); one in flight is not tried again.
//   - The outbox.Progress of a job agrees with the changes to its messages, in every committed state.
//   - An audit gives every channel and every row of a job exactly one reason, from one
//     snapshot per page.
//   - Each act is an event, written before the first row that it changes or together with it
//     (I14).
//   - Recall, Audit and Deliveries work in short transactions of a bounded number
//     of keys, and hold one step in memory (I13).
//
// Locks are taken rows first, in key order and skipping locked ones, the job's row last.
//
// # Failure behaviour
//
// Only locked rows are retried. Each call can be repeated after any error, including an unknown COMMIT,
// and resumes. Connection errors are job.ErrUnreachable, lock errors job.ErrLocked, and rows that other
// sessions lock for too long outbox.ErrRowsLocked.
//
// # Limits
//
// An audit reports the current data: it does not know an audience's past, only the channels that have
// changed since (see Audit). A recall does not remove a message from a phone.
package delivery
