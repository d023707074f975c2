package relay

import (
	"context"
	"errors"
	"time"

	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// remindEvery is the interval of log lines while messages may not leave the database.
const remindEvery = 10 * time.Minute

// setGate applies the result of a heartbeat. In a database that is halted, or neither created nor
// adopted by this installation, the relay claims nothing, recovers no lease and reads no receipt until
// an operator lifts the halt or adopts the database. The claims' statements, and the recheck's for a
// halt, enforce it; the heartbeat saves them and logs the reason.
func (r *Relay) setGate(ctx context.Context, delivers bool) {
	was := r.blockedBy.Load()
	switch {
	case delivers && was != nil:
		r.blockedBy.Store(nil)
		text := "the database was adopted: the relay continues"
		if errors.Is(was.Err(), job.ErrHalted) {
			text = "the halt was lifted: the relay continues"
		}
		r.log.Info().Str("worker_id", r.name).Str("transport", r.transport.String()).Msg(text)
		r.inflight.wake()
	case !delivers && (was == nil || time.Since(r.reminded) >= remindEvery):
		r.reminded = time.Now()
		var where outbox.Installation
		err := r.withTimeout(ctx, func(ctx context.Context) (err error) {
			where, err = outbox.ReadInstallation(ctx, r.pool)
			return err
		})
		if err == nil {
			if err = where.ErrAt(r.settings().Place); err == nil {
				return // just adopted: the next heartbeat continues
			}
		}
		r.blockedBy.Store(&where)
		if errors.Is(err, job.ErrHalted) {
			r.log.Warn().Err(err).Str("worker_id", r.name).Str("transport",
				r.transport.String()).Msg("delivery is halted: resume it with `belfry unhalt`")
			return
		}
		r.log.Error().Err(err).Str("worker_id", r.name).Str("transport",
			r.transport.String()).Msg("delivery waits until the database is adopted: `belfry adopt` previews the messages")
	}
}

// blocked reports that messages may not leave the database, so nothing is claimed.
func (r *Relay) blocked() bool { return r.blockedBy.Load() != nil }
