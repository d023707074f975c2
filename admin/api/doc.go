// Package api runs the operations of package admin for authenticated callers, and serves every
// [operation.Operation] over HTTP, under /api/v1, by one rule. It knows no operation by name, so that a
// new one is served as soon as it is in the list.
//
// # Calls
//
// [Handler.Do] runs an operation, and [Handler.Stream] a stream. They hold every check that does not
// depend on HTTP. An HTTP route decodes a request, calls one of them, and encodes the outcome; a page
// of the console (package console) calls the same functions with an input of its own.
//
//	request ──► route ──► input ─┐
//	                             ├──► Do: read-only? role, precondition, limit, key ──► operation
//	page ─────► form ───► input ─┘
//
// # Routes
//
// The name of an operation is its path, and its required arguments stand before the verb:
//
//	lanes list              GET   /api/v1/lanes
//	jobs show ID            GET   /api/v1/jobs/{id}
//	dead-letters show       GET   /api/v1/dead-letters/show?job=…
//	lanes events [LANE]     GET   /api/v1/lanes/events?lane=…
//	lanes pause LANE        POST  /api/v1/lanes/{lane}/pause
//	limits set KEY=VALUE    PATCH /api/v1/limits
//	senders set SENDER K=V  PATCH /api/v1/senders/{sender}
//
// What looks is GET, "set" is PATCH, everything else is POST. All other parameters are the
// query's where something is looked at, and fields of a JSON object where it is changed;
// null takes a KEY=VALUE back. What is given and not known is refused by name. A parameter
// that says who acts does not exist here: the token says it.
//
// # A request
//
//	headers ──► cross-site? ──► credentials ──► route ──► role ──► input ──► Do
//	   408/431      403         401, 429     404, 405   403   400–422    200 or by the kind of its error
//
// # Answers
//
// A result is the operation's own JSON, as with --json on the command line. An error is
// application/problem+json ([Problem]), whose status is that of its [errkind.Kind]; it lists
// what is wrong with the input by location (path.lane, query.limit, body.reason), each with
// what is allowed. A list with a next page has it in a Link header, rel="next".
// What shows one thing that people change has its version in an ETag header ([operation.VersionOf]).
//
// # Streams
//
// A stream ([operation.DefineStream]) is text/event-stream where that is asked for: an event for
// each item, then "end", or "problem" before an early end; otherwise a JSON document a line, and
// an early end breaks the answer off. What goes wrong before the first item has a status as
// anything else. A comment, or an empty line, goes out every 15 s; then it is looked whether who
// asks still may. Streams are counted, and each write has a deadline: a reader that stalls holds
// nothing. They end when the server stops.
//
// # Limits
//
// The calls of one identity that run at once are limited (limiter.go), to fewer than the pool has
// connections, so that one identity does not delay the others. A stream counts while it reads, and not
// while its reader takes an item; a watch does not count. An act that stops something has a limit and
// connections of its own. The plan of an act is a read: it ends when its client is gone.
//
// # Signing in
//
// /login, /logout and, for browsers, /login/oidc (package oidc) are about sessions rather than
// operations. Where a provider sends people back to is made of Config.PublicURL alone. What a
// browser shows to a person is a page instead of a problem.
//
// # Recipients
//
// /unsubscribe/ is for recipients of messages, who have no token: its links are signed (package
// unsubscribe), do one thing each, and do it by POST alone.
//
// # Invariants
//
//  1. Nothing is run for a request without a token that is good at that moment; without one, a
//     signed link records its own opt-out and nothing else.
//  2. What looks ends with its client, and its statement with it. What changes something
//     goes to its end, or its deadline: a client that hangs up does not leave half.
//  3. An act whose outcome is not known is said to be that, never to have failed.
//  4. A call with an idempotency key runs once within 24 hours. The key is stored before the
//     operation runs, the answer after it: a process that dies in between leaves a key with an
//     unknown outcome, and no second execution.
//  5. An act with an expected version (If-Match) runs on that version or not at all, whatever other
//     acts run at the same time.
//  6. The document at /api/v1/openapi.json is made of the same parameters that are
//     understood, and names every status that is answered.
//
// It stores no sessions itself (package admin does), and renders nothing for people except the pages of
// a link and of a sign-in through a provider. Options.Pages (package console) has the pages at all
// other paths.
package api
