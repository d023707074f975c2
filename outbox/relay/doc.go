// Package relay delivers messages: it claims those that are due, has them composed,
// hands them to senders within their limits, and records what became of each.
//
//	Transport ─► claim ─► compose ─► queue ─► hand over ─► recheck ─► call ─► record
//	  ▲            ▲                   │       durable       at the            many in
//	  │            └── credits ◄───────┤                     database        one COMMIT
//	  │          free slots of queues  └► deferred ──────────────────────────► │
//	  └──────────────── Settled: PENDING and due again, or final ◄─────────────┘
//
// Each step is a file of that name and hands what it has to the next one; none asks the one
// after it. What flows back are credits only: how many messages the senders' queues take.
// Beside the steps goes the maintenance, by the clock: heartbeat and operators' settings,
// renewal of leases, recovery of lost ones, receipts.
//
//	claim      batches from the Transport, no more than credits grant; two composers take them
//	compose    which sender, which words; refused and deferred messages are recorded at once
//	queue      one per sender, activities before bulk, bounded; limits.go allows calls
//	hand over  groups of calls; what goes out now is recorded durably
//	recheck    one verdict per message, at the last moment
//	call       goes to the provider; decide.go says, without I/O, what its answer comes to
//	record     outcomes gather while earlier ones are committed: group commit
//
// The Transport is PostgreSQL, or a Carrier of ids beside it (WithBroker), which gets them
// from the dispatcher of one of its relays. PostgreSQL remains the truth: what a carrier has
// lost is pushed again, and what it hands out twice is claimed once.
//
// # States
//
// A message in flight is PROCESSING under a lease in all of this. Where it stands is in
// memory only, but for one thing: that it was handed over.
//
//	claimed ──► queued ──► handed over ──► rechecked ──► called ──► recorded
//	   └───────────┴── stop, or too long in the queue: PENDING as it was, or deferred
//	                            └── held, recalled, another's: no call
//
//	a relay that dies:  claimed, queued ──► PENDING as it was, when the lease ran out
//	                    handed over or later ► crashed: unknown, tried again, and a
//	                                           dead letter after max_crashes
//
// # Invariants
//
//   - I6: nothing is called without a recheck, after the durable record of the hand-over,
//     that found the message PROCESSING under this relay's unexpired lease, not
//     recalled, and its job not ABORTED. An abort that returned before the recheck's
//     statement began is obeyed; a message whose recheck has been read counts as handed
//     to the provider.
//   - I8: every transition is one of outbox.Ledger's conditional UPDATEs. An outcome of
//     a message that has another owner by then is dropped.
//   - I9: calls per message and medium ≤ 1 + retryable answers + unknown outcomes, the
//     crashes among them. The key is the same each time.
//   - I10: a carrier is asked how much it remembers, at least every ten seconds and after every
//     error: what it has forgotten is pushed again, and a copy that is lost alone after
//     RequeueAfter. A message is in a sender's queue for 15 seconds at most, and under a
//     lease only while its relay renews it; what is deferred is PENDING with a time. A
//     COMMIT whose answer was lost is repeated.
//   - I11: a medium is tried at most retry.attempts times. The next attempt is due at
//     the provider's Retry-After plus the policy's pause, drawn as its jitter wants it,
//     after the outcome was recorded, in the database's clock. A provider that
//     asks for more than a day has its last attempt.
//   - I12: the next medium is due only in the transaction that records the permanent
//     failure or the last attempt of the one before, or why that was bypassed. A dead
//     letter one of whose attempts may have been accepted has the reason unknown or
//     crashed, whatever came last.
//   - I13: max_in_flight bounds the messages in flight. Of what activities leave, no lane
//     gets more than its part, and one part is always free for a lane that comes. A
//     queue holds what its sender takes in five seconds, but no more bulk than half of a
//     lane's part or two rounds of its calls, whichever is more. Receipts are looked for
//     while fewer outcomes than that wait to be recorded. Jobs without a due message cost
//     two hundred claims a second together, however many there are.
//
// # Credits
//
// A sender grants its free queue slots, and a claim takes no more of a job than the
// senders grant to whom its messages go. Who that is only composing can say: it depends on
// the recipient's platform, addresses and opt-outs. So composing notes where a batch went,
// each queue that got a tenth of it or more, and the job's next claims spend the credits of
// these. Of a job of which nothing is known, one batch is claimed first. One that has no
// credit is claimed from every five seconds, a tenth of a batch: its next messages may be
// for another sender. What composes to a sender without credit is deferred.
//
// # Limits
//
// A relay claims what is to be sent by the media of its senders, and leaves the rest to
// relays that have others. Messages for a platform that none of its senders takes it
// defers, for ten seconds or until their turn among five hundred a second.
//
// A sender's rate is divided by the number of live relays that have it. Activities go
// before bulk, and a share of the calls is kept for them; while both wait, every fifth
// call is bulk's, and a claim of bulk follows each claim that activities fill. In a lane,
// a job that has messages and those that had run out take turns, of these the one that
// has waited longest. The breaker opens after a number of failures in a row: outcomes
// that are unknown, retryable answers but 429, and those that tell of the credentials,
// by 401 or the provider's word. Answers about one address or message are a sign of
// life, a mail server's 4.1.z and 4.2.z among them. As many 429 in a row hold the sender for the Retry-After of the last, a minute
// at most. What a sender cannot take is not attempted: it grants no credit, and what is
// claimed already becomes PENDING, each due at its turn at the sender's pace, activities
// and bulk apart, so that the end of an outage or pause is no stampede. A turn is at most
// twenty seconds away: the pace may be another by then.
//
// A job is aborted, as by an operator, when abort_after of its messages in a row have failed
// permanently at one sender of one relay, invalid addresses among them, and none was taken
// (streak.go), nor any of a sample of the rest (probe.go). What has been handed over by then is called. Answers to calls and receipts
// are counted apart. Nothing of this is durable, and a relay that starts counts anew; but a job
// that an operator has resumed is not aborted again.
//
// # Failure behaviour
//
// While the database does not answer, nothing new is handed over, calls in flight end,
// and everything is tried again; leases that run out meanwhile are recovered by
// whichever relay comes first, this one included; one that cannot be recovered holds up
// none of the others. A receipt whose sender a relay does not have is left to those that
// do, until they have not come to it twice; it then waits for two more looks than the
// limit. A drain waits for its first search of both; a provider of receipts that hangs
// holds it up for its timeout a call. A sender that panics, or does not answer for a
// message, leaves its outcome unknown. A message whose data makes PostgreSQL refuse its
// whole batch, when it is composed or recorded, is searched for by halves; one that cannot
// be composed is DEAD, bad_content. A soft stop finishes what was handed over and returns
// the rest; a hard stop cuts the calls short, which leaves them unknown.
//
// # What it does not promise
//
// Order. That a message is sent right when it is due: a job of which nothing was due is
// looked at again after a second, or later when there are more than two hundred such
// jobs. Exactly one call: a reply that is lost is a call that is made again, and only
// the provider can tell by the key. That a limit holds to the message while relays come
// and go: each learns of it with its next heartbeat. An address that only a receipt calls
// invalid is not recorded as such, since it may have changed since.
package relay
