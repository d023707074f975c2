// Package httpcall is the half that senders over HTTP share: one call with a deadline,
// the answer read with a bound, and of every way to get none whether the request may
// have gone out.
//
//	Do ─┬─ an answer ────────────────────────► Answer: status, headers, ≤ 64 KiB of body
//	    ├─ none, and the request never began ► retryable: dns, dial, tls, timeout
//	    ├─ none, and it may have gone out ───► unknown: timeout, connection
//	    └─ refused here ─────────────────────► permanent: blocked_address, request
//
// # Invariants
//
//  1. A failure is retryable only when the request surely never began (I9): its headers
//     were not written, or, of a request without a body, it got no connection. See
//     watch.go for why that is sure.
//  2. One Do is one request on the wire. net/http repeats by itself a request that bears
//     an Idempotency-Key header, or has no body, when a connection that was kept open
//     breaks; nobody would have recorded that second call. Do therefore sends
//     the key under the spelling idempotency-key, which net/http does not look for and
//     which is the same header to a receiver; a send without a body needs Options.Fresh.
//     What net/http still repeats are requests of which surely nothing was processed.
//  3. With Options.Guard no connection is opened to a private, loopback, link-local or
//     otherwise special address. The address is checked after it was resolved, at every
//     dial, so neither a name that resolves anew nor a redirect gets round it.
//  4. Every call ends with its context, and after 30 seconds if that has no deadline.
//     At most 64 KiB of a body are read, and 64 KiB of headers.
//  5. A failure's text has no address, URL or content in it.
//
// Statuses are read as in ClassOf; a sender that knows its provider's own words looks at
// the answer first. Proxies of the environment are not used. HTTP/2 is spoken where the
// provider offers it, and its connections are pinged, so that one whose peer is gone
// does not swallow call after call.
//
// # Not promised
//
// That a retryable status, such as 500, was not acted upon: the provider said that it
// failed, and is believed.
package httpcall
