// Package relay delivers messages: it claims due messages, composes them, passes them to senders within their limits,
// and records the outcome of each.
//
//	Transport ─► claim ─► compose ─► queue ─► hand over ─► recheck ─► call ─► record
//	  ▲            ▲                   │       durable       at the            many in
//	  │            └── credits ◄───────┤                     database        one COMMIT
//	  │          free slots of queues  └► deferred ──────────────────────────► │
//	  └──────────────── Settled: PENDING and due again, or final ◄─────────────┘
//
// Each step is a file of the same name and passes its messages to the next step. Only credits flow back: the number of
// messages that the senders' queues accept. Maintenance runs periodically: heartbeat and operators' settings, renewal of
// leases, recovery of lost leases, receipts.
//
//	claim      batches from the Transport, limited by credits; two composers take them
//	compose    sender and content; refused and deferred messages are recorded immediately
//	queue      one per sender, activities before bulk, bounded; package limit allows calls
//	hand over  groups of calls; the hand-over is recorded durably
//	recheck    one verdict per message, immediately before the call of its provider
//	call       to the provider; then decide.go computes the outcome of its answer, without I/O
//	record     outcomes accumulate while earlier ones are committed: group commit
//
// The Transport is PostgreSQL, or additionally a Carrier of ids (WithBroker), to which the dispatcher of one relay pushes
// the ids. PostgreSQL remains the source of truth: ids that a carrier has lost are pushed again, and a message whose id it
// delivers twice is claimed once.
//
// # States
//
// A message in flight is PROCESSING under a lease. Its step is stored in memory only, except for the hand-over.
//
//	claimed ──► queued ──► handed over ──► rechecked ──► called ──► recorded
//	   └───────────┴── stop, or too long in the queue: PENDING as before, or deferred
//	                            └── held, recalled, another's: no call
//
//	a relay that dies:  claimed, queued ──► PENDING as before, when the lease has expired
//	                    handed over or later ► crashed: unknown, retried, and a
//	                                           dead letter after max_crashes
//
// # Invariants
//
//   - I6: every call follows a recheck, and the recheck follows the durable record of the hand-over. The recheck found
//     the message PROCESSING under this relay's unexpired lease, not recalled, and its job not ABORTED. An abort that
//     returned before the recheck's statement began is obeyed. After its recheck was read, a message counts as passed
//     to the provider.
//   - I8: every transition is a conditional UPDATE of outbox.Ledger. The outcome of a message that has another owner by
//     then is dropped.
//   - I9: calls per message and medium ≤ 1 + retryable answers + unknown outcomes, including crashes. The idempotency key
//     is the same each time.
//   - I10: the dispatcher reads a carrier's last and oldest push at least every ten seconds and after every error. Lost
//     pushes are repeated; a single lost copy is pushed again after RequeueAfter. A message is in a sender's queue for at
//     most 15 seconds, and under a lease only while its relay renews it. A deferred message is PENDING with a due time. A
//     COMMIT whose answer was lost is repeated.
//   - I11: a medium is tried at most retry.attempts times. The next attempt is due at the provider's Retry-After plus the
//     policy's pause with its jitter, after the outcome was recorded, in the database's clock. A day is the longest
//     pause: after a request for more, the attempt counts as any other.
//   - I12: the next medium becomes due only in the transaction that records the permanent failure or the last attempt of
//     the previous medium, or the reason why it was bypassed. A dead letter of which any attempt may have been accepted
//     has the reason unknown or crashed, regardless of later attempts.
//   - I13: a claim examines at most 2,000 messages, and the next one continues there: every due message is examined within
//     due messages / 2,000 claims, whatever precedes it. max_in_flight limits the messages in flight. Lanes with due
//     messages divide the slots that activities leave: no lane exceeds its share, and one share is free for a new lane.
//     However many lanes there are, a share is at least a tenth of a batch. A queue contains the messages of five seconds
//     of its sender, but bulk messages only up to half of a lane's share or two rounds of calls, whichever is more.
//     The texts of queued messages and of calls use at most 64 MB (maxContent), and the texts that a composer has read and
//     not rendered 16 MB, whatever the number of jobs in a claim. Receipts are requested while fewer outcomes than
//     max_in_flight wait to be recorded. All jobs without due messages together cost two hundred claims per second.
//
// # Credits
//
// A sender grants its free queue slots as credits, and a claim of a job is limited by the credits of the senders of its
// messages. Only composing determines the senders: they depend on the recipient's platform, addresses and opt-outs. So
// composing records the queues that received a tenth of a batch or more, and the job's next claims use the credits of these
// queues. The first claim of an unknown job is one batch. From a job without credit a tenth of a batch is claimed every five
// seconds, because its next messages may have another sender. A message whose sender has no credit is deferred.
//
// # Limits
//
// A relay claims messages for the media of its senders, and leaves other media to other relays. It defers messages for a
// platform that none of its senders supports for ten seconds, or longer so that at most five hundred per second return.
//
// A sender's rate is divided by the number of live relays that have it. Activities precede bulk, and a share of the calls
// is reserved for them. Beside bulk, activities are claimed every quarter of the poll interval, and sooner after a hint.
// While both wait, every fifth call is for bulk, and a claim of bulk follows each claim that activities fill. In a lane, a job with messages alternates with jobs that had run out, the longest-waiting first. The
// breaker opens after consecutive failures at a number of recipients: unknown outcomes, retryable answers except 429, and
// rejected credentials (401 or the provider's code). Answers about one address or message show that the provider works; they include
// a mail server's 4.1.z and 4.2.z. The same number of consecutive 429 pauses the sender for the last Retry-After, at most a
// minute. A paused sender grants no credit. Its claimed messages become PENDING and due one after the other at the sender's
// rate, activities and bulk separately, so that the end of an outage or pause causes no burst. They are due within twenty
// seconds, because the rate may change.
//
// A job is aborted, as if by an operator, if abort_after of its messages in a row fail permanently at one sender of one
// relay, including invalid addresses, without an accepted one, and a sample of the remaining messages fails too
// (package judge). During its walk such a job is held instead, until a sample of ten times as many messages, or of all,
// decides. Messages that were already handed over are called. Answers to calls and receipts are counted separately. The
// counts are not durable and start at zero in each relay; a job that an operator has resumed is not aborted again.
//
// # Failures
//
// While the database is unreachable, no message is handed over, calls in flight end, and all statements are retried. The
// first relay that finds an expired lease recovers it; a lease that cannot be recovered does not delay other leases. A
// receipt of a sender that the relay does not have is left to other relays. After they have missed it twice, it gets two
// more polls than the limit. A drain waits for the first search for leases and receipts; a hanging provider of receipts
// delays it by one timeout per call. If a sender panics or returns no result for a message, the outcome is unknown. If
// PostgreSQL rejects a whole batch because of one message's data, during composing or recording, the message is found by
// bisection; a message that cannot be composed is DEAD with bad_content. A soft stop finishes messages that were handed over
// and returns the rest. A hard stop cancels the calls, whose outcomes are then unknown.
//
// # Not guaranteed
//
// Order. Delivery exactly at the due time: a job without due messages is polled again after a second, or later if there are
// more than two hundred such jobs. Exactly one call: after a lost reply the call is repeated, and only the provider can
// recognize it by the key. Exact limits while relays start and stop: each relay learns of a change with its next heartbeat.
// An address that only a receipt reports as invalid is not recorded as invalid, because it may have changed.
package relay
