package job

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// claimTries bounds how often a claim that lost its lane to another runner looks
// for a job in another lane before it waits for the next tick.
const claimTries = 5

// tenure is what a claim gave: the job and the fencing token of this one run. It
// never changes, whatever the job's row says later.
type tenure struct {
	id      int64
	fence   int64
	resumed bool // a stale run's job
}

// claim takes a stale job or, when there is none, the most urgent due one. It
// returns the zero tenure when there is nothing to do. A claim whose COMMIT was lost
// leaves the job RUNNING under this runner's name; the next claim resumes it
// (JobResumeStale).
func (r *Runner) claim(ctx context.Context) (tenure, error) {
	t, err := r.take(ctx, "JobResumeStale", pgx.StrictNamedArgs{
		"runner": r.config.Name, "types": r.names, "lanes": r.lanes(), "stale_after": r.config.StaleAfter,
	})
	if err != nil || t.id != 0 {
		t.resumed = true
		return t, err
	}
	for range claimTries {
		t, err = r.take(ctx, "JobClaim", pgx.StrictNamedArgs{
			"runner": r.config.Name, "types": r.names, "lanes": r.lanes(),
		})
		if errors.Is(err, ErrLocked) {
			return tenure{}, nil // another runner is in the middle of claiming a job of this lane
		}
		if !laneTaken(err) {
			return t, err
		}
	}
	return tenure{}, nil
}

// take runs one claiming statement; no row is the zero tenure.
func (r *Runner) take(ctx context.Context, statement string, args pgx.StrictNamedArgs) (t tenure, err error) {
	err = r.act(ctx, func(ctx context.Context, tx pgx.Tx) error {
		err := tx.QueryRow(ctx, queries.Get(statement).SQL, args).Scan(&t.id, &t.fence)
		if errors.Is(err, pgx.ErrNoRows) {
			t = tenure{}
			return nil
		}
		return err
	})
	if err != nil {
		return tenure{}, fmt.Errorf("claim: %w", mapError(err))
	}
	return t, nil
}

// readCommitted is what every transaction of this package is, whatever the role's
// defaults: the guards count on seeing the row as it is after a lock wait.
func readCommitted() pgx.TxOptions {
	return pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}
}

// act runs do in a short transaction of the runner's, outside its chunks, that is
// over within StatementTimeout.
func (r *Runner) act(ctx context.Context, do func(context.Context, pgx.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, r.config.StatementTimeout)
	defer cancel()
	return shortTx(ctx, r.pool, r.config.StatementTimeout, do)
}

// shortTx runs do in one durable transaction in which no lock wait outlasts
// four fifths of limit and no statement outlasts limit.
func shortTx(ctx context.Context, pool *pgxpool.Pool, limit time.Duration, do func(context.Context, pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, pool, readCommitted(), func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, queries.SQL("ActBegin"), pgx.StrictNamedArgs{
			"lock_timeout_ms": fmt.Sprint((limit * 4 / 5).Milliseconds()), "timeout_ms": fmt.Sprint(limit.Milliseconds()),
		})
		if err != nil {
			return err
		}
		return do(ctx, tx)
	})
}

// application names the transactions of a run in pg_stat_activity; RunEvict reads
// it back.
func application(jobID, fence int64) string {
	return fmt.Sprintf("belfry job %d fence %d", jobID, fence)
}
