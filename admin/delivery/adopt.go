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

// Adopt permits delivery from the current location of the database, records the actor, and wakes the
// relays. place is the delivery.place of the relays; "" does not change it. An adopted database is not
// changed.
func Adopt(ctx context.Context, pool *pgxpool.Pool, place string, act job.Act) (i outbox.Installation, err error) {
	err = operation.StepTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, queries.installationAdopt,
			pgx.StrictNamedArgs{"actor": optional(act.Actor), "reason": act.Reason, "place": optional(place)}); err != nil {
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

// Backlog has the waiting messages of a database, by the age of their jobs.
type Backlog struct {
	Ages       []BacklogAge `json:"ages"`       // youngest first; without empty ones
	Activities int64        `json:"activities"` // messages of activities; counted up to 100,000
	Unwalked   int64        `json:"unwalked"`   // jobs that have not written all their rows yet
	Schedules  int64        `json:"schedules"`  // that are not paused
}

// BacklogAge has the waiting messages of jobs that were enqueued within a time and not within the
// previous one.
type BacklogAge struct {
	Within   *time.Duration `json:"within"` // nanoseconds; null: before
	Jobs     int64          `json:"jobs"`
	Messages int64          `json:"messages"`
}

// ReadBacklog returns the messages that a relay would send now or later, without held messages of
// ABORTED jobs and paused lanes.
func ReadBacklog(ctx context.Context, pool *pgxpool.Pool) (b Backlog, err error) {
	err = operation.SnapshotTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
		b.Ages, err = db.Collect(ctx, tx, queries.backlogAges, nil, func(row pgx.CollectableRow) (a BacklogAge, err error) {
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
