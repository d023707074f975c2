// Package model is a model of a message's path through a carrier of ids. It is small enough for a complete search:
// PostgreSQL's row, the dispatcher, the carrier and three workers, each in steps of one statement, script or call, in every
// order, with faults between any two.
//
//	dispatcher   flip and number ─ COMMIT ─ push            compare, push again, sweep
//	carrier      waiting ─ main ─ taken by a worker         lists: monitor; streams: reclaim
//	worker       take ─ claim ─ hand over ─ recheck ─ call ─ record ─ remove
//	PostgreSQL   PENDING ─ QUEUED by n ─ PROCESSING under a lease ─ SENT, DEAD
//
// Abstractions: copies have no order, so that any may be taken next. A clock may be late by any time, so that a lease, a
// heartbeat or a retry's due time can end whenever its owner does not renew it. One message is claimed at a time. The
// memory of dead and suspended processes is modelled exactly.
//
// Properties of every reachable state:
//
//   - I8: SENT and DEAD are final, and a worker calls only under its own lease, which may have expired only while it was
//     suspended after the recheck.
//   - I9: calls ≤ 1 + retryable answers + crashes counted by leases.
//   - I10: after the last fault every message can become final without the crashed and suspended workers. The sweep, which
//     takes ten minutes, is only needed for copies that another program has deleted.
//   - I11: no message is claimed before it is due.
//   - I13: copies do not multiply, none remains permanently, and a backlog is not pushed again. If there are only crashes,
//     every claim of a copy of a message's latest push succeeds.
//
// Each guard of the design is a field of guards; guards_test.go removes one at a time.
//
// The search is one goroutine, and the package contains only tests. It is a separate package because `make test` builds it
// without the race detector, which triples its duration and finds nothing: the tests of carriers cover concurrency.
package model
