package relay

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/outbox"
)

const (
	// leadAtMost is the longest time for which a dead dispatcher keeps other dispatchers from pushing;
	// a shorter lease of its relay shortens it.
	leadAtMost = 30 * time.Second
	// onePass is the minimum time of a search for due messages, whatever else there is to do.
	onePass = 200 * time.Millisecond
	// gapsInARow is the number of gaps after which a carrier refuses a push: the first ones may be another dispatcher's pushes.
	gapsInARow = 10
)

// dispatcher queues due messages and pushes their ids to a carrier. One dispatcher per database does so
// at a time, in the relay that leads.
//
//	find, as the PostgreSQL transport ─► QUEUED by push n, COMMIT ─► Push n ─► done
//	     ▲                                                             │ full: wait until there is room
//	     │ PENDING, swept                                              │ gap: again from the first push that
//	     └──────── the carrier has no copy, and the push is old ◄──────┘      the carrier does not know
//
// Invariants:
//
//   - A push is QUEUED durably before its ids are pushed, and one dispatcher has at most one such push of a queue
//     outstanding. A crash before the COMMIT leaves its messages PENDING, a crash after it a number that the carrier
//     does not have.
//   - The ids of a push are those of the messages that are still QUEUED by it, so that a push can be repeated at any
//     time.
//   - Inside reveals losses of the carrier. It is called at least every ten seconds and after every error and gap: for a
//     lower number, pushes are repeated from there; for another epoch or a higher number, in a new epoch, from the
//     earliest push with a QUEUED message.
//   - The sweep finds single lost copies: messages QUEUED by a push that is older than RequeueAfter and than every copy
//     in the carrier. A long backlog is not pushed again, because its copies are inside. Swept messages are PENDING and
//     are pushed like any other.
//   - Two dispatchers that both believe they lead make pushes with different numbers. The push out of turn is a gap; both
//     dispatchers then push the recorded pushes, once.
//   - A dispatcher that cannot use the carrier for a sixth of the lead's time gives up the lead. It competes again when
//     the carrier is usable, or, if Inside succeeds all the while, after other dispatchers have had time to take the lead.
type dispatcher struct {
	DispatchOptions
	walk    *postgres
	queues  []*pushing // empty while another relay leads
	led     time.Time  // when the lead was taken or renewed
	leads   bool       // it has requested the lead since it last gave it up
	failing time.Time  // since when the carrier fails; zero while it works
	swept   time.Time
	made    *pushing       // queue and number of the last push
	gaps    map[string]int // since the last push that was done, by queue
	number  int64
	changed chan struct{} // size 1: there may be something to push, or to lead
	hints   atomic.Int64  // that arrived
}

// DispatchOptions configures Dispatch.
type DispatchOptions struct {
	Ledger *outbox.Ledger // under a name that no other dispatcher uses
	To     outbox.Carrier
	Config func() Config // Batch, PollInterval, Lease, StatementTimeout
	// RequeueAfter is the age after which a push without a copy in the carrier is pushed again.
	RequeueAfter time.Duration
	Log          zerolog.Logger

	name    string
	hears   func() bool // hints
	at      func(ctx context.Context, point string) error
	blocked func() bool // messages may not leave the database
	// rebuilt is called for a queue that has lost its memory.
	rebuilt func(outbox.Queue)
}

// pushing is the progress of the pushes of one queue.
type pushing struct {
	outbox.PushQueue
	handed int64 // the carrier has all pushes up to this number
	known  bool  // handed was confirmed by the carrier
	full   bool
}

// Dispatch pushes the ids of due messages to a carrier until ctx ends, as each relay with a carrier
// does, in turn with other dispatchers of the database.
func Dispatch(ctx context.Context, o DispatchOptions) { newDispatcher(o).run(ctx) }

func newDispatcher(o DispatchOptions) *dispatcher {
	if o.at == nil { // outside of a relay
		o.blocked = func() bool { return false }
		o.hears, o.at, o.rebuilt = func() bool { return false }, func(context.Context, string) error { return nil }, func(outbox.Queue) {}
	}
	d := &dispatcher{DispatchOptions: o, changed: make(chan struct{}, 1), gaps: make(map[string]int)}
	d.walk = newPostgres(postgresOptions{
		ledger: o.Ledger, claims: d, config: o.Config, rest: restAtMost, hears: o.hears, hints: &d.hints,
		resting: func(bool) {},
		act:     d.withTimeout,
		pass:    func() error { return nil },
		name:    o.name, transport: o.To.String(), log: o.Log,
	})
	return d
}

// withTimeout executes a statement with a timeout, regardless of stops.
func (d *dispatcher) withTimeout(act func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), d.Config().StatementTimeout)
	defer cancel()
	return act(ctx)
}

// leadFor is how long the lead lasts without a renewal.
func (d *dispatcher) leadFor() time.Duration { return min(leadAtMost, d.Config().Lease) }

// turn is the interval at which a dispatcher requests the lead, and the time for which a leader
// tolerates a failing carrier.
func (d *dispatcher) turn() time.Duration { return d.leadFor() / 6 }

// run pushes until ctx ends. A failure is retried after at most one second, or by another relay if this
// one cannot reach the carrier.
func (d *dispatcher) run(ctx context.Context) {
	failures, resigned := 0, false
	for ctx.Err() == nil {
		err := d.step(ctx)
		if err == nil || ctx.Err() != nil {
			failures, resigned, d.failing = 0, false, time.Time{}
			continue
		}
		d.doubt()
		away := errors.As(err, new(carrierError))
		if failures++; failures == 1 {
			text := "the database does not record pushes for the carrier"
			if away {
				text = "messages are not handed to the carrier"
			}
			d.Log.WithLevel(levelOf(err)).Err(err).Str("worker_id", d.name).Str("transport", d.To.String()).Msg(text)
		}
		if away && d.outOfPatience() {
			if d.stopLeading(); !resigned {
				resigned = true
				d.Log.Warn().Str("worker_id", d.name).Str("transport", d.To.String()).Msg("the carrier fails for this relay; another relay may push")
			}
			d.standBack(ctx)
			continue
		}
		_ = lifecycle.Pause(ctx, min(50*time.Millisecond<<min(failures, 5), time.Second))
	}
	d.stopLeading()
}

// outOfPatience records a failure of the carrier and reports whether the lead should pass to a relay
// that may reach it.
func (d *dispatcher) outOfPatience() bool {
	if d.failing.IsZero() {
		d.failing = time.Now()
	}
	return time.Since(d.failing) >= d.turn()
}

// stopLeading lets another relay lead at once, whether this one leads or has only requested the lead.
func (d *dispatcher) stopLeading() {
	if !d.leads {
		return
	}
	if err := d.withTimeout(d.Ledger.StopLeading); err != nil {
		d.Log.Debug().Err(err).Str("worker_id", d.name).Msg("cannot hand over the lead now; another relay leads when it expires")
		return
	}
	d.leads = false
}

// standBack waits until the carrier is reachable again. If the carrier answered all the while, it has
// refused a push: then the wait is two turns of the other dispatchers.
func (d *dispatcher) standBack(ctx context.Context) {
	began, unreachable := time.Now(), false
	for lifecycle.Pause(ctx, min(time.Second, d.turn())) == nil {
		d.walk.forgetSettled()
		switch err := d.reach(ctx); {
		case err != nil:
			unreachable = true
		case unreachable, time.Since(began) >= 2*d.turn():
			d.failing = time.Time{}
			return
		}
	}
}

// reach calls Inside for both queues.
func (d *dispatcher) reach(ctx context.Context) error {
	for _, name := range []outbox.Queue{outbox.Activities, outbox.Bulk} {
		if _, err := d.To.Inside(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// step makes at most one new push.
func (d *dispatcher) step(ctx context.Context) error {
	if d.blocked() {
		d.stopLeading()
		d.doubt()
	} else if err := d.lead(); err != nil {
		return err
	}
	if len(d.queues) == 0 {
		d.follow(ctx)
		return nil
	}
	for _, q := range d.queues {
		if err := d.handOver(ctx, q); err != nil {
			return err
		}
	}
	if err := d.sweep(ctx); err != nil {
		return err
	}
	return d.dispatch(ctx)
}

// lead takes the lead, or renews it after a third of its time.
func (d *dispatcher) lead() error {
	if len(d.queues) > 0 && time.Since(d.led) < d.leadFor()/3 {
		return nil
	}
	began := time.Now()
	var queues []outbox.PushQueue
	d.leads = true
	err := d.withTimeout(func(ctx context.Context) (err error) {
		queues, err = d.Ledger.Lead(ctx, d.To.String(), d.leadFor())
		return err
	})
	if err != nil {
		return err
	}
	d.queues, d.led, d.leads = nil, began, len(queues) > 0
	for _, q := range queues {
		d.queues = append(d.queues, &pushing{PushQueue: q})
	}
	return nil
}

// follow waits until it may request the lead. The leader marks delivered jobs.
func (d *dispatcher) follow(ctx context.Context) {
	d.walk.forgetSettled()
	timer := time.NewTimer(d.turn())
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-d.changed:
	}
}

// doubt schedules a comparison of the database and the carrier.
func (d *dispatcher) doubt() { d.queues = nil }

// handOver pushes the pushes that are QUEUED and not in the carrier.
func (d *dispatcher) handOver(ctx context.Context, q *pushing) error {
	if !q.known {
		if err := d.compare(ctx, q); err != nil {
			return err
		}
	}
	for q.full = false; q.known && !q.full && q.handed < q.Last && ctx.Err() == nil; {
		var keys []outbox.Key
		var lane string
		err := d.withTimeout(func(ctx context.Context) (err error) {
			keys, lane, err = d.Ledger.QueuedBy(ctx, q.PushQueue, q.handed+1)
			return err
		})
		if err != nil {
			return err
		}
		if err := d.push(ctx, q, lane, keys); err != nil {
			return err
		}
	}
	return nil
}

// compare reads the carrier's memory and begins a new epoch if it has lost the present one, or knows
// pushes that the database has lost.
func (d *dispatcher) compare(ctx context.Context, q *pushing) error {
	inside, err := d.To.Inside(ctx, outbox.Queue(q.Name))
	if err != nil {
		return carrierError{err}
	}
	q.known, q.handed = true, q.First-1
	switch {
	case inside.Epoch == q.Epoch && inside.Last <= q.Last:
		q.handed = inside.Last
		return nil
	case inside.Epoch != q.Epoch && q.Last < q.First:
		return nil // no push of this epoch was made
	}
	var renewed bool
	err = d.withTimeout(func(ctx context.Context) (err error) {
		q.PushQueue, renewed, err = d.Ledger.RenewQueue(ctx, q.PushQueue)
		return err
	})
	if err != nil {
		return err
	}
	if !renewed {
		d.doubt()
		q.known = false
		return nil
	}
	q.handed = q.First - 1
	d.rebuilt(outbox.Queue(q.Name))
	d.Log.Warn().Str("worker_id", d.name).Str("transport", d.To.String()).Str("detail", q.Name).Int64("rows",
		q.Last-q.First+1).Msg("the carrier has lost its memory; recorded pushes are made again")
	return nil
}

// push makes the next push of a queue.
func (d *dispatcher) push(ctx context.Context, q *pushing, lane string, keys []outbox.Key) error {
	if err := d.at(ctx, pointPush); err != nil {
		return err
	}
	answer, err := d.To.Push(ctx,
		outbox.PushGroup{Queue: outbox.Queue(q.Name), Epoch: q.Epoch, First: q.First, Number: q.handed + 1, Lane: lane, Keys: keys})
	if err != nil {
		return carrierError{err}
	}
	switch answer {
	case outbox.PushDone:
		q.handed++
		delete(d.gaps, q.Name)
	case outbox.PushGap:
		q.known = false
		if d.gaps[q.Name]++; d.gaps[q.Name] > gapsInARow {
			return carrierError{fmt.Errorf("the carrier refuses push %d of the queue %s, and says that it has all earlier ones", q.handed+1, q.Name)}
		}
	case outbox.PushFull:
		q.full = true
	}
	return nil
}

// dispatch makes the next push if messages are due soon.
func (d *dispatcher) dispatch(ctx context.Context) error {
	if len(d.queues) == 0 {
		return nil
	}
	limit := time.Until(d.led.Add(d.leadFor() / 3))
	for _, q := range d.queues {
		if q.full || !q.known {
			limit = min(limit, d.Config().PollInterval)
		}
	}
	limit = max(min(limit, time.Until(d.swept.Add(d.sweepInterval()))), onePass)
	until, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	d.made = nil
	found, err := d.walk.Receive(until, d)
	if q := d.made; len(found) > 0 && q != nil {
		if next := d.number == q.Last+1; !next || q.handed != q.Last {
			q.Last, q.known = d.number, false // another dispatcher believes that it leads
			return nil
		}
		q.Last = d.number
		keys := make([]outbox.Key, len(found))
		for i := range found {
			keys[i] = found[i].Key
		}
		return d.push(ctx, q, found[0].Lane, keys)
	}
	if until.Err() != nil {
		return nil
	}
	return err
}

// sweepInterval is the interval of searches for copies that the carrier has lost.
func (d *dispatcher) sweepInterval() time.Duration { return d.RequeueAfter / 10 }

// sweep returns messages to PENDING whose copies the carrier has lost.
func (d *dispatcher) sweep(ctx context.Context) error {
	if time.Since(d.swept) < d.sweepInterval() {
		return nil
	}
	defer func() { d.swept = time.Now() }() // even a slow sweep leaves time for pushes
	for _, q := range d.queues {
		inside, err := d.To.Inside(ctx, outbox.Queue(q.Name))
		if err != nil {
			return carrierError{err}
		}
		if q.handed < q.First {
			continue // no push of this epoch was made
		}
		if q.known = q.known && inside.Epoch == q.Epoch && inside.Last == q.handed; !q.known {
			continue // its lost pushes are made again
		}
		swept := 0
		for n := 1; n > 0 && ctx.Err() == nil; swept += n {
			err := d.withTimeout(func(ctx context.Context) (err error) {
				n, err = d.Ledger.Unqueue(ctx, q.PushQueue, inside.Oldest, d.RequeueAfter, outbox.MaxBatch)
				return err
			})
			if err != nil {
				return err
			}
		}
		if swept > 0 {
			d.walk.fresh()
			d.Log.Warn().Int("rows", swept).Str("worker_id", d.name).Str("transport", d.To.String()).Str("detail",
				q.Name).Msg("the carrier has lost messages; they are pushed again")
		}
		if err := d.withTimeout(func(ctx context.Context) error { return d.Ledger.ForgetPushes(ctx, q.PushQueue, d.RequeueAfter) }); err != nil {
			return err
		}
	}
	return nil
}

// wake starts a search for due messages.
func (d *dispatcher) wake() {
	d.hints.Add(1)
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

// queue returns the queue that can be pushed to, or nil.
func (d *dispatcher) queue(name outbox.Queue) *pushing {
	for _, q := range d.queues {
		if q.Name == string(name) && q.known && !q.full {
			return q
		}
	}
	return nil
}

// ClaimJob implements claims: it makes a push.
func (d *dispatcher) ClaimJob(ctx context.Context, jobID int64, after outbox.Position, limit int,
	tries outbox.Tries) ([]outbox.Claimed, outbox.Position, error) {
	q := d.queue(outbox.Bulk)
	if q == nil {
		return nil, after, nil
	}
	keys, number, next, err := d.Ledger.QueueJob(ctx, q.PushQueue, jobID, after, limit, tries)
	return d.pushes(q, number, keys), next, err
}

// ClaimActivities implements claims.
func (d *dispatcher) ClaimActivities(ctx context.Context, after outbox.Position, within time.Duration, limit int,
	tries outbox.Tries) ([]outbox.Claimed, outbox.Position, error) {
	q := d.queue(outbox.Activities)
	if q == nil {
		return nil, after, nil
	}
	keys, number, next, err := d.Ledger.QueueActivities(ctx, q.PushQueue, after, within, limit, tries)
	return d.pushes(q, number, keys), next, err
}

// pushes records the push that was made.
func (d *dispatcher) pushes(q *pushing, number int64, keys []outbox.Key) []outbox.Claimed {
	found := make([]outbox.Claimed, len(keys))
	for i, k := range keys {
		found[i].Key = k
	}
	d.made, d.number = q, number
	return found
}

// Activities implements Credits: the size of one push.
func (d *dispatcher) Activities() int { return d.room(outbox.Activities) }

// Bulk implements Credits.
func (d *dispatcher) Bulk() int { return d.room(outbox.Bulk) }

// Job implements Credits.
func (d *dispatcher) Job(int64, string, int) int { return d.room(outbox.Bulk) }

func (d *dispatcher) room(name outbox.Queue) int {
	if d.queue(name) == nil {
		return 0
	}
	return d.Config().Batch
}

// Idle implements Credits: messages in flight belong to the relays.
func (*dispatcher) Idle() bool { return true }

// Changed implements Credits.
func (d *dispatcher) Changed() <-chan struct{} { return d.changed }

// carrierError marks an error of the carrier, not of the database.
type carrierError struct{ error }

func (e carrierError) Unwrap() error { return e.error }

// claimError marks an error of the database that a carrier's Receive returns.
type claimError struct{ error }

func (e claimError) Unwrap() error { return e.error }
