// Package compose says of messages in flight what is to be sent now: which
// medium, which address, which words; or that a message is not to be sent, or not yet.
// It reads what is true at that moment and writes nothing: the relay records.
//
//	            content gone or broken ──────────────► Refuse  DEAD bad_content
//	            channel gone ────────────────────────► Refuse  DEAD no_address
//	            channel inactive ────────────────────► Refuse  CANCELLED opted_out
//	claimed ──► route, from the message's step on:
//	              opted out │ no address │ invalid ──► the next medium, recorded
//	              no medium left ────────────────────► Refuse  (invariant 4)
//	            quiet hours of the category ─────────► Defer   quiet_hours
//	            cap of the category ─────────────────► Refuse  CANCELLED capped
//	              others in flight may fill it ──────► Defer   capped
//	            variant by locale, templates ────────► Send
//
// # Invariants
//
//  1. Nothing is sent to a channel that is inactive, that has opted out of the category
//     or of the medium, or by an address that a provider called invalid, as of the
//     moment of the call of Compose.
//  2. Within its quiet hours no message of a category is composed, in the channel's own
//     time zone, or Config.TimeZone when it has none that is known. A clock time that a
//     change of clocks leaves out is when the clocks change; of one that comes twice, the
//     first begins quiet hours and the second ends them.
//  3. Of a category with a cap, no more than its number of messages is sent to a channel
//     within its window. SENT messages count, and those whose receipt is awaited. One
//     that others in flight may leave no room for waits until they are settled:
//     of two relays that compose at once, each after its claim was committed, at least
//     one sees the other's message, so that never both pass. Within one batch the first
//     ones pass, and of the batches of one Composer those that begin first, if they were
//     expected.
//  4. A message is refused for what is true: DEAD unknown when any attempt may have been
//     accepted, whatever else holds now. Of others, a route without a medium left is
//     CANCELLED opted_out when an opt-out is what leaves nothing; else, when calls were
//     made, what the last real failure says; else DEAD invalid_address or no_address.
//  5. The idempotency key is a function of installation, job, when the job was requested, channel
//     and medium: every attempt of a message by a medium has the same one, whichever relay
//     makes it (I9), and no other message has it, also after a restore (Key).
//  6. A batch costs at most seven statements, none of them one per message, and memory
//     in proportion to the batch and its contents. Counting for a cap looks at each job of
//     the category that may have sent something in the window: once when it has few
//     messages, otherwise once for each stretch of channel ids of the batch that lie less
//     than 17 apart; and reads no more than 16 messages of a job for each one of the
//     batch. Counting that does not end within half of the time that ctx leaves goes on
//     in parts, by statements of their own, while there is time: messages it does not
//     come to wait, as for others in flight.
//
// # Content
//
// A message that is not sent yet says what its job says now, also when the job was
// corrected after the message was written (ADR 0012). Of the variants the channel's
// locale selects one: zh-Hant-TW, zh-Hant, zh, then the job's own title and body; Chinese of a
// region without a script has the region's (zh-TW, zh-Hant, zh), iw is he, in is id, ji is yi; _ is
// -, and case does not matter. A variant without a title, or body, takes that of the
// next one. Title and body are templates (template.go); data is sent as it
// is.
//
// # Bypassed media
//
// A medium that is bypassed on the way to another is recorded as refused with its
// reason. When a message is refused, the bypassed media are recorded too, unless all
// have the reason that the message itself has.
//
// # Failure behaviour
//
// An error of the database comes back as it is; nothing is known then of any message
// of the batch, and Compose may be called again. A value in a channel's row that is not
// what it should be, such as addresses that are a list, counts as none.
//
// # What it does not promise
//
// An opt-out that is committed after Compose has read does not stop the call that
// follows. A message that was deferred to the end of quiet hours is not sent at that
// minute, but within Config.Jitter of it. A message that counts against a cap may yet
// fail at its provider's receipt; one whose outcome is unknown does not count.
package compose
