package relay

import (
	"context"
	"errors"
	"time"

	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/outbox"
)

const (
	// leadAtMost is how long a dispatcher that dies keeps the others from pushing, or its relay's
	// lease if that is shorter.
	leadAtMost = 30 * time.Second
	// RequeueAfter is how long a message is QUEUED before a carrier that has no copy of it is
	// believed to have lost it.
	RequeueAfter = 10 * time.Minute
	// onePass is how long it looks for what is due at least, whatever else there is to do.
	onePass = 200 * time.Millisecond
)

// dispatcher queues due messages and hands their ids to a carrier: one at a time over the
// database, in the relay that leads.
//
//	find, as the PostgreSQL transport ─► QUEUED by push n, COMMIT ─► Push n ─► done
//	     ▲                                                             │ full: no more until there is room
//	     │ PENDING, swept                                              │ gap: again from the first that
//	     └──────── the carrier has no copy, and the push is old ◄──────┘      the carrier does not know
//
// What holds there:
//
//   - A push is QUEUED durably before its ids are handed over, and at most one of a queue is
//     QUEUED and not handed over by one dispatcher. A crash before the COMMIT leaves its
//     messages PENDING, a crash after it a number that the carrier does not have.
//   - Which ids a push has is read from the messages themselves: those still QUEUED by it. So
//     it can be made again as often as need be, whatever has become of the others since.
//   - What a carrier has lost shows by Inside, which is asked at least every ten seconds and
//     after every error and gap: with a lower number its pushes are made again from there,
//     with another epoch, or a higher number, in a new epoch and from the earliest push that a
//     message is QUEUED by.
//   - A copy that is lost alone is found by the sweep: its message is QUEUED by a push that is
//     older than RequeueAfter and than all that the carrier has copies of. A long backlog is
//     not pushed again: its pushes are inside. What is swept is PENDING and pushed as any.
//   - Two dispatchers that both believe they lead make pushes of different numbers. The one
//     that comes out of turn is a gap; both then push what is recorded, once.
//   - A dispatcher that fails to use the carrier for a sixth of the lead's time gives the lead away.
//     It competes for the lead again when the carrier is usable again, or, if the carrier answers
//     Inside all the while, after the others have had time to take the lead.
type dispatcher struct {
	DispatchOptions
	walk    *postgres
	queues  []*pushing // none: another relay leads
	led     time.Time  // when it took the lead, or went on with it
	leads   bool       // it has asked for the lead since it gave it away last
	failing time.Time  // since when the carrier fails here; zero: it does not
	swept   time.Time
	made    *pushing // the queue of the push that was made last, and its number
	number  int64
	changed chan struct{} // size 1: there may be something to push, or to lead
}

// DispatchOptions are what Dispatch works with.
type DispatchOptions struct {
	Ledger *outbox.Ledger // of a relay's name that no other dispatcher has
	To     Carrier
	Config func() Config // Batch, PollInterval, Lease, StatementTimeout
	// RequeueAfter is how old a push is at least that the carrier has no copy of, before its
	// messages are pushed again.
	RequeueAfter time.Duration
	Log          zerolog.Logger

	name  string
	hears func() bool // hints
	at    func(ctx context.Context, point string) error
	waits func() bool // nothing may leave by this relay
	// rebuilt hears of a queue that has lost its memory.
	rebuilt func(Queue)
}

// pushing is how far the pushes of one queue are.
type pushing struct {
	outbox.PushQueue
	handed int64 // the carrier has all up to this one
	known  bool  // and was asked whether it has
	full   bool
}

// Dispatch hands the ids of due messages to a carrier until ctx ends, as each relay with a
// carrier does, in turn with other dispatchers of the same database.
func Dispatch(ctx context.Context, o DispatchOptions) { newDispatcher(o).run(ctx) }

func newDispatcher(o DispatchOptions) *dispatcher {
	if o.at == nil { // outside of a relay
		o.waits = func() bool { return false }
		o.hears, o.at, o.rebuilt = func() bool { return false }, func(context.Context, string) error { return nil }, func(Queue) {}
	}
	d := &dispatcher{DispatchOptions: o, changed: make(chan struct{}, 1)}
	d.walk = newPostgres(postgresOptions{
		ledger: o.Ledger, claims: d, config: o.Config, rest: restAtMost, hears: o.hears, resting: func(bool) {},
		act:  d.within,
		pass: func() error { return nil },
		name: o.name, transport: o.To.String(), log: o.Log,
	})
	return d
}

// within makes a statement, which no stop cuts short.
func (d *dispatcher) within(act func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), d.Config().StatementTimeout)
	defer cancel()
	return act(ctx)
}

// leadFor is how long it leads without going on with it.
func (d *dispatcher) leadFor() time.Duration { return min(leadAtMost, d.Config().Lease) }

// turn is how often a dispatcher that does not lead asks for the lead, and how long one that leads
// bears with a carrier that fails.
func (d *dispatcher) turn() time.Duration { return d.leadFor() / 6 }

// run pushes until ctx ends. What fails is tried again, at most a second later, and by another
// relay if this one does not reach the carrier.
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
				d.Log.Warn().Str("worker_id", d.name).Str("transport", d.To.String()).Msg("the carrier fails for this relay: another may push")
			}
			d.standBack(ctx)
			continue
		}
		_ = lifecycle.Pause(ctx, min(50*time.Millisecond<<min(failures, 5), time.Second))
	}
	d.stopLeading()
}

// outOfPatience notes that the carrier failed and reports whether it has done so for long enough
// to leave the lead to a relay that may reach it.
func (d *dispatcher) outOfPatience() bool {
	if d.failing.IsZero() {
		d.failing = time.Now()
	}
	return time.Since(d.failing) >= d.turn()
}

// stopLeading lets another relay push at once, whether this one leads or has only asked to.
func (d *dispatcher) stopLeading() {
	if !d.leads {
		return
	}
	if err := d.within(d.Ledger.StopLeading); err != nil {
		d.Log.Debug().Err(err).Str("worker_id", d.name).Msg("another relay leads later")
		return
	}
	d.leads = false
}

// standBack waits until the carrier can be reached again. A carrier that answers all the while
// has refused a push: then the wait is two turns of the others.
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

// reach asks the carrier something about both queues.
func (d *dispatcher) reach(ctx context.Context) error {
	for _, name := range []Queue{Activities, Bulk} {
		if _, err := d.To.Inside(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// step makes at most one push that is new.
func (d *dispatcher) step(ctx context.Context) error {
	if d.waits() {
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

// lead takes the lead, or goes on with it when a third of its time is over.
func (d *dispatcher) lead() error {
	if len(d.queues) > 0 && time.Since(d.led) < d.leadFor()/3 {
		return nil
	}
	began := time.Now()
	var queues []outbox.PushQueue
	d.leads = true
	err := d.within(func(ctx context.Context) (err error) {
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

// follow waits for a turn to lead. Who leads asks which jobs are delivered.
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

// doubt has it ask the database and the carrier how far they are.
func (d *dispatcher) doubt() { d.queues = nil }

// handOver pushes what is QUEUED and was not handed over.
func (d *dispatcher) handOver(ctx context.Context, q *pushing) error {
	if !q.known {
		if err := d.compare(ctx, q); err != nil {
			return err
		}
	}
	for q.full = false; q.known && !q.full && q.handed < q.Last && ctx.Err() == nil; {
		var keys []outbox.Key
		var lane string
		err := d.within(func(ctx context.Context) (err error) {
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

// compare asks the carrier how much it remembers, and begins a new epoch if it has lost the
// present one, or knows pushes that the database has lost.
func (d *dispatcher) compare(ctx context.Context, q *pushing) error {
	inside, err := d.To.Inside(ctx, Queue(q.Name))
	if err != nil {
		return carrierError{err}
	}
	q.known, q.handed = true, q.First-1
	switch {
	case inside.Epoch == q.Epoch && inside.Last <= q.Last:
		q.handed = inside.Last
		return nil
	case inside.Epoch != q.Epoch && q.Last < q.First:
		return nil // nothing of this epoch was told to anybody
	}
	var renewed bool
	err = d.within(func(ctx context.Context) (err error) {
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
	d.rebuilt(Queue(q.Name))
	d.Log.Warn().Str("worker_id", d.name).Str("transport", d.To.String()).Str("detail", q.Name).Int64("rows", q.Last-q.First+1).Msg("the carrier has lost its memory; recorded pushes are made again")
	return nil
}

// push hands over the next push of a queue.
func (d *dispatcher) push(ctx context.Context, q *pushing, lane string, keys []outbox.Key) error {
	if err := d.at(ctx, pointPush); err != nil {
		return err
	}
	answer, err := d.To.Push(ctx, Push{Queue: Queue(q.Name), Epoch: q.Epoch, First: q.First, Number: q.handed + 1, Lane: lane, Keys: keys})
	if err != nil {
		return carrierError{err}
	}
	switch answer {
	case PushDone:
		q.handed++
	case PushGap:
		q.known = false
	case PushFull:
		q.full = true
	}
	return nil
}

// dispatch makes the next push, if something is due soon.
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
	limit = max(min(limit, time.Until(d.swept.Add(d.betweenSweeps()))), onePass)
	until, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	d.made = nil
	found, err := d.walk.Receive(until, d)
	if q := d.made; len(found) > 0 && q != nil {
		if next := d.number == q.Last+1; !next || q.handed != q.Last {
			q.Last, q.known = d.number, false // another one believes that it leads
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

// betweenSweeps is how often is looked for what the carrier has lost.
func (d *dispatcher) betweenSweeps() time.Duration { return d.RequeueAfter / 10 }

// sweep takes back what the carrier has no copy of.
func (d *dispatcher) sweep(ctx context.Context) error {
	if time.Since(d.swept) < d.betweenSweeps() {
		return nil
	}
	defer func() { d.swept = time.Now() }() // however long it takes, there is time for pushes
	for _, q := range d.queues {
		inside, err := d.To.Inside(ctx, Queue(q.Name))
		if err != nil {
			return carrierError{err}
		}
		if q.handed < q.First {
			continue // it was told nothing in this epoch
		}
		if q.known = q.known && inside.Epoch == q.Epoch && inside.Last == q.handed; !q.known {
			continue // what it has lost is pushed again
		}
		swept := 0
		for n := outbox.MaxBatch; n == outbox.MaxBatch && ctx.Err() == nil; swept += n {
			err := d.within(func(ctx context.Context) (err error) {
				n, err = d.Ledger.Unqueue(ctx, q.PushQueue, inside.Oldest, d.RequeueAfter, outbox.MaxBatch)
				return err
			})
			if err != nil {
				return err
			}
		}
		if swept > 0 {
			d.walk.fresh()
			d.Log.Warn().Int("rows", swept).Str("worker_id", d.name).Str("transport", d.To.String()).Str("detail", q.Name).Msg("the carrier has lost messages; they are pushed again")
		}
		if err := d.within(func(ctx context.Context) error { return d.Ledger.ForgetPushes(ctx, q.PushQueue, d.RequeueAfter) }); err != nil {
			return err
		}
	}
	return nil
}

// wake has it look for what is due.
func (d *dispatcher) wake() {
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

// queue is the one that may be pushed to now; nil: none.
func (d *dispatcher) queue(name Queue) *pushing {
	for _, q := range d.queues {
		if q.Name == string(name) && q.known && !q.full {
			return q
		}
	}
	return nil
}

// ClaimJob implements claims: it makes a push.
func (d *dispatcher) ClaimJob(ctx context.Context, jobID int64, after outbox.Position, limit int, tries outbox.Tries) ([]outbox.Claimed, outbox.Position, error) {
	q := d.queue(Bulk)
	if q == nil {
		return nil, after, nil
	}
	keys, number, next, err := d.Ledger.QueueJob(ctx, q.PushQueue, jobID, after, limit, tries)
	return d.pushes(q, number, keys), next, err
}

// ClaimActivities implements claims.
func (d *dispatcher) ClaimActivities(ctx context.Context, since time.Time, limit int, tries outbox.Tries) ([]outbox.Claimed, time.Time, error) {
	q := d.queue(Activities)
	if q == nil {
		return nil, since, nil
	}
	keys, number, next, err := d.Ledger.QueueActivities(ctx, q.PushQueue, since, limit, tries)
	return d.pushes(q, number, keys), next, err
}

// pushes notes the push that was made.
func (d *dispatcher) pushes(q *pushing, number int64, keys []outbox.Key) []outbox.Claimed {
	found := make([]outbox.Claimed, len(keys))
	for i, k := range keys {
		found[i].Key = k
	}
	d.made, d.number = q, number
	return found
}

// Activities implements Credits: what one push takes.
func (d *dispatcher) Activities() int { return d.room(Activities) }

// Bulk implements Credits.
func (d *dispatcher) Bulk() int { return d.room(Bulk) }

// Job implements Credits.
func (d *dispatcher) Job(int64, string, int) int { return d.room(Bulk) }

func (d *dispatcher) room(name Queue) int {
	if d.queue(name) == nil {
		return 0
	}
	return d.Config().Batch
}

// Idle implements Credits: what is in flight is the relays'.
func (*dispatcher) Idle() bool { return true }

// Changed implements Credits.
func (d *dispatcher) Changed() <-chan struct{} { return d.changed }
