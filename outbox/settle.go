package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/job"
)

const (
	// Maximum lengths of stored texts in characters, as in attempts_error_check.
	keptError = 1000
	keptCode  = 100
	// keptCount is the maximum of a stored step or number of attempts, as in messages_counts_check.
	keptCount = 10000
	// settleRounds bounds the retries for messages that another transaction has just changed, such as a
	// recall, which marks each message once.
	settleRounds = 100
	// settleWait is how long a settlement waits for messages that other sessions have locked, before it skips them.
	settleWait = 100 * time.Millisecond
)

// ErrRowsLocked reports that other sessions have locked rows of the job. Changes made before that are
// retained.
var ErrRowsLocked = db.NewError(db.KindConflict, "rows of the job are locked by other sessions")

// LockedError is the ErrRowsLocked of a settlement. These messages are in flight as before; all others are recorded.
type LockedError struct{ Settlements []int } // the indexes of those that are not recorded, ascending

// Error implements error.
func (e *LockedError) Error() string {
	return fmt.Sprintf("%v: %d of them", ErrRowsLocked, len(e.Settlements))
}

// Unwrap returns ErrRowsLocked.
func (*LockedError) Unwrap() error { return ErrRowsLocked }

// Settlement is the result to record for a message in flight.
type Settlement struct {
	// Claimed identifies the message and its owner. A zero LeaseID means that the message awaits a receipt.
	Claimed
	// To is PENDING, SENT, DEAD, CANCELLED, or PROCESSING with a Receipt.
	To     Status
	Reason Reason // required for DEAD and CANCELLED; for PENDING the reason for the wait
	// The new step and attempts; Claimed has the old ones.
	NextStep, NextAttempts int
	// Untouched returns the message to PENDING with its previous due time and reason, and ignores NextStep,
	// NextAttempts, Reason, Wait and Error. See Release.
	Untouched bool
	// Wait is the time until the next attempt or the next receipt query, from the database's present time.
	Wait time.Duration
	// Receipt is the provider's id of the message: required for PROCESSING, stored for support with SENT.
	// For a message that awaits a receipt it must be that receipt, whatever To is.
	Receipt string
	// Sender is the sender that accepted the message, stored with SENT and PROCESSING, or the sender that
	// deferred it.
	Sender string
	// Error is stored with the message. Empty stores none.
	Error string
	// Record is appended to the attempts, in order. It is empty for a plain success. If a receipt will
	// follow, its last outcome is accepted.
	Record []Attempt
	// InvalidAddress is the SHA-256 of an address that a provider reported as invalid, or nil. It is
	// recorded with the medium and sender of the last entry of Record.
	InvalidAddress []byte
}

// Release returns a message to PENDING unchanged, or to CANCELLED if it was recalled. It is for messages of
// held jobs and for a relay that stops before the call.
func Release(c Claimed) Settlement {
	return Settlement{Claimed: c, To: Pending, NextStep: c.Step, NextAttempts: c.Attempts, Untouched: true}
}

// Outcome is the result of an attempt.
type Outcome string

// The recorded outcomes.
const (
	OutcomeRetryable      Outcome = "retryable"
	OutcomePermanent      Outcome = "permanent"
	OutcomeInvalidAddress Outcome = "invalid_address"
	OutcomeUnknown        Outcome = "unknown"
	OutcomeCrashed        Outcome = "crashed"     // the relay died, or lost its lease
	OutcomeRefused        Outcome = "refused"     // no call was made: the medium was skipped
	OutcomeAccepted       Outcome = "accepted"    // awaits the receipt
	OutcomeUnconfirmed    Outcome = "unconfirmed" // no receipt arrived in time
)

// Attempt is one entry in the record of attempts.
type Attempt struct {
	Step    int
	Attempt int // of the step, from 1; 0 means that no call was made
	Medium  string
	Sender  string
	Outcome Outcome
	Reason  Reason // of a refusal
	Code    string // the provider's; at most 100 characters are stored
	Error   string // at most 1,000 characters are stored
}

// problem returns an error if the settlement is not allowed.
func (s Settlement) problem() error {
	problem := func(field, allowed string) error {
		return fmt.Errorf("settlement of message %d/%d: %s is not allowed; allowed values: %s", s.JobID, s.ChannelID, field, allowed)
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

// plain reports whether s only records that the message was sent with its job's first content.
func (s Settlement) plain() bool {
	return s.To == Sent && s.LeaseID != 0 && len(s.Record) == 0 && s.InvalidAddress == nil && s.Error == "" && s.Reason == "" &&
		s.NextStep == s.Step && s.Revision == 0
}

// Settle records the results of messages in one transaction and one round trip, and deletes the doneLeases
// that have no message in flight. It returns the new status of each message, in the order of settlements:
// CANCELLED instead of PENDING or DEAD if the message was recalled, and "" if this owner had lost the
// message and nothing was recorded. If other sessions keep messages locked, it records all others and returns
// their statuses with a LockedError.
//
// Repeat it after an error. A result that an earlier call recorded is returned and not recorded twice,
// unless another relay has claimed the message since.
func (l *Ledger) Settle(ctx context.Context, settlements []Settlement, doneLeases []int64) ([]Status, error) {
	return l.settle(ctx, settlements, doneLeases, false)
}

// SettleUnlocked is Settle without waiting for locked messages.
func (l *Ledger) SettleUnlocked(ctx context.Context, settlements []Settlement, doneLeases []int64) ([]Status, error) {
	return l.settle(ctx, settlements, doneLeases, true)
}

func (l *Ledger) settle(ctx context.Context, settlements []Settlement, doneLeases []int64, skip bool) ([]Status, error) {
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
		var b pgx.Batch
		var again []int
		settled := func(i int, s Status) {
			if statuses[i] = s; s == "" {
				again = append(again, i)
			}
		}
		if round == 0 && !skip {
			sent, other := parted(settlements)
			queueSent(&b, settlements, sent, settled)
			queueSettlements(&b, settlements, other, 0, false, settled)
		} else {
			queueSettlements(&b, settlements, todo, 0, skip, settled)
		}
		if len(doneLeases) > 0 {
			b.Queue(queries.leasesEnd, pgx.StrictNamedArgs{"ids": doneLeases})
		}
		if len(todo) > 0 {
			b.Queue(queries.deliveriesSettled, pgx.StrictNamedArgs{"relay": l.relay})
		}
		switch err := l.within(ctx, true, l.settleWait, &b); {
		case !skip && errors.Is(err, job.ErrLocked): // nothing is recorded
			skip = true
			continue
		case err != nil:
			return nil, fmt.Errorf("settle %d messages: %w", len(settlements), err)
		}
		l.letGo(doneLeases)
		stuck := skip && len(again) == len(todo) || round == settleRounds
		if todo = again; stuck && len(todo) > 0 {
			slices.Sort(todo)
			return statuses, fmt.Errorf("settle %d messages: %w", len(settlements), &LockedError{todo})
		}
	}
	return statuses, nil
}

// parted separates plain successes from the other settlements.
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

// queueSent adds the statement for plain successes. settled gets "" for messages that it did not change; the
// general statement determines the reason.
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

// queueSettlements adds the statement for the settlements with the indexes todo. settled gets its results,
// "" for a message to retry. crashed is 1 if the messages belonged to a relay that died. skip skips locked messages.
func queueSettlements(b *pgx.Batch, all []Settlement, todo []int, crashed int, skip bool, settled func(i int, s Status)) {
	if len(todo) == 0 {
		return
	}
	args := settleArgs(all, todo, crashed)
	args["skip"] = skip
	b.Queue(queries.messagesSettle, args).QueryRow(func(row pgx.Row) error {
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
	return pgx.StrictNamedArgs{"lease_ids": k.leases, "job_ids": k.jobs, "channel_ids": k.channels, "tids": k.tids,
		"leases": different(k.leases), "attempts": attempts, "receipts": receipts, "senders": senders}
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
			recordOf, recordSteps, recordAttempts = append(recordOf, int64(n+1)), append(recordSteps, small(a.Step)),
				append(recordAttempts, small(a.Attempt))
			media, senders, outcomes = append(media, a.Medium), append(senders, a.Sender), append(outcomes, string(a.Outcome))
			recordReasons, codes, recordErrors = append(recordReasons, string(a.Reason)), append(codes, cut(a.Code, keptCode)),
				append(recordErrors, cut(a.Error, keptError))
		}
		if s.InvalidAddress != nil {
			last := s.Record[len(s.Record)-1]
			invalidOf, invalidMedia, invalidSHA = append(invalidOf, int64(n+1)), append(invalidMedia, last.Medium),
				append(invalidSHA, s.InvalidAddress)
			invalidSenders, invalidErrors = append(invalidSenders, last.Sender), append(invalidErrors, cut(last.Error, keptError))
		}
	}
	return pgx.StrictNamedArgs{
		"lease_ids": k.leases, "job_ids": k.jobs, "channel_ids": k.channels, "leases": different(k.leases), "take": crashed != 0,
		"statuses": statuses, "reasons": reasons, "untouched": untouched, "steps": steps, "attempts": attempts,
		"crashed": crashes, "waits": waits, "receipts": receipts, "errors": texts, "senders": takers, "revisions": revisions,
		"record_of": recordOf, "record_steps": recordSteps, "record_attempts": recordAttempts, "record_media": media, "record_senders": senders,
		"record_outcomes": outcomes, "record_reasons": recordReasons, "record_codes": codes, "record_errors": recordErrors,
		"invalid_of": invalidOf, "invalid_media": invalidMedia, "invalid_sha256": invalidSHA, "invalid_senders": invalidSenders,
		"invalid_errors": invalidErrors,
	}
}

// small converts n to the type of the database's counters.
func small(n int) int16 { return int16(min(max(n, 0), keptCount)) }

// cut returns at most n characters of a text, without characters that the database cannot store.
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
