// Package fake plays the providers of every sender in one process, for tests, the
// demo and people who try belfry out: it speaks their protocols, verifies what a
// caller proves itself with, fails as ordered, and keeps account of what it accepted.
//
//	            ┌─ latency ─┐
//	call ──────►│  a fault  │── none ────────────► recorded as accepted, answered
//	            │  is drawn │── garbage ─────────► recorded as accepted, unreadable answer
//	            └───────────┘── reset ───────────► recorded as accepted, no answer
//	                        ── hang ─────────────► recorded as dropped, no answer
//	                        ── status, invalid… ─► recorded as refused, answered so
//
// By HTTP, 1.1 and 2: webhook, sms, fcm with its OAuth, apns, webpush (decrypted by the
// subscriptions that it handed out) and alimtalk with its later results; and smtp. Beside
// them a control API: GET and DELETE /calls, GET /summary, PUT /faults, POST
// /webpush/subscriptions.
//
// # What is promised
//
//   - P1: a call is recorded before it is answered: no caller knows of an acceptance
//     that the summary lacks.
//   - P2: every call of a message is counted once: accepted, refused or dropped. Of the
//     accepted ones, every one beyond the first of its idempotency key is a duplicate,
//     or where keys are honoured a repeat, answered as the first was.
//   - P3: the same seed draws the same faults for calls that arrive in the same order.
//   - P4: when Close returns, every call has ended.
//
// The idempotency key is read where a sender of belfry puts it: webhook
// Idempotency-Key, else webhook-id; sms Idempotency-Key; fcm message.data.belfry_key;
// apns apns-id; webpush the field key of what was encrypted; smtp the local part of
// Message-ID. AlimTalk has no place for one: its messages are told apart by service,
// address, template and content, so that the same text to the same person counts as a
// duplicate whichever job it is of.
//
// # Failure
//
// A call that a provider would refuse by itself, for its credentials or its form, is
// refused in that provider's words, whatever was ordered but statuses, hangs and
// resets. A client that leaves during a latency has handed nothing over; by SMTP nobody
// notices that it has left.
//
// # Not promised
//
// That the providers agree with it: limits, quotas and checks of addresses are only
// those written here. Secrets: the credentials are the same everywhere and open nothing
// but a fake. Bounded memory: the keys of accepted messages are kept until DELETE /calls.
// The control API shows addresses and has no authentication: it listens on the loopback
// interface unless told otherwise.
package fake
