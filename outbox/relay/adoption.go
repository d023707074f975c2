package relay

import (
	"context"
	"time"

	"github.com/belfryhq/belfry/outbox"
)

// remindEvery is how often a relay that waits for an adoption says so again.
const remindEvery = 10 * time.Minute

// adopted takes up what a heartbeat found out: in a database that is not where belfry was
// made or adopted, the relay claims nothing, takes back no lease and asks for no receipt
// until an operator has adopted it. The claims' own statements make sure of it: the
// heartbeat saves them, and says why.
func (r *Relay) adopted(ctx context.Context, adopted bool) {
	was := r.copied.Load()
	switch {
	case adopted && was != nil:
		r.copied.Store(nil)
		r.log.Info().Str("worker_id", r.name).Str("transport", r.transport.String()).Msg("the database was adopted: relay goes on")
		r.inflight.wake()
	case !adopted && (was == nil || time.Since(r.reminded) >= remindEvery):
		r.reminded = time.Now()
		var where outbox.Installation
		err := r.within(ctx, func(ctx context.Context) (err error) {
			where, err = outbox.ReadInstallation(ctx, r.pool)
			return err
		})
		if err == nil && where.Adopted {
			return // in this moment: the next heartbeat finds it
		}
		if err == nil {
			err = where.Err()
		}
		r.copied.Store(&where)
		r.log.Error().Err(err).Str("worker_id", r.name).Str("transport", r.transport.String()).Msg("nothing is delivered before `belfry adopt`, which shows what would leave")
	}
}

// waits reports that nothing is claimed, because the database is not adopted.
func (r *Relay) waits() bool { return r.copied.Load() != nil }
