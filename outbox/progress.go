package outbox

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/db"
)

// Progress counts a job's messages by their state. It is exact in every committed state and is read from
// counters (belfry.job_progress). Messages that retention has deleted remain counted.
type Progress struct {
	JobID     int64 `json:"job_id" db:"job_id"`
	Messages  int64 `json:"messages" db:"messages"` // written
	Sent      int64 `json:"sent" db:"sent"`
	Dead      int64 `json:"dead" db:"dead"`
	Cancelled int64 `json:"cancelled" db:"cancelled"`
	Waiting   int64 `json:"waiting" db:"waiting"` // not final yet
}

// ProgressOf returns the progress of jobs by their ids, from one snapshot. A job that does
// not exist is left out, and one that wrote no message is all zeros.
func ProgressOf(ctx context.Context, pool *pgxpool.Pool, jobIDs []int64) (map[int64]Progress, error) {
	of := make(map[int64]Progress, len(jobIDs))
	err := inSnapshot(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
		list, err := db.All[Progress](ctx, tx, queries.jobProgress, pgx.StrictNamedArgs{"ids": jobIDs})
		for _, p := range list {
			of[p.JobID] = p
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("progress of jobs: %w", err)
	}
	return of, nil
}

// OwnClaimedTx shows in their rows which messages of a job are in flight, and which of the next keys messages after a
// channel are QUEUED, except those that another session has locked. Until the end of tx it prevents claims of them, and
// of messages that were never claimed. Call it before a statement that changes these messages for another reason than
// their delivery, and before it locks any. An error is as pgx returned it.
func OwnClaimedTx(ctx context.Context, tx pgx.Tx, jobID, after int64, keys int) error {
	_, err := tx.Exec(ctx, queries.claimsOwn, pgx.StrictNamedArgs{"job_id": jobID, "after": after, "keys": keys})
	return err
}

// ProgressChange is a change of one job's Progress by a chunk or an operator's act.
type ProgressChange struct{ Written, Dead, Cancelled int64 }

// ChangeProgressTx adds to the Progress of jobs by their ids, in the transaction that changed
// their messages and before it touches their rows. Activities are not counted. An error
// is as pgx returned it.
func ChangeProgressTx(ctx context.Context, tx pgx.Tx, of map[int64]ProgressChange) error {
	var ids, written, dead, cancelled []int64
	for _, id := range slices.Sorted(maps.Keys(of)) {
		if d := of[id]; id > 0 && d != (ProgressChange{}) {
			ids, written, dead, cancelled = append(ids, id), append(written, d.Written), append(dead, d.Dead), append(cancelled, d.Cancelled)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, queries.deliveriesAdd,
		pgx.StrictNamedArgs{"job_ids": ids, "written": written, "dead": dead, "cancelled": cancelled})
	return err
}
