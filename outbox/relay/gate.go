package relay

import (
	"context"
	"errors"
	"time"

	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// remindEvery is how often a relay that waits because nothing may leave says so again.
const remindEvery = 10 * time.Minute

// let takes up what a heartbeat found out: in a database that is halted, or is not where
// belfry was made or adopted, the relay claims nothing, takes back no lease and asks for no
// receipt until an operator has lifted the halt or adopted it. The claims' own statements,
// and the recheck's of a halt, make sure of it: the heartbeat saves them, and says why.
func (r *Relay) let(ctx context.Context, delivers bool) {
	was := r.kept.Load()
	switch {
	case delivers && was != nil:
		r.kept.Store(nil)
		text := "the database was adopted: relay goes on"
		if errors.Is(was.Err(), job.ErrHalted) {
			text = "belfry goes on: relay delivers again"
		}
		r.log.Info().Str("worker_id", r.name).Str("transport", r.transport.String()).Msg(text)
		r.inflight.wake()
	case !delivers && (was == nil || time.Since(r.reminded) >= remindEvery):
		r.reminded = time.Now()
		var where outbox.Installation
		err := r.within(ctx, func(ctx context.Context) (err error) {
			where, err = outbox.ReadInstallation(ctx, r.pool)
			return err
		})
		if err == nil {
			if err = where.ErrAt(r.settings().Place); err == nil {
				return // in this moment: the next heartbeat finds it
			}
		}
		r.kept.Store(&where)
		if errors.Is(err, job.ErrHalted) {
			r.log.Warn().Err(err).Str("worker_id", r.name).Str("transport", r.transport.String()).Msg("nothing is delivered before `belfry unhalt`")
			return
		}
		r.log.Error().Err(err).Str("worker_id", r.name).Str("transport", r.transport.String()).Msg("nothing is delivered before `belfry adopt`, which shows what would leave")
	}
}

// waits reports that nothing is claimed, because nothing may leave the database.
func (r *Relay) waits() bool { return r.kept.Load() != nil }
