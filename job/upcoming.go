package job

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Upcoming is a PENDING job, as far as a timetable shows it.
type Upcoming struct {
	ID         int64     `db:"id"`
	Type       string    `db:"type"`
	Category   string    `db:"category"`
	Title      string    `db:"title"`
	Lane       string    `db:"lane"`
	Priority   int       `db:"priority"`
	ScheduleAt time.Time `db:"schedule_at"` // UTC
}

// Upcoming returns the PENDING jobs of a lane ("": of every one), if it is paused or if it is not, that do not wait for approval and are due from since (nil: from
// whenever) until before until, the soonest first, at most limit. What it reads grows with limit and
// with the lanes, types and priorities that wait, and not with the jobs that do.
func (s *Store) Upcoming(ctx context.Context, lane string, paused bool, since *time.Time, until time.Time, limit int) (list []Upcoming, err error) {
	err = s.read(ctx, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, queries.jobsUpcoming, pgx.StrictNamedArgs{"lane": optional(lane), "paused": paused, "since": since, "until": until, "limit": limit})
		if err != nil {
			return fmt.Errorf("list upcoming jobs: %w", err)
		}
		if list, err = pgx.CollectRows(rows, pgx.RowToStructByName[Upcoming]); err != nil {
			return fmt.Errorf("list upcoming jobs: %w", err)
		}
		return nil
	})
	for i := range list {
		list[i].ScheduleAt = list[i].ScheduleAt.UTC()
	}
	return list, err
}

// Kind is what jobs are alike in, as far as the time that they take is concerned.
type Kind struct{ Type, Category, Lane string }

// durationsLookedAt is how many jobs of a category Durations looks at.
const durationsLookedAt = 200

// Durations returns how long jobs of these kinds take to walk: the median of the last five that were
// PROCESSED, of the kind's lane if that has any, and otherwise of whichever. It looks at the last 200
// of each category. A kind without any is not in the answer.
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
		rows, err := tx.Query(ctx, queries.jobDurations, pgx.StrictNamedArgs{"types": types, "categories": categories, "lanes": lanes, "looks": durationsLookedAt})
		if err != nil {
			return fmt.Errorf("durations of jobs: %w", err)
		}
		var kind int
		var seconds float64
		_, err = pgx.ForEachRow(rows, []any{&kind, &seconds}, func() error {
			took[kinds[kind]] = time.Duration(seconds * float64(time.Second)).Round(time.Millisecond)
			return nil
		})
		if err != nil {
			return fmt.Errorf("durations of jobs: %w", err)
		}
		return nil
	})
	return took, err
}
