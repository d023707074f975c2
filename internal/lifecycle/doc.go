// Package lifecycle wakes what waits for the database, says when it is away, stops what is
// under way, and keeps the names of processes apart (Hold).
//
// A process that has nothing to do asks the database seldom, because the database says
// when there may be work: triggers notify a channel when a transaction commits. That is a
// hint and no more. A notification that is lost, or left out by the setting belfry.bell,
// costs time and never work: who listens still looks from time to time, and often while
// Listening is false.
//
// A process has many loops that ask the database. While it is away they go on trying, and
// Outage speaks for all of them.
//
// Whoever finishes something before it ends can be stopped softly and hard (Stop), and whoever
// waits for time alone can be stopped in it (Pause).
package lifecycle
