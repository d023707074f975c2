// Package demo is `belfry demo`: it runs belfry's guarantees in front of a person
// and then proves them with SQL that shares nothing with the code that is shown.
//
// A demonstration has four acts, on a database of its own and with runners that
// are real processes of the same binary:
//
//	job        channels are generated at real cities, and an INSERT is a job for all of them
//	kill       its runner is killed with SIGKILL in mid-job, another goes on
//	abort      a plain UPDATE stops the job in mid-job; belfry.resume finishes it
//	delivery   two relays send its messages through fake providers that fail a tenth of
//	           the calls; one relay is killed with SIGKILL
//
// and, if it is asked for, a fifth without an end: a daemon with its console on that database, in
// which notices begin, are stopped and corrected, until somebody has seen enough. A
// demonstration ends with a Report: what matched, what is there, what is missing and what is there
// twice.
//
// # What is promised
//
//   - D1: Report.OK holds only if the job is PROCESSED with no missing, unexpected
//     or duplicate row, the kill and the abort both hit it after its first and
//     before its last chunk, and no row and no cursor movement came after the
//     abort's UPDATE had returned. A limit on its rows per second has it take
//     five seconds; should an act come too late all the same, the report says so. Every message
//     is SENT or DEAD, a relay was killed while there were some left, no call came before
//     its Retry-After, and the providers accepted no more duplicates than belfry has
//     recorded outcomes that it could not know.
//   - D2: matched, missing and duplicates come from queries.sql alone: a full join of
//     the channels and the rows.
//   - D3: no data of the user is touched. The schema is dropped only if it bears the
//     demo's mark and holds no job that somebody else requested than the demo, its schedules
//     and whoever has signed in to its console.
//   - D4: when Run returns, however it ends, its runners are gone. They also go with a
//     demo that is killed itself: on Linux at once, elsewhere when they next log.
//
// # Failure
//
// Whatever goes wrong, Run returns the report of what was seen so far together
// with the error. Every wait and every statement has a deadline.
//
// # Not promised
//
// Speed: that is for `make bench`. The demo's database stays until the next demo;
// nobody else may demonstrate in it meanwhile.
package demo
