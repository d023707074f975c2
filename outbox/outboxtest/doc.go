// Package outboxtest has the tests that every relay.Transport passes: what PostgreSQL does by
// itself, and carriers of ids beside it.
//
//	a Subject:  the transport under test, another relay's, and the truth behind both
//	            │
//	Exercise ───┴──► each Check by itself, on a new Subject
//
// # What is checked
//
//   - Each message that is due is received once, with its lease and lane, whatever mixture of
//     jobs and activities there is, by one relay or two (I8).
//   - No more is claimed than credits grant, in all and of each job (I13).
//   - What was claimed when a stop came is received: nothing is dropped.
//   - A transport without messages or credits waits, and goes on when either comes.
//   - Nothing is received before it is due. What is settled comes again when it is due, or
//     never, as it was settled.
//   - What is stuck is found (I10).
//   - A push is made once, however often it is asked for; a missing one, and a full queue,
//     are answers.
//
// # What it does not promise
//
// The order of what is received, and how soon: a transport has Subject.Patience for what must
// come. A transport that is fast and wrong now and then may pass: run it more than once.
package outboxtest
