// Package lifecycle contains the building blocks of long-running loops: notifications (Listener), one log of
// database outages (Outage), soft and hard stops (Stop), exclusive process names (NameLock), the growth of
// a count per second (Meter), and streamed HTTP responses (EventWriter).
//
// An idle process polls the database rarely, because triggers notify a channel when a transaction commits
// new work. A notification is only a hint. If it is lost, or switched off by the setting belfry.bell, work
// starts later but is never lost: listeners still poll at long intervals, and at short ones while Listening
// is false.
//
// The loops of a process continue to try while the database is unreachable. One Outage logs for all of them.
//
// Stop is for loops that finish work before they end, Pause for loops that only wait.
package lifecycle
