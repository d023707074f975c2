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

// batcher gathers outcomes while earlier ones are being committed, and records them
// together: group commit.
type batcher struct {
	mu     sync.Mutex
	open   []outbox.Settlement
	taken  int                 // outcomes that are being committed
	spare  []outbox.Settlement // empty, what open is next
	leases []int64             // of which nothing is left, to be deleted
	closed bool
	woken  chan struct{} // size settlers

	// Of receipts, those whose result is known, and whether that is done with: one may be
	// due for a look again before the first look's result is recorded.
	known map[outbox.Key]bool
}

const (
	// settlers is how many COMMITs of outcomes may be under way at once.
	settlers = 2
	// mostSettled is how many outcomes one transaction takes.
	mostSettled = outbox.MaxBatch
)

func newBatcher() *batcher {
	return &batcher{woken: make(chan struct{}, settlers), known: make(map[outbox.Key]bool)}
}

// forget is called before each search for due receipts: the search finds no more what is
// recorded.
func (b *batcher) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.known, func(_ outbox.Key, recorded bool) bool { return recorded })
}

// learn has the result of a receipt recorded, unless an earlier search has brought one.
func (b *batcher) learn(s outbox.Settlement) {
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

// add has outcomes recorded. It does not wait for that.
func (b *batcher) add(settlements ...outbox.Settlement) {
	if len(settlements) == 0 {
		return
	}
	b.mu.Lock()
	b.open = append(b.open, settlements...)
	b.mu.Unlock()
	b.wake()
}

// over has leases deleted.
func (b *batcher) over(leases []int64) {
	if len(leases) == 0 {
		return
	}
	b.mu.Lock()
	b.leases = append(b.leases, leases...)
	b.mu.Unlock()
	b.wake()
}

// close lets the settlers end once all is settled.
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

// next takes what has gathered.
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
	return batch, leases, b.closed
}

// settled takes note of outcomes that were taken and are done with.
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

// quiet reports whether no outcome is to be recorded.
func (b *batcher) quiet() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.open)+b.taken == 0
}

// recycle takes a batch back that nobody reads any more.
func (b *batcher) recycle(batch []outbox.Settlement) {
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
			r.outcomes.recycle(batch)
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

// settle records one batch, however often the database has to be asked: a repetition
// after an unknown COMMIT records nothing twice.
func (r *Relay) settle(ctx context.Context, batch []outbox.Settlement, leases []int64) {
	messages := claimedOf(batch)
	leases = append(leases, r.inflight.finishing(messages)...)
	var statuses []outbox.Status
	began := time.Now()
	err := r.insist(ctx, "outcomes are not settled yet", func(ctx context.Context) (err error) {
		if err = r.at(ctx, pointSettle); err != nil {
			return err
		}
		if statuses, err = r.ledger.Settle(ctx, batch, leases); err != nil {
			return err
		}
		return r.at(ctx, pointSettled)
	})
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return // the leases run out, and the outcomes are unknown
	case len(batch) > 1:
		// One of them the database will never take. The others must not suffer for it.
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
		ev.Msg("the database does not take an outcome")
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
	r.outcomes.over(without(r.inflight.drop(messages), leases))
	r.inflight.ended(leases)
}

// DeadLetter is the log message of each message that has become a dead letter.
const DeadLetter = "dead letter"

// died writes a line about a message that has become a dead letter: with what it is found
// by, and never an address or what a provider said of it.
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

// withoutTexts returns the outcome without what the provider said of it, which is what a
// database may be unable to keep, and whether it had said anything. A receipt that is
// awaited stays: it is how the message is settled.
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

// claimedOf are the messages of a batch.
func claimedOf(batch []outbox.Settlement) iter.Seq[*outbox.Claimed] {
	return func(yield func(*outbox.Claimed) bool) {
		for i := range batch {
			if !yield(&batch[i].Claimed) {
				return
			}
		}
	}
}

// inform has the transport hear what was recorded.
func (r *Relay) inform(ctx context.Context, batch []outbox.Settlement, statuses []outbox.Status) {
	outcomes := make([]Settled, len(statuses))
	for i, status := range statuses {
		outcomes[i] = Settled{Key: batch[i].Key, Status: status, Reason: batch[i].Reason}
		if status == outbox.Pending && !batch[i].Untouched {
			outcomes[i].Wait = batch[i].Wait
		}
	}
	if err := r.transport.Settled(ctx, outcomes); err != nil && ctx.Err() == nil {
		r.log.Warn().Err(err).Str("worker_id", r.name).Str("transport", r.transport.String()).Msg("the transport does not take what was recorded")
	}
}

// without returns those of ids that are not in done.
func without(ids, done []int64) (left []int64) {
	have := make(map[int64]bool, len(done))
	for _, id := range done {
		have[id] = true
	}
	for _, id := range ids {
		if !have[id] {
			left = append(left, id)
		}
	}
	return left
}

// insist repeats an idempotent act with a deadline each, until it succeeds, ctx ends, or
// the database says that it will never do it.
func (r *Relay) insist(ctx context.Context, what string, act func(context.Context) error) error {
	for failures := 0; ; failures++ {
		began := time.Now()
		err := r.within(ctx, act)
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

// within gives an act its deadline, and says so when it is over.
func (r *Relay) within(ctx context.Context, act func(context.Context) error) error {
	limit := r.settings().StatementTimeout
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := act(limited)
	if err != nil && errors.Is(limited.Err(), context.DeadlineExceeded) && ctx.Err() == nil {
		return fmt.Errorf("statement took longer than delivery.statement_timeout (%s): %w", limit, err)
	}
	return err
}

// refused reports an error that the same call will meet again: what is asked for is
// wrong, not the moment. One that is neither the server's nor the connection's is
// believed after some repetitions.
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
