package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/outbox"
)

// every calls f at once, then as often as between says, and when it is asked for, until ctx
// ends, and logs its first error of a row that the Outage does not speak of.
func (r *Relay) every(ctx context.Context, between func() time.Duration, asked <-chan struct{}, problem string, f func(context.Context) error) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-asked:
		}
		began := time.Now()
		err := r.at(ctx, pointMaintenance)
		if err == nil {
			err = f(ctx)
		}
		if ctx.Err() == nil && !r.outage.Observe(began, err) && !failing {
			r.log.WithLevel(levelOf(err)).Err(err).Str("worker_id", r.name).Str("transport", r.transport.String()).Msg(problem)
		}
		failing = err != nil
		timer.Reset(between())
	}
}

// always is one pace.
func always(d time.Duration) func() time.Duration { return func() time.Duration { return d } }

// levelOf is the level at which an error is logged that is met by trying again. That
// transactions could not be serialized is everyday where that is the default isolation.
func levelOf(err error) zerolog.Level {
	if db.Code(err) == db.SerializationFailure {
		return zerolog.DebugLevel
	}
	return zerolog.WarnLevel
}

// renew prolongs the leases in flight. One that is lost stays in flight until its messages
// are found to be another's: by the recheck before they are sent, or when they are recorded.
func (r *Relay) renew(ctx context.Context) error {
	ids := r.inflight.ids()
	if len(ids) == 0 {
		return nil
	}
	var lost []int64
	err := r.within(ctx, func(ctx context.Context) (err error) {
		lost, err = r.ledger.Renew(ctx, ids)
		return err
	})
	if err != nil {
		return err
	}
	held := make(map[int64]bool)
	for _, id := range r.inflight.ids() {
		held[id] = true
	}
	gone := 0
	for _, id := range lost {
		if held[id] { // and not recorded in the meantime
			gone++
		}
	}
	if gone > 0 {
		r.log.Warn().Str("worker_id", r.name).Str("transport", r.transport.String()).Msg("leases ran out under this relay")
	}
	return nil
}

// ErrSlowStart reports a drain that a slow database has not let start for Config.Lease.
// Nothing was delivered.
var ErrSlowStart = errors.New("the database was too slow for delivery to start")

// announce beats for the first time. A database that is only slow, as behind a pooler that
// is full, is no reason to end: that is said once, and tried again. Only a drain, which is
// to end, gives up, after Config.Lease.
func (r *Relay) announce(ctx context.Context) error {
	began := time.Now()
	for said := false; ; said = true {
		err := r.beat(ctx)
		if !slow(err) {
			return err
		}
		if r.draining.Load() && time.Since(began) >= r.settings().Lease {
			return fmt.Errorf("%w within %s: %w", ErrSlowStart, time.Since(began).Round(time.Second/10), err)
		}
		if !said {
			r.log.Warn().Err(err).Str("worker_id", r.name).Str("transport", r.transport.String()).Msg("the relay has not started yet")
		}
		if lifecycle.Pause(ctx, time.Duration(r.random()*float64(time.Second))) != nil {
			return err
		}
	}
}

// slow reports whether a statement took too long, whoever ended it.
func slow(err error) bool {
	class := db.ClassOf(err)
	return class == db.TooSlow || class == db.NoAnswer || class == db.Locked
}

// beat says that this relay lives, and takes up what operators have set about senders.
func (r *Relay) beat(ctx context.Context) error {
	senders := make([]outbox.SenderWork, len(r.queues))
	for i, q := range r.queues {
		senders[i] = q.work(time.Now())
	}
	var states map[string]outbox.LiveSender
	var delivers bool
	err := r.within(ctx, func(ctx context.Context) (err error) {
		states, delivers, err = r.ledger.Beat(ctx, senders, r.inflight.size(), r.composer.Transactions())
		return err
	})
	if err != nil {
		return err // what was known last goes on
	}
	r.let(ctx, delivers)
	for i, q := range r.queues {
		name := senders[i].Name
		if s := states[name]; q.limits.operate(s.SenderOverride, s.Relays, time.Now()) {
			r.log.Info().Str("sender", name).Bool("paused", s.Paused).Str("worker_id", r.name).Msg("an operator changed a sender")
		}
		q.wake()
	}
	return nil
}

// leasesAtOnce is how many lost leases are read at once.
const leasesAtOnce = 10

// recover takes back what relays that died have left, and claims of its own name that
// it does not know. One that cannot be taken back holds up none of the others.
func (r *Relay) recover(ctx context.Context) error {
	if r.waits() {
		return nil
	}
	var problems []error
	var stay []int64 // the leases of which nothing could be moved
	for ctx.Err() == nil {
		lost, err := r.lost(ctx, stay)
		if err != nil {
			return errors.Join(append(problems, err)...)
		}
		for _, l := range lost {
			n, err := r.takeBack(ctx, l)
			if n == 0 {
				stay = append(stay, l.LeaseID)
			}
			if err != nil {
				problems = append(problems, fmt.Errorf("recover lease %d: %w", l.LeaseID, err))
			}
		}
		if len(lost) < leasesAtOnce {
			break
		}
	}
	return errors.Join(problems...)
}

// betweenUnserved is how often a relay without a carrier looks for what others with one have
// left.
const betweenUnserved = time.Minute

// takeBackQueued takes back what is QUEUED while no relay with a carrier pushes. What is taken back may
// be claimed at once, here or by whoever takes its copy out of the carrier.
func (r *Relay) takeBackQueued(ctx context.Context) error {
	if r.waits() {
		return nil
	}
	sum := 0
	for n := outbox.MaxBatch; n == outbox.MaxBatch && ctx.Err() == nil; sum += n {
		err := r.within(ctx, func(ctx context.Context) (err error) {
			n, err = r.ledger.Unserved(ctx, outbox.MaxBatch)
			return err
		})
		if err != nil {
			return err
		}
	}
	if sum > 0 {
		r.inflight.wake()
		r.log.Info().Str("worker_id", r.name).Int("rows", sum).Str("transport", r.transport.String()).Msg("messages taken back from a carrier that no relay uses")
	}
	return nil
}

// lost reads the next lost leases, without those that are known to stay.
func (r *Relay) lost(ctx context.Context, stay []int64) (lost []outbox.Lost, err error) {
	err = r.within(ctx, func(ctx context.Context) error {
		lost, err = r.ledger.Lost(ctx, r.inflight.ids(), stay, leasesAtOnce)
		return err
	})
	return lost, err
}

// takeBack recovers one lease and says how many messages it moved.
func (r *Relay) takeBack(ctx context.Context, lost outbox.Lost) (int, error) {
	settlements := make([]outbox.Settlement, len(lost.Handed))
	config := r.settings()
	for i, h := range lost.Handed {
		settlements[i] = decideCrash(h, r.retryOf(medium(h.Route, h.Step)), config.MaxCrashes, r.random())
	}
	var done outbox.Recovered
	err := r.within(ctx, func(ctx context.Context) (err error) {
		done, err = r.ledger.Recover(ctx, lost, settlements)
		return err
	})
	if err != nil || done.Gone {
		return 0, err
	}
	r.tally.recovered.Add(int64(done.Released + done.Settled))
	r.inform(ctx, settlements, done.Statuses)
	r.inflight.wake() // what was taken back may be claimed
	for i, status := range done.Statuses {
		if status != "" {
			r.tally.settledOne(&settlements[i], status)
			r.observe(settlements[i:i+1], done.Statuses[i:i+1])
			r.died(&settlements[i], status)
		}
	}
	moved := done.Released + done.Settled
	if moved > 0 { // a lease that is ended by a crash of the server may be empty
		r.log.Warn().Str("worker_id", lost.Relay).Int("rows", moved).Str("transport", r.transport.String()).Msg("messages of a lost lease recovered")
	}
	return moved, nil
}

// retryOf is how a medium is retried when the sender is not known.
func (r *Relay) retryOf(medium string) RetryConfig {
	for _, q := range r.queues {
		if c := q.settings(); c.Medium == medium {
			return c.Retry
		}
	}
	return r.settings().Retry
}
