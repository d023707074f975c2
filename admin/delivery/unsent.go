package delivery

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// Unsent is a job with messages that are not final, and what they may wait for.
type Unsent struct {
	JobID   int64
	Type    string
	Status  job.Status
	Lane    string
	Held    bool // no relay may take them: the job is ABORTED or waits for approval, or its lane is paused
	Awaits  bool // the job waits for approval
	Route   []string
	Waiting int64
	DueIn   *time.Duration // of the one due first; nil: all are in flight
	Reason  outbox.Reason  // what that one waits for; "": its first attempt
}

// UnsentJobs returns the jobs with messages that are not final, the most urgent first and
// at most so many; with ids only those among them. None: nothing is left to send.
func UnsentJobs(ctx context.Context, pool *pgxpool.Pool, ids []int64, most int) (list []Unsent, err error) {
	err = reading(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, queries.unsentJobs, pgx.StrictNamedArgs{"ids": ids, "limit": most})
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, pgx.RowToStructByName[Unsent])
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look for unsent messages: %w", err)
	}
	return list, nil
}
