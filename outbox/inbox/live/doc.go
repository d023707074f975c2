// Package live sends new notifications to connected clients at once, on whatever node they are connected to.
//
//	GET /v1/stream  server-sent events; the position is the id of an event, which a browser sends as Last-Event-ID
//	GET /v1/ws      the same as messages of a WebSocket; the position is in each message, and ?after= resumes
//
// Both take the reader's token as ?access_token= too, because a browser cannot set headers of such a request.
// An event is one JSON object:
//
//	{"type":"new","id":83,"notification":{…}}  a new notification, as GET /v1/inbox lists it
//	{"type":"new","id":84}                     a new notification of a bulk job, or one that was missed: fetch the list
//	{"type":"read"}                            another client of the person marked notifications (on this node, with Hints on any)
//	{"type":"reload"}                          fetch the list: the first event without a position, or when one is too old
//	{"type":"position"}                        a heartbeat; a WebSocket only
//
// # The feed
//
// Each node follows the database by itself (ADR 0052), with one connection that listens and one that polls, while it
// has clients. There are two sources:
//
//   - Single notifications are activities. Their numbers (belfry.arrivals_seq) are drawn in order and committed in
//     any order: a number below the highest one that is not visible is a hole, which is read again until the
//     transaction that drew it is over (type arrivals).
//   - The notifications of a bulk job are found by the progress of its cursor: one query for each part of the walk
//     reads which of the connected channels it reached (type walks).
//
// With Hints nodes tell each other of marks, and pass wakes on to nodes that cannot listen (nodes.go). Nothing depends on
// them: a node without a wake polls every second.
//
// # Invariants
//
//  1. A client that stays connected, or reconnects with its last position within an hour, gets each of its
//     notifications at least once, or a reload. It ignores an id that it has.
//  2. Everything up to a position was sent to the client or was visible when it got a reload (type hub).
//  3. A client costs no query of its own, except one at its start.
//  4. A queue has at most 64 events. A client that is too slow is disconnected, and resumes.
//  5. Nothing is polled on a node that had no clients for a minute.
//
// # Not guaranteed
//
//   - Notifications that `belfry retry --skipped` writes behind the cursor appear at the next fetch of the list.
//   - A transaction that stays open while 10,000 later notifications commit, or that was open with 4,000 later ones when
//     the node began to follow, appears at the next fetch of the list.
//   - After a crash of a server with synchronous_commit = off, numbers of lost transactions are drawn again. A node
//     that restarts its connections to another server, or to one that was restarted, has its clients reload.
package live
