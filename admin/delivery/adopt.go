package delivery

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// Adopt lets messages leave from where the database is now, records who decided so, and
// wakes the relays. place is the delivery.place of those that deliver; "" leaves it as it is. One that is adopted already stays as it is.
func Adopt(ctx context.Context, pool *pgxpool.Pool, place string, act job.Act) (i outbox.Installation, err error) {
	err = operation.StepTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, queries.installationAdopt, pgx.StrictNamedArgs{"actor": optional(act.Actor), "reason": act.Reason, "place": optional(place)}); err != nil {
			return err
		}
		i, err = outbox.ReadInstallationTx(ctx, tx)
		return err
	})
	if err != nil {
		return outbox.Installation{}, fmt.Errorf("adopt the database: %w", err)
	}
	return i, nil
}

// Backlog is what waits to be sent in a database, of jobs by when they were enqueued.
type Backlog struct {
	Ages       []BacklogAge `json:"ages"`       // youngest first; without those that nothing waits of
	Activities int64        `json:"activities"` // messages of activities; of more than 100,000 no more are counted
	Unwalked   int64        `json:"unwalked"`   // jobs that have not written all their rows yet
	Schedules  int64        `json:"schedules"`  // that are not paused
}

// BacklogAge is what waits of the jobs that were enqueued within a time and not within the
// one before.
type BacklogAge struct {
	Within   *time.Duration `json:"within"` // nanoseconds; null: before
	Jobs     int64          `json:"jobs"`
	Messages int64          `json:"messages"`
}

// ReadBacklog returns what a relay would send, now or later. What is held, of ABORTED jobs
// and paused lanes, does not count.
func ReadBacklog(ctx context.Context, pool *pgxpool.Pool) (b Backlog, err error) {
	err = operation.SnapshotTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, queries.backlogAges)
		if err != nil {
			return err
		}
		b.Ages, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (a BacklogAge, err error) {
			err = row.Scan(&a.Within, &a.Jobs, &a.Messages)
			return a, err
		})
		if err != nil {
			return err
		}
		return tx.QueryRow(ctx, queries.backlogOther).Scan(&b.Activities, &b.Unwalked, &b.Schedules)
	})
	if err != nil {
		return Backlog{}, fmt.Errorf("read the waiting messages: %w", err)
	}
	return b, nil
}
