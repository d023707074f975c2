package outbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/errkind"
)

const (
	// What is kept of texts, in characters, as attempts_error_check wants it.
	keptError = 1000
	keptCode  = 100
	// settleRounds is how often messages are tried again that somebody has just changed
	// otherwise: a recall marks each of them once.
	settleRounds = 100
)

// ErrRowsLocked reports that other sessions keep rows of the job locked, so that they cannot be
// changed. What was changed until then stays changed.
var ErrRowsLocked = errkind.New(errkind.Conflict, "rows of the job are locked by other sessions")

// Settlement is what is to be recorded about a message in flight.
type Settlement struct {
	// Claimed says which message and whose. With a zero LeaseID it is one whose receipt
	// is awaited.
	Claimed
	// To is PENDING, SENT, DEAD, CANCELLED, or PROCESSING with a Receipt.
	To     Status
	Reason Reason // required with DEAD and CANCELLED, says what PENDING waits for
	// What the message has from now on. Claimed.Step and Claimed.Attempts say what it had.
	NextStep, NextAttempts int
	// Untouched returns it to PENDING as it was: due when it was, for the reason it had.
	// NextStep, NextAttempts, Reason, Wait and Error do not count then. See Release.
	Untouched bool
	// Wait is until the next attempt is due, or the next look for the receipt, from the
	// database's now.
	Wait time.Duration
	// Receipt is what the provider calls the message: required with PROCESSING, kept for
	// support with SENT. Of a message whose receipt is awaited it is that one, whatever To
	// is.
	Receipt string
	// Sender is who took the message, kept with SENT and PROCESSING.
	Sender string
	// Error is kept with the message; empty keeps none.
	Error string
	// Record is appended to the attempts, in order. None for a plain success. When a
	// receipt is to come, the last one is accepted.
	Record []Attempt
	// InvalidAddress is the SHA-256 of an address that a provider called invalid; nil:
	// none. It is recorded with the medium and sender of the last of Record.
	InvalidAddress []byte
}

// Release returns a message to PENDING as it was, or to CANCELLED when it was recalled:
// its job is held, or the relay stops before it was sent.
func Release(c Claimed) Settlement {
	return Settlement{Claimed: c, To: Pending, NextStep: c.Step, NextAttempts: c.Attempts, Untouched: true}
}

// Outcome is what an attempt came to.
type Outcome string

// The outcomes that are recorded.
const (
	OutcomeRetryable      Outcome = "retryable"
	OutcomePermanent      Outcome = "permanent"
	OutcomeInvalidAddress Outcome = "invalid_address"
	OutcomeUnknown        Outcome = "unknown"
	OutcomeCrashed        Outcome = "crashed"     // the relay died, or lost its lease
	OutcomeRefused        Outcome = "refused"     // no call was made: the medium was bypassed
	OutcomeAccepted       Outcome = "accepted"    // and the receipt is awaited
	OutcomeUnconfirmed    Outcome = "unconfirmed" // no receipt came in time
)

// Attempt is one entry in the record of what was tried.
type Attempt struct {
	Step    int
	Attempt int // of the step, from 1; 0: no call was made
	Medium  string
	Sender  string
	Outcome Outcome
	Reason  Reason // of a refusal
	Code    string // the provider's; 100 characters are kept
	Error   string // 1,000 characters are kept
}

// problem says what no relay may ask for, or nil.
func (s Settlement) problem() error {
	problem := func(field, allowed string) error {
		return fmt.Errorf("settlement of message %d/%d: %s is not allowed; allowed is %s", s.JobID, s.ChannelID, field, allowed)
	}
	switch {
	case !Processing.May(s.To):
		return problem("To "+string(s.To), "PENDING, SENT, DEAD, CANCELLED or PROCESSING")
	case s.Untouched && s.To != Pending:
		return problem("Untouched with "+string(s.To), "PENDING")
	case (s.To == Dead || s.To == Cancelled) && s.Reason == "":
		return problem("no Reason with "+string(s.To), "any")
	case s.Receipt == "" && (s.To == Processing || s.LeaseID == 0):
		return problem("no Receipt", "the provider's")
	case s.To == Processing && s.LeaseID != 0 && (len(s.Record) == 0 || s.Record[len(s.Record)-1].Outcome != OutcomeAccepted):
		return problem("a Record without acceptance", "one that ends with accepted")
	case s.InvalidAddress != nil && len(s.Record) == 0:
		return problem("InvalidAddress without a Record", "one of the attempt")
	}
	return nil
}

// plain reports whether s says no more than that the message was sent, and with its job's
// first content.
func (s Settlement) plain() bool {
	return s.To == Sent && s.LeaseID != 0 && len(s.Record) == 0 && s.InvalidAddress == nil && s.Error == "" && s.Reason == "" && s.NextStep == s.Step && s.Revision == 0
}

// Settle records what became of messages, in one transaction and one round trip, and
// deletes those of doneLeases under which nothing is left in flight. It
// returns the status that each message has now, in the order of settlements: CANCELLED
// where it would be PENDING or DEAD but was recalled meanwhile, and "" where it was
// not this owner's any more and nothing was recorded.
//
// After an error it is to be made again: what a call before has recorded is told and
// not recorded twice, as long as no other relay has claimed the message since.
func (l *Ledger) Settle(ctx context.Context, settlements []Settlement, doneLeases []int64) ([]Status, error) {
	err := checkBatch(len(settlements))
	for i := range settlements {
		err = errors.Join(err, settlements[i].problem())
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	statuses := make([]Status, len(settlements))
	todo := make([]int, len(settlements))
	for i := range todo {
		todo[i] = i
	}
	for round := 0; len(todo) > 0 || round == 0 && len(doneLeases) > 0; round++ {
		if round == settleRounds {
			return nil, fmt.Errorf("settle %d messages: %w: %d of them", len(settlements), ErrRowsLocked, len(todo))
		}
		var b pgx.Batch
		var again []int
		settled := func(i int, s Status) {
			if statuses[i] = s; s == "" {
				again = append(again, i)
			}
		}
		if round == 0 {
			sent, other := parted(settlements)
			queueSent(&b, settlements, sent, settled)
			queueSettlements(&b, settlements, other, 0, settled)
		} else {
			queueSettlements(&b, settlements, todo, 0, settled)
		}
		if len(doneLeases) > 0 {
			b.Queue(queries.leasesEnd, pgx.StrictNamedArgs{"ids": doneLeases})
		}
		if len(todo) > 0 {
			b.Queue(queries.deliveriesSettled, pgx.StrictNamedArgs{"relay": l.relay})
		}
		if err := l.atOnce(ctx, true, &b); err != nil {
			return nil, fmt.Errorf("settle %d messages: %w", len(settlements), err)
		}
		todo = again
	}
	return statuses, nil
}

// parted tells plain successes from the rest.
func parted(all []Settlement) (sent, other []int) {
	for i := range all {
		if all[i].plain() {
			sent = append(sent, i)
		} else {
			other = append(other, i)
		}
	}
	return sent, other
}

// queueSent adds the statement for plain successes. settled gets "" for those that it
// did not change: why not is for the general statement to tell.
func queueSent(b *pgx.Batch, all []Settlement, of []int, settled func(i int, s Status)) {
	if len(of) == 0 {
		return
	}
	b.Queue(queries.messagesSent, sentArgs(all, of)).QueryRow(func(row pgx.Row) error {
		var numbers []int64 // from 1
		if err := row.Scan(&numbers, nil); err != nil {
			return err
		}
		changed := make([]bool, len(of))
		for _, n := range numbers {
			changed[n-1] = true
		}
		for k, i := range of {
			if changed[k] {
				settled(i, Sent)
			} else {
				settled(i, "")
			}
		}
		return nil
	})
}

// queueSettlements adds the statement for any of all that todo says. settled gets what
// it returns, "" for one that is to be tried again. crashed is 1 when they are taken
// from a relay that died.
func queueSettlements(b *pgx.Batch, all []Settlement, todo []int, crashed int, settled func(i int, s Status)) {
	if len(todo) == 0 {
		return
	}
	b.Queue(queries.messagesSettle, settleArgs(all, todo, crashed)).QueryRow(func(row pgx.Row) error {
		var numbers []int64 // from 1
		var statuses []Status
		if err := row.Scan(&numbers, &statuses, nil, nil); err != nil {
			return err
		}
		for k, n := range numbers {
			settled(todo[n-1], statuses[k])
		}
		return nil
	})
}

func sentArgs(all []Settlement, of []int) pgx.StrictNamedArgs {
	k := keysAt(all, of)
	attempts, receipts, senders := make([]int16, len(of)), make([]string, len(of)), make([]string, len(of))
	for n, i := range of {
		attempts[n], receipts[n], senders[n] = small(all[i].NextAttempts), cut(all[i].Receipt, keptError), all[i].Sender
	}
	return pgx.StrictNamedArgs{"lease_ids": k.leases, "job_ids": k.jobs, "channel_ids": k.channels, "tids": k.tids, "attempts": attempts, "receipts": receipts, "senders": senders}
}

func keysAt(all []Settlement, of []int) keys {
	k := newKeys(len(of))
	for n, i := range of {
		k.set(n, &all[i].Claimed)
	}
	return k
}

func settleArgs(all []Settlement, of []int, crashed int) pgx.StrictNamedArgs {
	k := keysAt(all, of)
	var (
		statuses                           = make([]string, len(of))
		reasons, receipts, texts           = make([]string, len(of)), make([]string, len(of)), make([]string, len(of))
		untouched                          = make([]bool, len(of))
		steps, attempts, crashes           = make([]int16, len(of)), make([]int16, len(of)), make([]int16, len(of))
		waits                              = make([]float64, len(of))
		takers, revisions                  = make([]string, len(of)), make([]int16, len(of))
		recordOf, invalidOf                = []int64{}, []int64{}
		recordSteps, recordAttempts        = []int16{}, []int16{}
		media, senders, outcomes           = []string{}, []string{}, []string{}
		recordReasons, codes, recordErrors = []string{}, []string{}, []string{}
		invalidMedia, invalidSenders       = []string{}, []string{}
		invalidErrors, invalidSHA          = []string{}, [][]byte{}
	)
	for n, i := range of {
		s := &all[i]
		statuses[n], reasons[n], untouched[n] = string(s.To), string(s.Reason), s.Untouched
		steps[n], attempts[n], crashes[n] = small(s.NextStep), small(s.NextAttempts), small(crashed)
		waits[n], receipts[n], texts[n] = max(0, s.Wait).Seconds(), cut(s.Receipt, keptError), cut(s.Error, keptError)
		takers[n], revisions[n] = s.Sender, small(s.Revision)
		if s.Untouched {
			crashes[n] = 0
		}
		for _, a := range s.Record {
			recordOf, recordSteps, recordAttempts = append(recordOf, int64(n+1)), append(recordSteps, small(a.Step)), append(recordAttempts, small(a.Attempt))
			media, senders, outcomes = append(media, a.Medium), append(senders, a.Sender), append(outcomes, string(a.Outcome))
			recordReasons, codes, recordErrors = append(recordReasons, string(a.Reason)), append(codes, cut(a.Code, keptCode)), append(recordErrors, cut(a.Error, keptError))
		}
		if s.InvalidAddress != nil {
			last := s.Record[len(s.Record)-1]
			invalidOf, invalidMedia, invalidSHA = append(invalidOf, int64(n+1)), append(invalidMedia, last.Medium), append(invalidSHA, s.InvalidAddress)
			invalidSenders, invalidErrors = append(invalidSenders, last.Sender), append(invalidErrors, cut(last.Error, keptError))
		}
	}
	return pgx.StrictNamedArgs{
		"lease_ids": k.leases, "job_ids": k.jobs, "channel_ids": k.channels, "take": crashed != 0,
		"statuses": statuses, "reasons": reasons, "untouched": untouched, "steps": steps, "attempts": attempts,
		"crashed": crashes, "waits": waits, "receipts": receipts, "errors": texts, "senders": takers, "revisions": revisions,
		"record_of": recordOf, "record_steps": recordSteps, "record_attempts": recordAttempts, "record_media": media, "record_senders": senders,
		"record_outcomes": outcomes, "record_reasons": recordReasons, "record_codes": codes, "record_errors": recordErrors,
		"invalid_of": invalidOf, "invalid_media": invalidMedia, "invalid_sha256": invalidSHA, "invalid_senders": invalidSenders, "invalid_errors": invalidErrors,
	}
}

// small is n as the database keeps counters.
func small(n int) int16 { return int16(min(max(n, 0), 32767)) }

// cut returns at most n characters of a text, as the database can keep it.
func cut(s string, n int) string {
	if len(s) <= n && utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 {
		return s
	}
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "�"), "\x00", "")
	count := 0
	for i := range s {
		if count == n {
			return s[:i]
		}
		count++
	}
	return s
}
