package job

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/db"
)

// expireLimit bounds the jobs that one transaction makes EXPIRED. A claim or a chunk follows each such transaction, so
// that many jobs that expired do not delay one that is due; it steps over the rest.
const expireLimit = 1000

// giveUpLimit bounds the jobs that one transaction fails because every run of them was lost, and those that it hands
// back.
const giveUpLimit = 100

// claimTries is the number of attempts of a claim that loses lanes to other runners, before it waits for the
// next tick.
const claimTries = 5

// claimed is the result of a claim: the job, the fencing token of this run, and the connection whose backend
// is recorded in the row. id and fence never change.
type claimed struct {
	id      int64
	fence   int64
	resumed bool // a dead or stale run's job
	conn    *conn
}

// snapshot describes the pending work for a runner's types and lanes at one moment.
type snapshot struct {
	registered bool    // its types are in the vocabulary
	running    bool    // jobs are RUNNING in its lanes
	gone       []int64 // RUNNING jobs of its types whose server connection is gone
	dead       bool    // another job must be taken over, given up or handed back
	overdue    bool    // the expires_at of a waiting job has passed
	due        bool    // a job is due in a free, open lane
	halt       Halt    // whether belfry is halted
	// seconds is the time until the first PENDING job is due or expires. Nil means that there is none.
	seconds *float64
}

// readSnapshot reads the pending work.
func (r *Runner) readSnapshot(ctx context.Context, on interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}) (seen snapshot, err error) {
	err = on.QueryRow(ctx, queries.jobsSnapshot, pgx.StrictNamedArgs{
		"types": r.names, "lanes": r.lanes(), "runner": r.config.Name, "stale_after": r.config.StaleAfter,
	}).Scan(&seen.registered, &seen.running, &seen.gone, &seen.dead, &seen.overdue, &seen.due, &seen.seconds, &seen.halt.At,
		&seen.halt.By, &seen.halt.Reason)
	return seen, err
}

// takeSnapshot is readSnapshot in its own transaction, with deadlines on the server.
func (r *Runner) takeSnapshot(ctx context.Context, held *conn) (seen snapshot, err error) {
	err = held.often(ctx, r.config.StatementTimeout, func(ctx context.Context, tx pgx.Tx) (err error) {
		seen, err = r.readSnapshot(ctx, tx)
		return err
	})
	if err != nil {
		return snapshot{}, fmt.Errorf("read due jobs and dead runs: %w", mapError(err))
	}
	return seen, nil
}

// lostConnection reports whether a job of this runner has lost its server connection.
func (r *Runner) lostConnection(ctx context.Context) (bool, error) {
	held := &conn{Held: db.Held{Pool: r.pool}}
	defer held.Drop()
	seen, err := r.takeSnapshot(ctx, held)
	return len(seen.gone) > 0, err
}

// claim takes over a job with a dead run or, if there is none, claims the most urgent due job. It returns
// the zero value if there is no work, and the snapshot that it read. A claim whose COMMIT was lost leaves
// the job RUNNING under this runner's name; the next claim resumes it (JobResumeDead). The caller drops the
// connection. Jobs that the cleanup ended are added to out.
func (r *Runner) claim(ctx context.Context, out *Outcome) (claimed, snapshot, error) {
	held := &conn{Held: db.Held{Pool: r.pool}}
	seen, err := r.takeSnapshot(ctx, held)
	var t claimed
	if err == nil {
		r.logHalt(seen.halt)
		out.Halt = seen.halt
		t, err = r.claimOn(ctx, held, seen, out)
	}
	if err != nil || t.id == 0 {
		held.Drop()
		return claimed{}, seen, err
	}
	t.conn = held
	return t, seen, nil
}

func (r *Runner) claimOn(ctx context.Context, held *conn, seen snapshot, out *Outcome) (claimed, error) {
	if !seen.registered {
		if err := r.register(ctx, held); err != nil {
			return claimed{}, err
		}
	}
	if len(seen.gone) > 0 {
		r.rest(ctx, reconnectGrace) // a live run has reconnected by then
	}
	for more := true; more; {
		more = false
		if len(seen.gone) > 0 || seen.dead || seen.overdue {
			var err error
			if more, err = r.cleanUp(ctx, held, seen.gone, out); err != nil {
				return claimed{}, err
			}
			t, err := r.take(ctx, held, queries.jobResumeDead, pgx.StrictNamedArgs{"stale_after": r.config.StaleAfter, "gone": seen.gone})
			if err != nil || t.id != 0 {
				t.resumed = true
				return t, err
			}
		} else if !seen.due {
			return claimed{}, nil
		}
		if t, err := r.claimDue(ctx, held); err != nil || t.id != 0 {
			return t, err
		}
	}
	return claimed{}, nil
}

// claimDue claims the most urgent due job.
func (r *Runner) claimDue(ctx context.Context, held *conn) (claimed, error) {
	for range claimTries {
		t, err := r.take(ctx, held, queries.jobClaim, pgx.StrictNamedArgs{})
		if errors.Is(err, ErrLocked) { // another runner is claiming a job of this lane, and may hang
			r.log.Warn().Err(err).Msg("no job is claimed now: another session has a lock")
			return claimed{}, nil
		}
		if !laneTaken(err) {
			return t, err
		}
	}
	return claimed{}, nil
}

// register adds the runner's types to the vocabulary that enqueuing checks.
func (r *Runner) register(ctx context.Context, held *conn) error {
	descriptions := make([]string, len(r.names))
	for i, name := range r.names {
		descriptions[i] = r.types[name].description
	}
	err := held.often(ctx, r.config.StatementTimeout, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, queries.typesRegister, pgx.StrictNamedArgs{"names": r.names, "descriptions": descriptions})
		return err
	})
	if err != nil {
		return fmt.Errorf("register job types: %w", mapError(err))
	}
	return nil
}

// cleanUp ends or releases jobs that would obstruct the claim: it expires jobs that did not start in time, at most
// expireLimit, fails all jobs that lose every run, and hands back dead runs of types that this runner does not have. It
// reports whether more jobs may have to expire.
func (r *Runner) cleanUp(ctx context.Context, held *conn, gone []int64, out *Outcome) (more bool, err error) {
	for again := true; again; {
		var expired, hopeless, released []int64
		err := held.often(ctx, r.config.StatementTimeout, func(ctx context.Context, tx pgx.Tx) (err error) {
			if !more {
				if expired, err = r.expire(ctx, tx); err != nil {
					return err
				}
			}
			hopeless, err = db.Column[int64](ctx, tx, queries.jobGiveUp, pgx.StrictNamedArgs{
				"max_takeovers": r.config.MaxTakeovers, "stale_after": r.config.StaleAfter, "gone": gone,
				"runner": r.config.Name, "types": r.names, "lanes": r.lanes(), "limit": giveUpLimit,
			})
			if err != nil || len(hopeless) == giveUpLimit {
				return err
			}
			released, err = db.Column[int64](ctx, tx, queries.jobRelease, pgx.StrictNamedArgs{
				"stale_after": r.config.StaleAfter, "types": r.names, "lanes": r.lanes(), "limit": giveUpLimit,
			})
			return err
		})
		if err != nil {
			return false, fmt.Errorf("clean up: %w", mapError(err))
		}
		r.logExpired(expired, out)
		out.GivenUp = append(out.GivenUp, hopeless...)
		for _, id := range hopeless {
			r.log.Error().Int64("job_id", id).Msg("job failed: every run of it was lost")
		}
		for _, id := range released {
			r.log.Warn().Int64("job_id", id).Msg("job of an unknown type handed back from a dead run")
		}
		more = more || len(expired) == expireLimit
		again = len(hopeless) == giveUpLimit
	}
	return more, nil
}

// expire makes up to expireLimit jobs that did not start in time EXPIRED.
func (r *Runner) expire(ctx context.Context, tx pgx.Tx) ([]int64, error) {
	_, err := tx.Exec(ctx, queries.actAs, pgx.StrictNamedArgs{"actor": r.config.Name, "reason": "", "kind": ""})
	if err != nil {
		return nil, err
	}
	return db.Column[int64](ctx, tx, queries.jobExpire, pgx.StrictNamedArgs{"limit": expireLimit})
}

// logExpired logs the jobs that a committed expire ended, and adds them to out.
func (r *Runner) logExpired(ids []int64, out *Outcome) {
	out.Expired = append(out.Expired, ids...)
	for _, id := range ids {
		r.log.Warn().Int64("job_id", id).Msg("job expired: it did not start in time")
	}
}

// take runs one claiming statement. No row is the zero value.
func (r *Runner) take(ctx context.Context, held *conn, statement string, args pgx.StrictNamedArgs) (t claimed, err error) {
	args["runner"], args["types"], args["lanes"] = r.config.Name, r.names, r.lanes()
	err = held.often(ctx, r.config.StatementTimeout, func(ctx context.Context, tx pgx.Tx) error {
		args["pid"] = held.PID()
		err := tx.QueryRow(ctx, statement, args).Scan(&t.id, &t.fence)
		if errors.Is(err, pgx.ErrNoRows) {
			t = claimed{}
			return nil
		}
		held.recorded = held.PID()
		return err
	})
	if err != nil {
		return claimed{}, fmt.Errorf("claim: %w", mapError(err))
	}
	return t, nil
}

// reconnectGrace is the time that a run without its server connection has to record a new one before it is
// taken over. A live run reconnects in a few milliseconds, and in a few hundred on a machine with nine busy
// processes.
const reconnectGrace = 500 * time.Millisecond

// application returns the application_name of a run's transactions; RunTerminateOldBackends parses it.
func application(jobID, fence int64) string {
	return fmt.Sprintf("belfry job %d fence %d", jobID, fence)
}
