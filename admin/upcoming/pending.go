package upcoming

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/db"
)

// pendingJob is a PENDING job in the list of upcoming work.
type pendingJob struct {
	ID         int64     `db:"id"`
	Type       string    `db:"type"`
	Category   string    `db:"category"`
	Title      string    `db:"title"`
	Lane       string    `db:"lane"`
	Priority   int       `db:"priority"`
	ScheduleAt time.Time `db:"schedule_at"` // UTC
}

// pendingFilter selects pending jobs. The zero value of each field except Limit means no restriction.
type pendingFilter struct {
	Lane    string     // only jobs of this lane
	NotHeld bool       // only jobs of lanes that are not paused
	Until   *time.Time // only jobs that are due before this time
	// After, AfterLane and AfterID are the position after which the list continues: the due time,
	// the lane and the id of the job before.
	After     time.Time
	AfterLane string
	AfterID   int64
	Limit     int
}

// pendingJobs returns PENDING jobs that do not wait for approval, ordered by due time, lane (as bytes) and
// id. The number of rows that it reads depends on the limit and on the number of lanes, types and
// priorities of pending jobs, and not on the number of pending jobs.
func pendingJobs(ctx context.Context, pool *pgxpool.Pool, f pendingFilter) (list []pendingJob, err error) {
	lane := &f.Lane
	if f.Lane == "" {
		lane = nil
	}
	err = operation.ReadTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
		list, err = db.All[pendingJob](ctx, tx, queries.jobsUpcoming, pgx.StrictNamedArgs{
			"lane": lane, "not_held": f.NotHeld, "until": f.Until,
			"after": f.After, "after_lane": f.AfterLane, "after_id": f.AfterID, "limit": f.Limit,
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list upcoming jobs: %w", err)
	}
	for i := range list {
		list[i].ScheduleAt = list[i].ScheduleAt.UTC()
	}
	return list, nil
}

// kind groups jobs whose walks are expected to take the same time.
type kind struct{ Type, Category, Lane string }

// durationsRead is the number of jobs that durations reads of each category.
const durationsRead = 200

// durations returns how long the walk of a job of each kind takes: the median of the last five
// PROCESSED jobs of the kind's type, category and lane or, if that lane has none, of its type and
// category. It reads the last 200 PROCESSED jobs of each category. The result has no entry for a kind
// without such jobs.
func durations(ctx context.Context, pool *pgxpool.Pool, kinds []kind) (took map[kind]time.Duration, err error) {
	took = make(map[kind]time.Duration, len(kinds))
	if len(kinds) == 0 {
		return took, nil
	}
	types, categories, lanes := make([]string, len(kinds)), make([]string, len(kinds)), make([]string, len(kinds))
	for i, k := range kinds {
		types[i], categories[i], lanes[i] = k.Type, k.Category, k.Lane
	}
	err = operation.ReadTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
		var of int
		var seconds float64
		err = db.Each(ctx, tx, queries.jobDurations, pgx.StrictNamedArgs{
			"types": types, "categories": categories, "lanes": lanes, "looks": durationsRead,
		}, []any{&of, &seconds}, func() error {
			took[kinds[of]] = time.Duration(seconds * float64(time.Second)).Round(time.Millisecond)
			return nil
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read durations of jobs: %w", err)
	}
	return took, nil
}
