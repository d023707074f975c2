// Package demo implements `belfry demo`: it demonstrates belfry's guarantees and then verifies them
// with SQL that shares no code with belfry.
//
// The demo has four acts, on a database of its own and with runners in separate processes of the
// same binary:
//
//	job        generate channels at real cities, and INSERT a job for all of them
//	kill       send SIGKILL to its runner during the job; another runner continues
//	abort      stop the job with a plain UPDATE; belfry.resume finishes it
//	delivery   two relays send its messages through fake providers that fail a tenth of
//	           the calls; one relay is killed with SIGKILL
//
// With Config.Listen a fifth act follows: an hour of history (history.go), and a daemon with its console on
// that database, in which notices start, are stopped and corrected, until the operator ends the demo. The demo returns a
// Report with the matching channels, and the present, missing and duplicate rows.
//
// # Guarantees
//
//   - D1: Report.OK holds only if the job is PROCESSED with no missing, unexpected
//     or duplicate row, the kill and the abort both hit it after its first and
//     before its last chunk, and no row was written and no cursor moved after the
//     abort's UPDATE had returned. A limit on rows per second makes the job take
//     five seconds; a late kill or abort is a problem of the report. Every message
//     is SENT or DEAD, a relay was killed before it had sent all messages, no call came before
//     its Retry-After, and the providers accepted at most as many duplicates as belfry
//     recorded unknown outcomes.
//   - D2: matched, missing and duplicates come from queries.sql alone: a full join of
//     the channels and the rows.
//   - D3: the demo touches no data of the user. It drops the schema only if the schema has the
//     demo's mark, and all its jobs were requested by the demo, its schedules
//     or the visitor of its console.
//   - D4: when Run returns, its runners have ended. They also end with a demo that is
//     killed: on Linux at once, elsewhere when they next log.
//
// # Failure
//
// After an error Run returns the incomplete report together with the error. Every wait and every
// statement has a deadline.
//
// # Limits
//
// The demo does not measure speed; `make bench` does. The demo's database stays until the next
// demo. Only one demo can run in a database.
package demo
