// Package model is a model of how a message goes through a carrier of ids, small
// enough to be searched whole: PostgreSQL's row, the dispatcher, the carrier and three
// workers, each in steps of one statement, script or call, in every order, with faults
// between any two.
//
//	dispatcher   flip and number ─ COMMIT ─ push            compare, push again, sweep
//	carrier      waiting ─ main ─ taken by a worker         lists: monitor; streams: reclaim
//	worker       take ─ claim ─ hand over ─ recheck ─ call ─ record ─ remove
//	PostgreSQL   PENDING ─ QUEUED by n ─ PROCESSING under a lease ─ SENT, DEAD
//
// What is abstract: copies have no order, so that any may be taken next; a clock may be
// late by any time, so that a lease, a heartbeat or a retry's due time ends whenever its owner
// does not keep it; one message is claimed at a time. What one process forgets when it
// dies, and what one that was stopped still believes, is exact.
//
// What must hold in every state that can be reached:
//
//   - I8: SENT and DEAD are never left, and a worker calls only under a lease that is its
//     own, or was when it looked, before it was stopped.
//   - I9: calls ≤ 1 + answers that ask for another attempt + crashes counted by leases.
//   - I10: when nothing fails any more, every message can become final, without those that
//     crashed or were stopped. The sweep, which takes ten minutes, is only needed for copies
//     that somebody else has deleted.
//   - I11: nothing is claimed before it is due.
//   - I13: copies do not multiply, none stays permanently, and a backlog is not pushed again.
//     After mere crashes no copy of a message's latest push is claimed in vain.
//
// Each guard of the design is a field of guards; guards_test.go takes away one after
// the other.
//
// The model is one goroutine that searches, and all of it is tests. It is a package by itself
// because `make test` builds it without the race detector, under which it takes three times
// as long and finds nothing more: what really runs beside each other is in the tests of carriers.
package model
