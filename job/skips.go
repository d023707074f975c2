package job

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/db"
)

// Skip is one recipient that a run skipped because its rows cannot be written.
type Skip struct {
	JobID     int64     `json:"job_id" db:"job_id"`
	Key       string    `json:"key" db:"key"`           // in the job's keyset; of belfry's own types, the channel's id
	SQLState  string    `json:"sqlstate" db:"sqlstate"` // empty: the Writer's own error
	Error     string    `json:"error" db:"error" mask:"text"`
	Attempts  int       `json:"attempts" db:"attempts"`
	Retry     bool      `json:"retry" db:"retry"` // the next run tries it again
	SkippedAt time.Time `json:"skipped_at" db:"skipped_at"`
	TriedAt   time.Time `json:"tried_at" db:"tried_at"` // the last attempt
}

// Skips returns a job's skipped recipients in the order of their keys' text, after
// the given one (empty: from the first), at most limit (0: 1,000). ErrNotFound when
// there is no such job.
func (s *Store) Skips(ctx context.Context, id int64, after string, limit int) (list []Skip, err error) {
	if limit <= 0 {
		limit = 1000
	}
	err = s.read(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := get(ctx, tx, id); err != nil {
			return err
		}
		if list, err = db.All[Skip](ctx, tx, queries.jobSkips, pgx.StrictNamedArgs{"job_id": id, "after": after, "limit": limit}); err != nil {
			return fmt.Errorf("skips of job %d: %w", id, err)
		}
		return nil
	})
	return list, err
}
