// Package compose decides what is sent for each message in flight: medium, address and text; or that
// the message is deferred or refused. It reads the current state and writes nothing: the relay records
// the decision.
//
//	            content gone or broken ──────────────► Refuse  DEAD bad_content
//	            channel gone ────────────────────────► Refuse  DEAD no_address
//	            channel inactive ────────────────────► Refuse  CANCELLED opted_out
//	claimed ──► route, from the message's step on:
//	              opted out │ no address │ invalid ──► the next medium, recorded
//	              no medium left ────────────────────► Refuse  (invariant 4)
//	            quiet hours of the category ─────────► Defer   quiet_hours
//	            cap of the category ─────────────────► Refuse  CANCELLED capped
//	              messages in flight may fill it ────► Defer   capped
//	            variant by locale, templates ────────► Send
//
// # Invariants
//
//  1. Nothing is sent to a channel that is inactive or has opted out of the category or the medium, or by
//     an address that a provider called invalid, as of the call of Compose.
//  2. No message of a category is composed within its quiet hours in the channel's time zone, or in
//     Config.TimeZone if the channel has no known one. A local time that is skipped by a clock change
//     stands for the moment of the change. If a local time occurs twice, quiet hours begin at the first
//     and end at the second occurrence.
//  3. Within the window of a category's cap, a channel is sent no more messages of the category than the
//     cap. SENT messages and messages that await a receipt count. A message waits while messages in
//     flight may fill the cap. If two relays compose at once, each after its claim was committed, at
//     least one of them sees the other's message, so they never both pass. Within one batch the first
//     messages pass; of the batches of one Composer, those that begin first, if they were expected.
//  4. The reason of a refusal is the true one. DEAD unknown if any attempt may have been accepted. For
//     other messages without a medium left: CANCELLED opted_out if an opt-out caused it; otherwise the
//     reason of the last real failure if calls were made; otherwise DEAD invalid_address or no_address.
//  5. The idempotency key is a function of installation, job, time of the job's request, channel and
//     medium. Every attempt of a message by a medium has the same key, in every relay (I9), and no other
//     message has it, even after a restore (Key).
//  6. A batch costs at most seven statements, none of them per message, and one more for each further
//     16 MB of texts of its jobs: Compose reads texts in portions, and its memory contains one portion and
//     the batch's rendered texts. The count for a cap reads each job of the category that may have sent
//     messages in the window: once if the job has few messages, otherwise once for each range of the
//     batch's channel ids with gaps below 17; and at most 16 messages of a job per message of the batch.
//     A count that does not finish within half of the time that ctx leaves continues in parts while there
//     is time. Uncounted messages wait as for messages in flight.
//
// # Content
//
// An unsent message has the current text of its job, including corrections made after the message was
// written (ADR 0012). The channel's locale selects a variant: zh-Hant-TW, zh-Hant, zh, then the job's
// own title and body. Chinese of a region without a script has the script of the region (zh-TW,
// zh-Hant, zh); iw is he, in is id, ji is yi; _ is -, and case is ignored. A variant without a title or
// body takes it from the next variant. Title and body are templates (template.go); data is sent
// unchanged.
//
// # Bypassed media
//
// A medium that is bypassed on the way to another is recorded as refused, with its reason. If the
// message is refused, the bypassed media are recorded too, unless all have the reason of the message.
//
// # Failures
//
// An error of the database is returned unchanged; no message of the batch is decided then, and Compose
// may be called again. A malformed value in a channel's row, such as a list of addresses, counts as
// missing.
//
// # Not guaranteed
//
// An opt-out that is committed after Compose has read does not stop the following call. A message
// deferred to the end of quiet hours is sent within Config.Jitter after it. A message that counts
// against a cap may still fail at its provider's receipt; a message whose outcome is unknown does not
// count.
package compose
