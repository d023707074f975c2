package job

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/job/governor"
)

// pace is the throttling state of a run.
type pace struct {
	why     governor.Throttle // in force now
	written governor.Throttle // as the job's row has it
	held    time.Duration     // waited since the row was last updated
	toldAt  time.Time         // when that was
	mute    bool              // a failed health probe was logged
	blind   bool              // a health probe may not see something, and that was said
}

// holdSlice is the longest wait of a throttled run before its next check.
const holdSlice = 500 * time.Millisecond

// tellEvery is how often a run that is held back renews its heartbeat: several times
// before it is stale.
func (c Config) tellEvery() time.Duration { return min(2*time.Second, c.StaleAfter/4) }

// hold looks at the server's health when that is due, and waits when the governor
// says so, for one slice at the most. While it waits it renews the heartbeat and
// notices an abort, a pause of the lane and a more urgent job. It reports whether it
// waited.
func (u *run) hold(soft, hard context.Context) (waited bool, err error) {
	now := time.Now()
	if u.governor.ProbeDue(now) {
		u.examine(hard)
		now = time.Now()
	}
	wait, why := u.governor.Pause(now)
	u.pace.why = why
	if wait <= 0 {
		return false, nil
	}
	wait = min(wait, holdSlice, u.config.tellEvery())
	u.rest(soft, wait)
	u.pace.held += time.Since(now)
	news := u.pace.why.Rule != u.pace.written.Rule
	if !news && time.Since(u.pace.toldAt) < u.config.tellEvery() {
		return true, nil
	}
	return true, u.tell(hard)
}

// tell writes the heartbeat and the throttling reason into the job's row.
func (u *run) tell(ctx context.Context) error {
	err := u.inTx(ctx, false, func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, queries.runHold, pgx.StrictNamedArgs{
			"id": u.id, "fence": u.fence, "throttle": u.pace.why.Rule, "detail": u.pace.why.Detail, "throttled_ms": u.pace.held.Milliseconds(),
		})
		if err != nil {
			return fmt.Errorf("record throttle: %w", err)
		}
		if tag.RowsAffected() == 0 {
			return errMoved
		}
		return nil
	})
	if err != nil {
		return err
	}
	u.told()
	return nil
}

// told records that the job's row contains the present throttling reason, and announces it when the rule is
// another.
func (u *run) told() {
	p := &u.pace
	changed := p.why.Rule != p.written.Rule
	u.job.Throttle, u.job.ThrottleDetail = p.why.Rule, p.why.Detail
	u.job.ThrottledMS += p.held.Milliseconds()
	p.written, p.held, p.toldAt = p.why, 0, time.Now()
	if !changed {
		return
	}
	event, phrase := EventThrottled, "walk throttled"
	if p.why.Rule == "" {
		event, phrase = EventReleased, "walk at full speed again"
	}
	u.log.Info().Str("rule", p.why.Rule).Str("detail", p.why.Detail).Msg(phrase)
	u.report(event, 0, 0)
}

// examine probes the server's health. A probe that fails says nothing: health
// checks never stop a job by being broken.
func (u *run) examine(ctx context.Context) {
	health := u.governor.Health()
	ctx, cancel := context.WithTimeout(ctx, min(2*governor.ProbeTimeout, u.config.StaleAfter/2))
	defer cancel()
	found, err := governor.Probe(ctx, u.pool, health)
	if err = errors.Join(err, found.QueryError); err != nil && !u.pace.mute {
		u.pace.mute = true
		u.log.WithLevel(u.quietly(err)).Err(err).Msg("health check does not work")
	}
	if len(found.Hidden) > 0 && !u.pace.blind {
		u.pace.blind = true
		u.log.Warn().Strs("rule", found.Hidden).Msg("health check sees nothing: its role may not read the statistics; grant it pg_monitor")
	}
	u.governor.Judge(time.Now(), found)
}

// deafFor is how long a run does not ask an abort cache that did not answer.
const deafFor = time.Second

// flagged carries out an abort that waits in the abort cache: it is recorded in the
// job's row, and the run is over. Until the row can be written no chunk runs.
func (u *run) flagged(ctx context.Context) error {
	if u.cache == nil || time.Now().Before(u.deafUntil) {
		return nil
	}
	act, err := u.cache.Get(ctx, u.id)
	if err != nil {
		if u.deafUntil.IsZero() {
			u.log.Warn().Err(err).Msg("abort cache does not answer; aborts come through the database alone")
		}
		u.deafUntil = time.Now().Add(deafFor) // a cache that hangs must not slow down every chunk
		return nil
	}
	u.deafUntil = time.Time{}
	if act == nil {
		return nil
	}
	err = u.wait(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, queries.actAs, pgx.StrictNamedArgs{"actor": act.Actor, "reason": act.Reason, "kind": ""})
		if err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, queries.runAbort, pgx.StrictNamedArgs{"id": u.id, "fence": u.fence})
		if err == nil && tag.RowsAffected() == 0 {
			return errMoved
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("record the abort: %w", err)
	}
	if err := u.cache.Clear(ctx, u.id); err != nil {
		u.log.Warn().Err(err).Msg("flag left in the abort cache")
	}
	return errRunOver
}
