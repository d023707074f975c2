// Package smtp delivers messages as plain-text mail through one SMTP server.
//
//	connection: dial ─► EHLO ─► STARTTLS ─► AUTH ─► idle ◄──────────────┐
//	                                                 │                  │
//	message:                          MAIL ─► RCPT ─► DATA ─► content ─► "." ─► reply
//	          lost or refused (4yz):  └──────────── retryable ────────┘      unknown when lost
//
// Connections are kept for the next message, at most Config.MaxIdle of them and each for
// Config.IdleTimeout and Config.MaxPerConnection messages. The protocol is spoken by
// github.com/wneessen/go-mail; this package decides what its answers mean.
//
// # Invariants
//
//  1. unknown only from the final dot on: before it a server must not deliver (RFC 5321
//     §4.1.1.4), so a connection that breaks earlier is retryable.
//  2. The idempotency key is the Message-ID, <key@domain>, the same in every attempt. SMTP
//     has no place that a server must honour; mail systems that drop repeats go by it.
//  3. No title, body or address can add a header or a command: addresses are parsed, and
//     control characters in a title become spaces.
//  4. A call ends with its context, whatever the server does, and reads at most readBytes.
//  5. A kept connection that the server has closed meanwhile costs no attempt: when it
//     fails before the message was begun, a new one is opened, once.
//
// # Answers
//
// 4yz is retryable, 5yz permanent. 550, 551 and 553 to RCPT mean an invalid address,
// unless the enhanced code is 5.7.z: policy says that the sender is unwelcome, not that
// the mailbox is missing. Whatever a server says before a message has begun (greeting,
// STARTTLS, AUTH) concerns the server or the account and not the message: it is
// retryable, so that a wrong password opens the relay's breaker instead of filling the
// dead letters.
//
// # What it does not promise
//
// A 250 means that the server has taken the mail, not that anybody got it: bounces come
// back to the From address. Delivery.Data is not sent, and there is no HTML part.
package smtp
