// Package api serves what package admin holds over HTTP: every [admin.Operation], under
// /api/v1, by one rule. It knows no operation by name, so that a new one is served as soon
// as it stands in the list.
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
//	headers ──► cross-site? ──► who is it? ──► route ──► input ──► role ──► operation
//	   408/431      403         401, 429     404, 405  400–422     403      200 or by its kind
//
// # Answers
//
// A result is the operation's own JSON, as with --json on the command line. An error is
// application/problem+json ([Problem]), whose status is that of its [errkind.Kind]; it lists
// what is wrong with the input by location (path.lane, query.limit, body.reason), each with
// what is allowed. A list with a next page has it in a Link header, rel="next".
// What shows one thing that people change has its version in an ETag header ([admin.VersionOf]).
//
// # Streams
//
// A stream ([admin.DefineStream]) is text/event-stream where that is asked for: an event for
// each item, then "end", or "problem" before an early end; otherwise a JSON document a line, and
// an early end breaks the answer off. What goes wrong before the first item has a status as
// anything else. A comment, or an empty line, goes out every 15 s; then it is looked whether who
// asks still may. Streams are counted, and each write has a deadline: a reader that stalls holds
// nothing. They end when the server stops.
//
// # Turns
//
// What looks has turns (turns.go): so many of one identity at once, fewer than the pool has
// connections, so that one who asks for much does not keep others waiting. A stream has one while it
// reads, and none while it is read. What changes something needs none, and neither does a watch. The
// plan of an act changes nothing: it has a turn, and ends when who asks has gone.
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
//  4. What has a key (Idempotency-Key) is done once within 24 hours. The key is kept before
//     anything is done, and the answer after it: a process that dies in between leaves a key
//     whose outcome is said to be unknown, and no second execution.
//  5. An act that says which version it expects (If-Match) is done on that version or not at all,
//     whoever acts at the same time.
//  6. The document at /api/v1/openapi.json is made of the same parameters that are
//     understood, and names every status that is answered.
//
// It keeps no sessions itself (package admin does), and renders nothing for people but the pages of
// a link and of a sign-in through a provider. The pages at all other paths are those of Options.Pages
// (package console), which asks the API as who asks it.
package api
