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
// Reads are GET, "set" is PATCH, all other operations are POST. Other parameters are query parameters of
// reads and fields of a JSON object otherwise; null resets a KEY=VALUE. Unknown parameters are rejected by
// name. There is no parameter for the actor: the actor is the caller.
//
// # A request
//
//	headers ──► cross-site? ──► credentials ──► route ──► role ──► input ──► Do
//	   408/431      403         401, 429     404, 405   403   400–422    200 or by the kind of its error
//
// # Answers
//
// A result is the operation's own JSON, the same as with --json on the command line. An error is
// application/problem+json ([Problem]). Its [db.Kind] determines the status. It lists each invalid
// parameter by location (path.lane, query.limit, body.reason) with the allowed values. A Link header with
// rel="next" points to the next page of a list. An ETag header has the version of a single object
// ([operation.VersionOf]).
//
// # Streams
//
// A stream ([operation.DefineStream]) is text/event-stream if the client accepts it: one event for each item,
// then "end", or "problem" after an error. Otherwise it is one JSON document per line, and an error aborts
// the response. An error before the first item has a status like every other error. Every 15 s the server
// sends a comment or an empty line and checks the caller's credentials and role again. The number of streams
// is limited, and each write has a deadline, so that a stalled client holds no resources. Streams end when
// the server stops.
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
// /login, /logout and, for browsers, /login/oidc (package oidc) handle sessions rather than operations. The
// redirect URI is derived from Config.PublicURL alone. Browsers get an HTML page instead of a problem.
//
// # Recipients
//
// /unsubscribe/ is for recipients of messages, who have no token. Its links are signed (package unsubscribe).
// Each records one opt-out, and by POST alone.
//
// # Invariants
//
//  1. No operation runs without credentials that are valid at that moment. Without credentials, a
//     signed link records its own opt-out and nothing else.
//  2. A read and its statement are cancelled when the client disconnects. An act
//     continues to its end or its deadline, so that a disconnect never leaves it half done.
//  3. An act with an unknown outcome is reported as unknown, never as failed.
//  4. A call with an idempotency key runs once within 24 hours. The key is stored before the
//     operation runs, the response after it: a process that dies in between leaves a key with an
//     unknown outcome, and no second execution.
//  5. An act with an expected version (If-Match) runs on that version or not at all, whatever other
//     acts run at the same time.
//  6. The document at /api/v1/openapi.json is generated from the same parameters that requests
//     are parsed with, and lists every status of a response.
//
// It stores no sessions itself (package admin does), and renders nothing for people except the pages of
// a link and of a sign-in through a provider. Options.Pages (package console) has the pages at all
// other paths.
package api
