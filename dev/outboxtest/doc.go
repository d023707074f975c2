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
//   - What is stuck is found (I10). What is held waits, and what is recalled never comes (I6).
//
// And of carriers, which pass all of that beside a dispatcher:
//
//   - A push is made once, however often it is asked for; a missing one, one of an epoch that
//     the carrier does not know, and a full queue, are answers.
//   - Inside tells the last push, and the oldest of which a copy is left.
//   - Copies leave the carrier that are held, recalled, or not queued by their push.
//   - What was queued and never pushed, what the carrier has forgotten, all of it or some, and
//     a push whose answer was lost, is pushed again and called for once (I10). Two dispatchers
//     do no more.
//
// Memory is a carrier that passes them.
//
// Dies kills relays, each a process of its own, between each pair of a message's steps, and Stops
// has one stand still; the package that calls them has Main for its TestMain.
//
// Database is also what the tests of outbox and of admin/delivery begin with: jobs at rest, their
// messages in any state, and the plans of statements.
//
// The package's own tests also search a model of messages, dispatcher, carrier and workers in
// all orders of their steps, crashes between any two included: model_test.go.
//
// # What it does not promise
//
// The order of what is received, and how soon: a transport has Subject.Patience for what must
// come. A transport that is fast and wrong now and then may pass: run it more than once.
package outboxtest
