// Package webpush delivers messages to browsers by the Web Push protocol: RFC 8030, with
// the payload encrypted for the browser (RFC 8291, RFC 8188) and the sender named by VAPID
// (RFC 8292).
//
//	address ─► subscription ─► payload ─► record ─► POST endpoint ─► 201   accepted
//	   └ malformed: invalid      └ over 3,993 bytes: permanent      404, 410 invalid address
//	                                                                 429, 5xx as httpcall says
//	                                                                 other 4xx permanent
//
// A channel's address is the JSON of the browser's PushSubscription:
// {"endpoint": "https://…", "keys": {"p256dh": "…", "auth": "…"}}. The browser is sent the
// JSON object {"title", "body", "data", "key"}, for its service worker to show.
//
// # Invariants
//
//  1. The idempotency key goes into the payload, and without its hyphens into the Topic
//     header: an attempt replaces an earlier one of the same message that the push service
//     has not delivered yet, and a service worker that keeps the key in its
//     notification's tag shows one notification for both.
//  2. Every call has a fresh key pair and salt: no two bodies share a key and nonce.
//  3. The endpoint comes from a browser. It must be https, and no connection is made to
//     a private address (httpcall's guard) unless the configuration allows it.
//  4. A token of VAPID names one push service, lives 12 hours and is used for at most 6.
//     At most 256 are kept.
//
// # What it does not promise
//
// That a message was shown: a push service answers when it has taken it, and drops it when
// TTL is over. Delivery receipts of RFC 8030 §5.1 are not asked for: no large push service
// has them.
package webpush
