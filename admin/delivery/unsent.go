package delivery

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// Unsent is a job with messages that are not final, and the possible causes.
type Unsent struct {
	JobID    int64
	Type     string
	Status   job.Status
	Lane     string
	Held     bool   // no relay may take them: the job is ABORTED or waits for approval, or its lane is paused
	Awaits   bool   // the job waits for approval
	PausedBy string // who paused its lane; "" unless it is paused
	Route    []string
	Waiting  int64
	DueIn    *time.Duration // of the first due message; nil if all are in flight
	Reason   outbox.Reason  // the reason of its wait; "" before the first attempt
}

// UnsentJobs returns at most the given number of jobs with messages that are not final, the most urgent
// first. With ids it returns only these jobs.
func UnsentJobs(ctx context.Context, pool *pgxpool.Pool, ids []int64, most int) (list []Unsent, err error) {
	err = operation.ReadTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
		list, err = db.All[Unsent](ctx, tx, queries.unsentJobs, pgx.StrictNamedArgs{"ids": ids, "limit": most})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read unsent messages: %w", err)
	}
	return list, nil
}

// ahead is the maximum number of jobs that Ahead returns.
const ahead = 20

// Ahead returns the jobs whose messages relays take before the messages of job id, because they are in the
// same lane and more urgent, or as urgent and older, and the number of these messages. It reads the
// twenty most urgent.
func Ahead(ctx context.Context, pool *pgxpool.Pool, id int64) (jobs []int64, messages int64, err error) {
	err = operation.ReadTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, queries.unsentAhead, pgx.StrictNamedArgs{"id": id, "limit": ahead}).Scan(&jobs, &messages)
	})
	if err != nil {
		return nil, 0, fmt.Errorf("read the jobs ahead of job %d: %w", id, err)
	}
	return jobs, messages, nil
}

// WaitingFor returns the numbers of messages of jobs that may be sent now, by the first medium of the job's route.
func WaitingFor(ctx context.Context, pool *pgxpool.Pool) (map[string]int64, error) {
	counts := make(map[string]int64)
	err := operation.ReadTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
		var medium string
		var n int64
		return db.Each(ctx, tx, queries.messagesWaitingFor, pgx.StrictNamedArgs{}, []any{&medium, &n}, func() error {
			counts[medium] = n
			return nil
		})
	})
	return counts, err
}

// Waiting returns the number of messages that may be sent now.
func Waiting(ctx context.Context, pool *pgxpool.Pool) (n int64, err error) {
	err = operation.ReadTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, queries.messagesWaiting).Scan(&n)
	})
	return n, err
}
