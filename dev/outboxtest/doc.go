// Package outboxtest contains the tests that every outbox.Transport must pass: PostgreSQL alone, and carriers of ids.
//
//	a Subject:  the transport under test, another relay's, and the database of both
//	            │
//	Exercise ───┴──► each Check by itself, on a new Subject
//
// # What is checked
//
//   - Each due message is received once, with its lease and lane, for any mixture of jobs and activities, by one
//     relay or two (I8).
//   - No more messages are claimed than credits permit, in total and per job (I13).
//   - After a stop the claimed messages are received: none is dropped.
//   - A transport without messages or credits waits, and continues when either arrives.
//   - No message is received before it is due. A settled message returns when it is due, or never if it is final.
//   - Stranded messages are found (I10). Held messages wait, and recalled messages are not received (I6).
//
// Carriers pass all of these checks together with a dispatcher, and also:
//
//   - A repeated push is applied once. A gap, an unknown epoch and a full queue are answers.
//   - Inside returns the last push, and the oldest push of which a copy remains.
//   - Copies that are held, recalled, or not queued by their push leave the carrier.
//   - Messages that were queued and never pushed, that the carrier has lost completely or partly, or whose push's
//     answer was lost, are pushed again and called once (I10), with one dispatcher or two.
//
// Memory is a carrier that passes them.
//
// Dies kills relay processes between each pair of a message's steps, and Stops suspends one. The package that calls them
// uses Main as its TestMain.
//
// Database is also the fixture of the tests of outbox and admin/delivery: finished jobs, messages in any state, and
// statement plans.
//
// Package model searches a model of messages, dispatcher, carrier and workers in all orders of their steps, with crashes.
//
// # Not guaranteed
//
// The order and latency of received messages: Subject.Patience is the timeout. A transport that fails rarely may pass: run
// the tests more than once.
package outboxtest
