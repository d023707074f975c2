package job

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// claimTries bounds how often a claim that lost its lane to another runner looks
// for a job in another lane before it waits for the next tick.
const claimTries = 5

// claim takes a stale job or, when there is none, the most urgent due one. It
// returns 0 when there is nothing to do. A claim whose COMMIT was lost leaves the
// job RUNNING under this runner's name; the next claim resumes it (JobResumeStale).
func (r *Runner) claim(ctx context.Context) (id int64, resumed bool, err error) {
	id, err = r.take(ctx, "JobResumeStale", pgx.StrictNamedArgs{
		"runner": r.config.Name, "types": r.names, "lanes": r.lanes(), "stale_after": r.config.StaleAfter,
	})
	if err != nil || id != 0 {
		return id, true, err
	}
	for range claimTries {
		id, err = r.take(ctx, "JobClaim", pgx.StrictNamedArgs{
			"runner": r.config.Name, "types": r.names, "lanes": r.lanes(),
		})
		if !laneTaken(err) {
			return id, false, err
		}
	}
	return 0, false, nil
}

// take runs one claiming statement; no row is id 0.
func (r *Runner) take(ctx context.Context, statement string, args pgx.StrictNamedArgs) (id int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.config.StatementTimeout)
	defer cancel()
	err = r.pool.QueryRow(ctx, queries.Get(statement).SQL, args).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("claim: %w", mapError(err))
	}
	return id, nil
}

// application names the transactions of a run in pg_stat_activity; RunEvict reads
// it back.
func application(jobID, fence int64) string {
	return fmt.Sprintf("belfry job %d fence %d", jobID, fence)
}
