package relay

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// batcher collects outcomes while earlier ones are being committed, and records them together: group
// commit.
type batcher struct {
	mu     sync.Mutex
	open   []outbox.Settlement
	taken  int                 // outcomes that are being committed
	spare  []outbox.Settlement // empty, what open is next
	leases []int64             // without remaining messages, to be deleted
	closed bool
	woken  chan struct{} // size settlers

	parked  int       // outcomes of messages that other sessions have locked; taken contains them, too
	skipped time.Time // until then, settlements do not wait for locked messages

	// receipts with a known result, and whether it is recorded: a receipt may become due for another
	// read before the result of the first is recorded.
	known map[outbox.Key]bool
}

const (
	// settlers is the number of concurrent COMMITs of outcomes.
	settlers = 2
	// mostSettled is the maximum number of outcomes in one transaction.
	mostSettled = outbox.MaxBatch
	// parkedFor is the pause before a message that another session has locked is settled again.
	parkedFor = time.Second
)

func newBatcher() *batcher {
	return &batcher{woken: make(chan struct{}, settlers), known: make(map[outbox.Key]bool)}
}

// forget is called before each search for due receipts, which does not find recorded ones.
func (b *batcher) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.known, func(_ outbox.Key, recorded bool) bool { return recorded })
}

// addReceipt records the result of a receipt, unless an earlier search has returned one.
func (b *batcher) addReceipt(s outbox.Settlement) {
	b.mu.Lock()
	_, twice := b.known[s.Key]
	if !twice {
		b.known[s.Key] = false
	}
	b.mu.Unlock()
	if !twice {
		b.add(s)
	}
}

// add queues outcomes for recording.
func (b *batcher) add(settlements ...outbox.Settlement) {
	if len(settlements) == 0 {
		return
	}
	b.mu.Lock()
	b.open = append(b.open, settlements...)
	b.mu.Unlock()
	b.wake()
}

// endLeases queues leases for deletion.
func (b *batcher) endLeases(leases []int64) {
	if len(leases) == 0 {
		return
	}
	b.mu.Lock()
	b.leases = append(b.leases, leases...)
	b.mu.Unlock()
	b.wake()
}

// close ends the settlers when all outcomes are settled.
func (b *batcher) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	for range settlers {
		b.wake()
	}
}

func (b *batcher) wake() {
	select {
	case b.woken <- struct{}{}:
	default:
	}
}

// next removes the collected outcomes.
func (b *batcher) next() (batch []outbox.Settlement, leases []int64, closed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch n := len(b.open); {
	case n == 0:
	case n <= mostSettled:
		batch, b.open, b.spare = b.open, b.spare, nil
	default:
		batch, b.open = b.open[:mostSettled:mostSettled], b.open[mostSettled:]
		b.wake()
	}
	leases, b.leases = b.leases, nil
	b.taken += len(batch)
	return batch, leases, b.closed && b.parked == 0
}

// park settles outcomes again after a pause, so that they delay no others.
func (b *batcher) park(locked []outbox.Settlement) {
	b.mu.Lock()
	b.parked, b.skipped = b.parked+len(locked), time.Now().Add(2*parkedFor)
	b.mu.Unlock()
	time.AfterFunc(parkedFor, func() {
		b.mu.Lock()
		b.open = append(b.open, locked...)
		b.parked, b.taken = b.parked-len(locked), b.taken-len(locked)
		b.mu.Unlock()
		for range settlers {
			b.wake()
		}
	})
}

// skips reports whether messages were locked lately.
func (b *batcher) skips() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Now().Before(b.skipped)
}

// settled counts outcomes that are finished.
func (b *batcher) settled(batch []outbox.Settlement) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken -= len(batch)
	for i := range batch {
		if batch[i].LeaseID == 0 {
			b.known[batch[i].Key] = true
		}
	}
}

// quiet reports whether no outcome waits.
func (b *batcher) quiet() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.open)+b.taken == 0
}

// reuse takes back the memory of a batch that is no longer read.
func (b *batcher) reuse(batch []outbox.Settlement) {
	clear(batch)
	b.mu.Lock()
	if cap(batch) > cap(b.spare) {
		b.spare = batch[:0]
	}
	b.mu.Unlock()
}

// settleAll settles until the batcher is closed and empty, or ctx ends.
func (r *Relay) settleAll(ctx context.Context) {
	for {
		batch, leases, closed := r.outcomes.next()
		switch {
		case len(batch)+len(leases) > 0:
			r.settle(ctx, batch, leases)
			r.outcomes.reuse(batch)
		case closed:
			return
		default:
			select {
			case <-r.outcomes.woken:
			case <-ctx.Done():
				return
			}
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// settle records one batch and retries until the database accepts it: a repetition after an unknown
// COMMIT records nothing twice.
func (r *Relay) settle(ctx context.Context, batch []outbox.Settlement, leases []int64) {
	messages := claimedOf(batch)
	leases = append(leases, r.inflight.finishing(messages)...)
	var statuses []outbox.Status
	var locked *outbox.LockedError
	settle := r.ledger.Settle
	if r.outcomes.skips() {
		settle = r.ledger.SettleUnlocked
	}
	began := time.Now()
	err := r.retry(ctx, "outcomes are not settled yet", func(ctx context.Context) (err error) {
		if err = r.at(ctx, pointSettle); err != nil {
			return err
		}
		locked = nil
		if statuses, err = settle(ctx, batch, leases); err != nil && !errors.As(err, &locked) {
			return err
		}
		return r.at(ctx, pointSettled)
	})
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return // the leases run out, and the outcomes are unknown
	case len(batch) > 1:
		// The database will never accept one of them; the others must not be affected.
		half := len(batch) / 2
		r.settle(ctx, batch[:half], nil)
		r.settle(ctx, batch[half:], leases)
		return
	default:
		if len(batch) == 1 {
			if plain, had := withoutTexts(batch[0]); had {
				r.settle(ctx, []outbox.Settlement{plain}, leases)
				return
			}
		}
		ev := r.log.Error().Err(err)
		if len(batch) == 1 {
			ev = ev.Int64("job_id", batch[0].JobID).Int64("channel_id", batch[0].ChannelID)
		}
		ev.Msg("the database rejects an outcome")
	}
	if locked != nil {
		var later []outbox.Settlement
		batch, statuses, later = recorded(batch, statuses, locked.Settlements)
		r.log.Debug().Int("rows", len(later)).Msg("messages are locked by other sessions, and are settled later")
		messages, leases = claimedOf(batch), without(leases, leasesOf(later))
		r.inflight.park(claimedOf(later), 4*r.settings().MaxInFlight)
		r.outcomes.park(later)
	}
	r.log.Debug().Int("rows", len(batch)).Int64("elapsed_ms", time.Since(began).Milliseconds()).Msg("settled messages")
	if slices.ContainsFunc(batch, func(s outbox.Settlement) bool { return s.To == outbox.Processing }) {
		r.expectReceipts()
	}
	for i, status := range statuses {
		r.died(&batch[i], status)
	}
	r.tally.settled(batch, statuses)
	r.observe(batch, statuses)
	r.inform(ctx, batch, statuses)
	r.outcomes.settled(batch)
	r.outcomes.endLeases(without(r.inflight.drop(messages), leases))
	r.inflight.ended(leases)
}

// recorded separates the outcomes with these ascending indexes, which are not recorded, from the others.
func recorded(batch []outbox.Settlement, statuses []outbox.Status, locked []int) (done []outbox.Settlement, as []outbox.Status,
	later []outbox.Settlement) {
	for i, s := range statuses {
		if _, is := slices.BinarySearch(locked, i); is {
			later = append(later, batch[i])
		} else {
			done, as = append(done, batch[i]), append(as, s)
		}
	}
	return done, as, later
}

// leasesOf returns the leases of outcomes.
func leasesOf(batch []outbox.Settlement) (ids []int64) {
	for i := range batch {
		ids = append(ids, batch[i].LeaseID)
	}
	return ids
}

// DeadLetter is the log message for each new dead letter.
const DeadLetter = "dead letter"

// died logs a dead letter: its identifiers, but never an address or a provider's text.
func (r *Relay) died(s *outbox.Settlement, now outbox.Status) {
	if now != outbox.Dead || s.To != outbox.Dead {
		return
	}
	r.log.Warn().Int64("job_id", s.JobID).Int64("channel_id", s.ChannelID).Func(func(line *zerolog.Event) {
		if n := len(s.Record); n > 0 {
			line.Str("medium", s.Record[n-1].Medium)
			if s.Record[n-1].Sender != "" { // else nobody was called
				line.Str("sender", s.Record[n-1].Sender)
			}
		}
	}).Str("reason", string(s.Reason)).Msg(DeadLetter)
}

// withoutTexts returns the outcome without the provider's texts, which the database may be unable to
// store, and whether it had any. The receipt of an awaited message stays: it is needed to settle the
// message.
func withoutTexts(s outbox.Settlement) (plain outbox.Settlement, had bool) {
	had = s.Error != ""
	s.Error = ""
	if s.Receipt != "" && s.LeaseID != 0 && s.To != outbox.Processing {
		s.Receipt, had = "", true
	}
	s.Record = slices.Clone(s.Record)
	for i := range s.Record {
		a := &s.Record[i]
		had = had || a.Code+a.Error != ""
		a.Code, a.Error = "", ""
	}
	return s, had
}

// claimedOf returns the messages of a batch.
func claimedOf(batch []outbox.Settlement) iter.Seq[*outbox.Claimed] {
	return func(yield func(*outbox.Claimed) bool) {
		for i := range batch {
			if !yield(&batch[i].Claimed) {
				return
			}
		}
	}
}

// inform reports recorded outcomes to the transport.
func (r *Relay) inform(ctx context.Context, batch []outbox.Settlement, statuses []outbox.Status) {
	outcomes := make([]outbox.Settled, len(statuses))
	for i, status := range statuses {
		outcomes[i] = outbox.Settled{Key: batch[i].Key, Status: status, Reason: batch[i].Reason}
		if status == outbox.Pending && !batch[i].Untouched {
			outcomes[i].Wait = batch[i].Wait
		}
	}
	if err := r.transport.Settled(ctx, outcomes); err != nil && ctx.Err() == nil {
		r.unheard.Do(func() {
			r.log.Warn().Err(err).Str("worker_id", r.name).Str("transport", r.transport.String()).Msg("the transport did not accept recorded outcomes")
		})
	}
}

// without returns the ids that are not in done.
func without(ids, done []int64) []int64 {
	return slices.DeleteFunc(slices.Clone(ids), func(id int64) bool { return slices.Contains(done, id) })
}

// retry repeats an idempotent function, with a timeout each, until it succeeds, ctx ends, or the
// database rejects it permanently.
func (r *Relay) retry(ctx context.Context, what string, act func(context.Context) error) error {
	for failures := 0; ; failures++ {
		began := time.Now()
		err := r.withTimeout(ctx, act)
		spoken := ctx.Err() == nil && r.outage.Observe(began, err)
		if err == nil || ctx.Err() != nil || refused(err, failures) {
			return err
		}
		if !spoken && failures%50 == 0 {
			r.log.WithLevel(levelOf(err)).Err(err).Str("worker_id", r.name).Str("transport", r.transport.String()).Msg(what)
		}
		pause := min(20*time.Millisecond<<min(failures, 6), time.Second)
		if lifecycle.Pause(ctx, time.Duration((0.5+0.5*r.random())*float64(pause))) != nil {
			return err
		}
	}
}

// withTimeout calls a function with the statement timeout, and names the timeout in its error.
func (r *Relay) withTimeout(ctx context.Context, act func(context.Context) error) error {
	limit := r.settings().StatementTimeout
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := act(limited)
	if err != nil && errors.Is(limited.Err(), context.DeadlineExceeded) && ctx.Err() == nil {
		return fmt.Errorf("statement took longer than delivery.statement_timeout (%s): %w", limit, err)
	}
	return err
}

// refused reports an error that a repetition will meet again: the request is wrong, not the moment. An
// error that comes neither from the server nor from the connection counts after some repetitions.
func refused(err error, failures int) bool {
	switch class := db.ClassOf(err); {
	case class == db.Invalid, class == db.Violation:
		return true
	case class != db.Other, db.Code(err) != "", errors.Is(err, context.Canceled),
		errors.Is(err, job.ErrUnreachable), errors.Is(err, job.ErrLocked), errors.Is(err, outbox.ErrRowsLocked):
		return false
	}
	return failures >= 10
}
