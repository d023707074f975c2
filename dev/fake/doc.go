// Package fake implements fake providers for every sender in one process, for tests, the demo and
// trials of belfry. The fakes implement the providers' protocols, verify credentials and signatures,
// fail on request, and record accepted messages.
//
//	            ┌─ latency ─┐
//	call ──────►│  a fault  │── none ────────────► recorded as accepted, answered
//	            │  is drawn │── garbage ─────────► recorded as accepted, unreadable answer
//	            └───────────┘── reset ───────────► recorded as accepted, no answer
//	                        ── hang ─────────────► recorded as dropped, no answer
//	                        ── status, invalid… ─► recorded as refused, error answer
//
// HTTP/1.1 and HTTP/2 serve webhook, sms, fcm with its OAuth, apns, webpush (decrypted with the
// keys of the fake's subscriptions) and alimtalk with its later results. smtp has its own port. A
// control API has GET and DELETE /calls, GET /summary, PUT /faults, and POST
// /webpush/subscriptions.
//
// # Guarantees
//
//   - P1: a call is recorded before it is answered: the summary contains every acceptance
//     that a caller has received.
//   - P2: every call of a message is counted once: accepted, refused or dropped. Each
//     accepted call beyond the first of its idempotency key is a duplicate, or a repeat if
//     keys are honoured, with the answer of the first call.
//   - P3: the same seed draws the same faults for calls that arrive in the same order.
//   - P4: when Close returns, every call has ended.
//
// The idempotency key comes from the place in which belfry's sender writes it: webhook
// Idempotency-Key, else webhook-id; sms Idempotency-Key; fcm message.data.belfry_key;
// apns apns-id; webpush the field key of the encrypted body; smtp the local part of
// Message-ID. AlimTalk has no key: its messages are identified by service, address, template
// and content, so that the same text to the same person counts as a duplicate also if it
// belongs to another job.
//
// # Failure
//
// A call with wrong credentials or a wrong form is refused with the provider's error; only the
// faults status, hang and reset come before this check. A call whose client disconnects during a
// latency is dropped; SMTP does not detect the disconnection.
//
// # Limits
//
// The limits, quotas and checks of addresses are only a part of the providers' own. The credentials
// are the same in every installation and valid only for a fake. The memory is not bounded: the keys
// of accepted messages are stored until DELETE /calls. The control API shows addresses and has no
// authentication: it listens on the loopback interface by default.
package fake
