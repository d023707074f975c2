// Package demo is `belfry demo`: it runs belfry's guarantees in front of a person
// and then proves them with SQL that shares nothing with the code that is shown.
//
// A demonstration has five acts, on a database of its own and with runners that
// are real processes of the same binary:
//
//	channels   generated at real cities
//	kill       a runner is killed with SIGKILL in mid-job, another finishes the job
//	abort      a plain UPDATE stops a job in mid-job; belfry.resume finishes it
//	others     a radius, two platforms, and a job that is due in three seconds
//	delivery   two relays send the push jobs' messages through fake providers that fail
//	           a tenth of the calls; one relay is killed with SIGKILL
//
// and ends with a Report: for each job what matched, what is there, what is
// missing and what is there twice.
//
// # What is promised
//
//   - D1: Report.OK holds only if every job is PROCESSED with no missing, unexpected
//     or duplicate row, the kill and the abort both hit a job after its first and
//     before its last chunk, and no row and no cursor movement came after the
//     abort's UPDATE had returned. A limit on their rows per second has these jobs take
//     five seconds; should an act come too late all the same, the report says so. Every message
//     is SENT or DEAD, a relay was killed while there were some left, no call came before
//     its Retry-After, and the providers accepted no more duplicates than belfry has
//     recorded outcomes that it could not know.
//   - D2: matched, missing and duplicates come from queries.sql alone: a full join of
//     the channels and the rows, the distance by another formula (a chord through the
//     globe) than the walk's.
//   - D3: no data of the user is touched. The schema is dropped only if it bears the
//     demo's mark and holds no job that somebody else requested.
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
