// Package webhook sends messages to an HTTP endpoint of one's own or of the recipient:
// a POST of JSON, signed as Standard Webhooks says
// (https://github.com/standard-webhooks/standard-webhooks, version 1.0.0).
//
//	POST <url, or the channel's address>
//	Content-Type: application/json
//	Idempotency-Key: <key>
//	webhook-id: <key>
//	webhook-timestamp: <seconds since 1970 of this attempt>
//	webhook-signature: v1,<base64 of HMAC-SHA256 over id.timestamp.body> …
//
//	{"key":"…","job_id":7,"channel_id":42,"external_id":"u42","category":"operator_notice",
//	 "medium":"webhook","locale":"ko","title":"…","body":"…","data":{…},"attempt":1}
//
// A job_id below zero is an activity's. The idempotency key stands in three places, all
// the same text in every attempt: Idempotency-Key, webhook-id and the body's key. A
// receiver that keeps the keys it has seen acts once however often it is called; Verify
// checks a call's signature and age.
//
//	2xx ───────────────────────────────► accepted
//	408, 429, 500, 503 ────────────────► retryable, not before Retry-After
//	410, where the address is the URL ─► invalid address
//	other 3xx, 4xx ────────────────────► permanent
//	other 5xx, or no answer to a request that may have gone out ─► unknown
//	no connection ─────────────────────► retryable
//
// # Invariants
//
//  1. No connection goes to a private address, at whatever hop and however the name
//     resolves, but to those of allow_addresses (package httpcall).
//  2. Up to three redirects by 307 and 308 are followed, never from https to http.
//  3. A body is not read for what it says: what counts is the status.
//
// Where the URL is fixed, 410 is permanent and no invalid address: it would speak of the
// endpoint and condemn one recipient after the other.
package webhook
