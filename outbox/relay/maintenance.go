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

// every calls f at once, then at the interval that between returns and when requested, until ctx ends.
// It logs the first of consecutive errors, except errors that the Outage logs.
func (r *Relay) every(ctx context.Context, between func() time.Duration, asked <-chan struct{}, problem string,
	f func(context.Context) error) {
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

// always returns a constant interval.
func always(d time.Duration) func() time.Duration { return func() time.Duration { return d } }

// levelOf returns the log level of an error that is retried. Serialization failures are normal where
// serializable is the default isolation level.
func levelOf(err error) zerolog.Level {
	if db.Code(err) == db.SerializationFailure {
		return zerolog.DebugLevel
	}
	return zerolog.WarnLevel
}

// renew prolongs the leases in flight. A lost lease stays in flight until the recheck or the recording
// finds that its messages belong to another relay.
func (r *Relay) renew(ctx context.Context) error {
	ids := r.inflight.ids()
	if len(ids) == 0 {
		return nil
	}
	var lost []int64
	err := r.withTimeout(ctx, func(ctx context.Context) (err error) {
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
		r.log.Warn().Str("worker_id", r.name).Str("transport", r.transport.String()).Msg("leases of this relay have expired")
	}
	return nil
}

// ErrSlowStart reports that a slow database did not let a drain start within Config.Lease. Nothing was
// delivered.
var ErrSlowStart = errors.New("the database was too slow for delivery to start")

// announce sends the first heartbeat. A slow database, such as behind a full pooler, is logged once and
// retried. Only a drain, which must end, gives up after Config.Lease.
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

// slow reports whether a statement timed out, in the server or in the client.
func slow(err error) bool {
	class := db.ClassOf(err)
	return class == db.TooSlow || class == db.NoAnswer || class == db.Locked
}

// beat sends the relay's heartbeat and reads operators' settings of senders.
func (r *Relay) beat(ctx context.Context) error {
	senders := make([]outbox.SenderWork, len(r.queues))
	for i, q := range r.queues {
		senders[i] = q.work(time.Now())
	}
	for _, o := range r.observers {
		o.Beat(senders)
	}
	var states map[string]outbox.LiveSender
	var delivers bool
	err := r.withTimeout(ctx, func(ctx context.Context) (err error) {
		states, delivers, err = r.ledger.Beat(ctx, senders, r.inflight.size(), r.composer.Transactions())
		return err
	})
	if err != nil {
		return err // the last known settings stay in force
	}
	r.setGate(ctx, delivers)
	for i, q := range r.queues {
		name := senders[i].Name
		if s := states[name]; q.limits.Operate(s.SenderOverride, s.Relays, time.Now()) {
			r.log.Info().Str("sender", name).Bool("paused", s.Paused).Str("worker_id", r.name).Msg("an operator changed a sender")
		}
		q.wake()
	}
	return nil
}

// leasesAtOnce is the number of lost leases per read.
const leasesAtOnce = 10

// recover recovers the leases of dead relays, and unknown leases of its own name. A lease that cannot
// be recovered does not delay others.
func (r *Relay) recover(ctx context.Context) error {
	if r.blocked() {
		return nil
	}
	var problems []error
	var stay []int64 // leases without movable messages
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

// betweenUnserved is the interval at which a relay without a carrier searches for messages left by
// relays with one.
const betweenUnserved = time.Minute

// takeBackQueued returns QUEUED messages to PENDING while no relay with a carrier pushes. They can be
// claimed at once, here or by a relay that takes their copies from the carrier.
func (r *Relay) takeBackQueued(ctx context.Context) error {
	if r.blocked() {
		return nil
	}
	sum := 0
	for n := 1; n > 0 && ctx.Err() == nil; sum += n {
		err := r.withTimeout(ctx, func(ctx context.Context) (err error) {
			n, err = r.ledger.Unserved(ctx, outbox.MaxBatch)
			return err
		})
		if err != nil {
			return err
		}
	}
	if sum > 0 {
		r.inflight.wake()
		r.log.Info().Str("worker_id", r.name).Int("rows", sum).Str("transport",
			r.transport.String()).Msg("messages taken back from a carrier that no relay uses")
	}
	return nil
}

// lost reads the next lost leases, except leases that could not be recovered.
func (r *Relay) lost(ctx context.Context, stay []int64) (lost []outbox.Lost, err error) {
	err = r.withTimeout(ctx, func(ctx context.Context) error {
		lost, err = r.ledger.Lost(ctx, r.inflight.ids(), stay, leasesAtOnce)
		return err
	})
	return lost, err
}

// takeBack recovers one lease and returns the number of moved messages.
func (r *Relay) takeBack(ctx context.Context, lost outbox.Lost) (int, error) {
	if lost.Unread {
		if err := r.withTimeout(ctx, func(ctx context.Context) error { return r.ledger.ReadLost(ctx, &lost) }); err != nil {
			return 0, err
		}
	}
	settlements := make([]outbox.Settlement, len(lost.Handed))
	config := r.settings()
	for i, h := range lost.Handed {
		settlements[i] = decideCrash(h, r.retryOf(medium(h.Route, h.Step)), config.MaxCrashes, r.random())
	}
	var done outbox.Recovered
	err := r.withTimeout(ctx, func(ctx context.Context) (err error) {
		done, err = r.ledger.Recover(ctx, lost, settlements)
		return err
	})
	if err != nil || done.Gone {
		return 0, err
	}
	r.tally.recovered.Add(int64(done.Released + done.Settled))
	r.inform(ctx, settlements, done.Statuses)
	r.inflight.wake() // the messages can be claimed
	for i, status := range done.Statuses {
		if status != "" {
			r.tally.settledOne(&settlements[i], status)
			r.observe(settlements[i:i+1], done.Statuses[i:i+1])
			r.died(&settlements[i], status)
		}
	}
	moved := done.Released + done.Settled
	if moved > 0 { // a lease that is ended by a crash of the server may be empty
		r.log.Warn().Str("worker_id", lost.Relay).Int("rows", moved).Str("transport",
			r.transport.String()).Msg("messages of a lost lease recovered")
	}
	return moved, nil
}

// retryOf returns the retry settings of a medium whose sender is unknown.
func (r *Relay) retryOf(medium string) RetryConfig {
	for _, q := range r.queues {
		if c := q.settings(); c.Medium == medium {
			return c.Retry
		}
	}
	return r.settings().Retry
}
