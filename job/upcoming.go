package job

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Upcoming is a PENDING job in the list of upcoming work.
type Upcoming struct {
	ID         int64     `db:"id"`
	Type       string    `db:"type"`
	Category   string    `db:"category"`
	Title      string    `db:"title"`
	Lane       string    `db:"lane"`
	Priority   int       `db:"priority"`
	ScheduleAt time.Time `db:"schedule_at"` // UTC
}

// UpcomingFilter selects upcoming jobs. The zero value of each field except Limit means no restriction.
type UpcomingFilter struct {
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

// Upcoming returns PENDING jobs that do not wait for approval, ordered by due time, lane (as bytes) and
// id. The number of rows that it reads depends on the limit and on the number of lanes, types and
// priorities of pending jobs, and not on the number of pending jobs.
func (s *Store) Upcoming(ctx context.Context, f UpcomingFilter) (list []Upcoming, err error) {
	err = s.read(ctx, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, queries.jobsUpcoming, pgx.StrictNamedArgs{
			"lane": optional(f.Lane), "not_held": f.NotHeld, "until": f.Until, "after": f.After, "after_lane": f.AfterLane, "after_id": f.AfterID, "limit": f.Limit,
		})
		if err == nil {
			list, err = pgx.CollectRows(rows, pgx.RowToStructByName[Upcoming])
		}
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

// Kind groups jobs whose walks are expected to take the same time.
type Kind struct{ Type, Category, Lane string }

// durationsRead is the number of jobs that Durations reads of each category.
const durationsRead = 200

// Durations returns how long the walk of a job of each kind takes: the median of the last five
// PROCESSED jobs of the kind's type, category and lane or, if that lane has none, of its type and
// category. It reads the last 200 PROCESSED jobs of each category. The result has no entry for a kind
// without such jobs.
func (s *Store) Durations(ctx context.Context, kinds []Kind) (took map[Kind]time.Duration, err error) {
	took = make(map[Kind]time.Duration, len(kinds))
	if len(kinds) == 0 {
		return took, nil
	}
	types, categories, lanes := make([]string, len(kinds)), make([]string, len(kinds)), make([]string, len(kinds))
	for i, k := range kinds {
		types[i], categories[i], lanes[i] = k.Type, k.Category, k.Lane
	}
	err = s.read(ctx, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, queries.jobDurations, pgx.StrictNamedArgs{"types": types, "categories": categories, "lanes": lanes, "looks": durationsRead})
		if err != nil {
			return err
		}
		var kind int
		var seconds float64
		_, err = pgx.ForEachRow(rows, []any{&kind, &seconds}, func() error {
			took[kinds[kind]] = time.Duration(seconds * float64(time.Second)).Round(time.Millisecond)
			return nil
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read durations of jobs: %w", err)
	}
	return took, nil
}
