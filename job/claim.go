package job

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// expireLimit bounds the jobs that one transaction makes EXPIRED.
const expireLimit = 1000

// claimTries bounds how often a claim that lost its lane to another runner looks
// for a job in another lane before it waits for the next tick.
const claimTries = 5

// grant is what a claim gave: the job, the fencing token of this one run, and the
// connection whose backend the row names. The first two never change, whatever the
// job's row says later.
type grant struct {
	id      int64
	fence   int64
	resumed bool // a dead or stale run's job
	link    *link
}

// look is what there was to do at one moment for a runner of these types and lanes.
type look struct {
	registered bool    // its types are in the vocabulary
	running    bool    // jobs are RUNNING in its lanes
	gone       []int64 // of these, those of its types whose server connection is gone
	dead       bool    // one is to be taken over, given up or handed back, gone ones apart
	overdue    bool    // a job is too late to start
	due        bool    // a job is due in a free, open lane
	halt       Halt    // whether everything is halted
	// seconds is when the first PENDING job is due, or too late to start; nil: none ever.
	seconds *float64
}

// look reads what there is to do.
func (r *Runner) look(ctx context.Context, on interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}) (seen look, err error) {
	err = on.QueryRow(ctx, queries.jobsLook, pgx.StrictNamedArgs{
		"types": r.names, "lanes": r.lanes(), "runner": r.config.Name, "stale_after": r.config.StaleAfter,
	}).Scan(&seen.registered, &seen.running, &seen.gone, &seen.dead, &seen.overdue, &seen.due, &seen.seconds, &seen.halt.At, &seen.halt.By, &seen.halt.Reason)
	return seen, err
}

// lookOn is look in a transaction of its own, with its deadlines on the server.
func (r *Runner) lookOn(ctx context.Context, held *link) (seen look, err error) {
	err = held.often(ctx, r.config.StatementTimeout, func(ctx context.Context, tx pgx.Tx) (err error) {
		seen, err = r.look(ctx, tx)
		return err
	})
	if err != nil {
		return look{}, fmt.Errorf("look for due jobs and dead runs: %w", mapError(err))
	}
	return seen, nil
}

// orphaned reports whether a job of this runner's has lost its server connection.
func (r *Runner) orphaned(ctx context.Context) (bool, error) {
	held := &link{pool: r.pool}
	defer held.drop()
	seen, err := r.lookOn(ctx, held)
	return len(seen.gone) > 0, err
}

// claim takes over a job whose run is dead or, when there is none, takes the most
// urgent due one. It returns the zero grant when there is nothing to do, and what it
// saw of that. A claim whose COMMIT was lost leaves the job RUNNING under this runner's
// name; the next claim resumes it (JobResumeDead). The caller drops the grant's link.
// What was cleared away on the occasion is added to out.
func (r *Runner) claim(ctx context.Context, out *Outcome) (grant, look, error) {
	held := &link{pool: r.pool}
	seen, err := r.lookOn(ctx, held)
	var t grant
	if err == nil {
		r.tellHalt(seen.halt)
		out.Halt = seen.halt
		t, err = r.claimOn(ctx, held, seen, out)
	}
	if err != nil || t.id == 0 {
		held.drop()
		return grant{}, seen, err
	}
	t.link = held
	return t, seen, nil
}

func (r *Runner) claimOn(ctx context.Context, held *link, seen look, out *Outcome) (grant, error) {
	if !seen.registered {
		if err := r.register(ctx, held); err != nil {
			return grant{}, err
		}
	}
	if len(seen.gone) > 0 {
		r.rest(ctx, orphanGrace) // a run that lives has another connection by then
	}
	if len(seen.gone) > 0 || seen.dead || seen.overdue {
		if err := r.sweep(ctx, held, seen.gone, out); err != nil {
			return grant{}, err
		}
		t, err := r.take(ctx, held, queries.jobResumeDead, pgx.StrictNamedArgs{"stale_after": r.config.StaleAfter, "gone": seen.gone})
		if err != nil || t.id != 0 {
			t.resumed = true
			return t, err
		}
	} else if !seen.due {
		return grant{}, nil
	}
	for range claimTries {
		t, err := r.take(ctx, held, queries.jobClaim, pgx.StrictNamedArgs{})
		if errors.Is(err, ErrLocked) {
			return grant{}, nil // another runner is in the middle of claiming a job of this lane
		}
		if !laneTaken(err) {
			return t, err
		}
	}
	return grant{}, nil
}

// register adds the runner's types to the vocabulary that enqueuing checks.
func (r *Runner) register(ctx context.Context, held *link) error {
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

// sweep clears away what stands in the way: jobs that did not start in time, all of
// them, so that a claim has none to step over; those that lose every run they get;
// and dead runs of types that are not known here.
func (r *Runner) sweep(ctx context.Context, held *link, gone []int64, out *Outcome) error {
	var hopeless, released []int64
	for more := true; more; {
		var expired []int64
		err := held.often(ctx, r.config.StatementTimeout, func(ctx context.Context, tx pgx.Tx) (err error) {
			if expired, err = r.expire(ctx, tx); err != nil || len(expired) == expireLimit {
				return err
			}
			hopeless, err = sweeping(ctx, tx, queries.jobGiveUp, pgx.StrictNamedArgs{
				"max_takeovers": r.config.MaxTakeovers, "stale_after": r.config.StaleAfter, "gone": gone,
				"runner": r.config.Name, "types": r.names, "lanes": r.lanes(),
			})
			if err != nil {
				return err
			}
			released, err = sweeping(ctx, tx, queries.jobRelease, pgx.StrictNamedArgs{
				"stale_after": r.config.StaleAfter, "types": r.names, "lanes": r.lanes(),
			})
			return err
		})
		if err != nil {
			return fmt.Errorf("clear away: %w", mapError(err))
		}
		r.tellExpired(expired, out)
		more = len(expired) == expireLimit
	}
	out.GivenUp = append(out.GivenUp, hopeless...)
	for _, id := range hopeless {
		r.log.Error().Int64("job_id", id).Msg("job failed: it loses every run it gets")
	}
	for _, id := range released {
		r.log.Warn().Int64("job_id", id).Msg("job of a type that is not known here handed back from a dead run")
	}
	return nil
}

// expire makes up to expireLimit jobs EXPIRED that did not start in time.
func (r *Runner) expire(ctx context.Context, tx pgx.Tx) ([]int64, error) {
	_, err := tx.Exec(ctx, queries.actAs, pgx.StrictNamedArgs{"actor": r.config.Name, "reason": "", "kind": ""})
	if err != nil {
		return nil, err
	}
	return sweeping(ctx, tx, queries.jobExpire, pgx.StrictNamedArgs{"limit": expireLimit})
}

// tellExpired logs the jobs that a committed expire ended, and adds them to out.
func (r *Runner) tellExpired(ids []int64, out *Outcome) {
	out.Expired = append(out.Expired, ids...)
	for _, id := range ids {
		r.log.Warn().Int64("job_id", id).Msg("job expired: it did not start in time")
	}
}

// sweeping runs a statement that ends or hands back jobs, and returns which.
func sweeping(ctx context.Context, tx pgx.Tx, statement string, args pgx.StrictNamedArgs) ([]int64, error) {
	rows, err := tx.Query(ctx, statement, args)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

// take runs one claiming statement; no row is the zero grant.
func (r *Runner) take(ctx context.Context, held *link, statement string, args pgx.StrictNamedArgs) (t grant, err error) {
	args["runner"], args["types"], args["lanes"] = r.config.Name, r.names, r.lanes()
	err = held.often(ctx, r.config.StatementTimeout, func(ctx context.Context, tx pgx.Tx) error {
		args["pid"] = held.pid()
		err := tx.QueryRow(ctx, statement, args).Scan(&t.id, &t.fence)
		if errors.Is(err, pgx.ErrNoRows) {
			t = grant{}
			return nil
		}
		held.recorded = held.pid()
		return err
	})
	if err != nil {
		return grant{}, fmt.Errorf("claim: %w", mapError(err))
	}
	return t, nil
}

// orphanGrace is how long a run whose server connection is gone has to record
// another one before it is taken over: a connection that broke under a run that lives
// is replaced in a few milliseconds, on a machine with nine busy processes in a few hundred.
const orphanGrace = 500 * time.Millisecond

// application names the transactions of a run in pg_stat_activity; RunEvict reads
// it back.
func application(jobID, fence int64) string {
	return fmt.Sprintf("belfry job %d fence %d", jobID, fence)
}
