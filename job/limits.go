package job

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/db"
)

// Limits is the row of belfry.limits. It restricts the settings of jobs from roles that may INSERT but not
// UPDATE jobs, and from authors over HTTP, by ceilings and floors (Min…). Nil means no limit.
type Limits struct {
	Priority         *int     `json:"priority"`
	MaxRowsPerSecond *int     `json:"max_rows_per_second"`
	DutyCycle        *float64 `json:"duty_cycle"`
	ChunkTargetMS    *int     `json:"chunk_target_ms"`
	MaxChunkRows     *int     `json:"max_chunk_rows"`
	MaxSkips         *int     `json:"max_skips"`
	MaxRecipients    *int     `json:"max_recipients"`      // of a job that asks for none, too
	HealthChecks     bool     `json:"health_checks"`       // true: they may not be switched off
	MinPriority      *int     `json:"min_priority"`        // the lowest Priority
	MinRowsPerSecond *int     `json:"min_rows_per_second"` // the least MaxRowsPerSecond; 0, no limit, is above it
	MinDutyCycle     *float64 `json:"min_duty_cycle"`
	MinChunkTargetMS *int     `json:"min_chunk_target_ms"`
	MinChunkRows     *int     `json:"min_chunk_rows"` // the least MaxChunkRows
	// Version is the id of the event of the newest change, or 0 if there was none.
	Version int64 `json:"version"`
}

// ResourceVersion returns Version. It makes a Limits a versioned result of an operation.
func (l Limits) ResourceVersion() (version int64, one bool) { return l.Version, true }

// Limits returns the ceilings and floors.
func (s *Store) Limits(ctx context.Context) (l Limits, err error) {
	err = s.read(ctx, func(ctx context.Context, tx pgx.Tx) error {
		l, err = readLimits(ctx, tx)
		return err
	})
	return l, err
}

// SetLimits changes ceilings and floors by their column and records the actor and the reason. A nil value
// removes a limit. Limits apply to jobs that are enqueued from now on.
func (s *Store) SetLimits(ctx context.Context, changes Changes, act Act) (l Limits, err error) {
	document, err := json.Marshal(changes)
	if err != nil {
		return l, fmt.Errorf("limits: %w", err)
	}
	err = s.change(ctx, act, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, queries.actAs, pgx.StrictNamedArgs{"actor": act.Actor, "reason": act.Reason, "kind": ""}); err != nil {
			return fmt.Errorf("limits: %w", err)
		}
		if _, err := tx.Exec(ctx, queries.limitsSet, pgx.StrictNamedArgs{"changes": string(document)}); err != nil {
			return fmt.Errorf("limits: %w", TranslateError(err, ErrLocked, "belfry.limits"))
		}
		l, err = readLimits(ctx, tx)
		return err
	})
	return l, db.ExplainLock(ctx, s.pool, err, "the row of belfry.limits", "limits", "")
}

func readLimits(ctx context.Context, tx pgx.Tx) (Limits, error) {
	rows, err := tx.Query(ctx, queries.limitsGet)
	if err != nil {
		return Limits{}, fmt.Errorf("limits: %w", err)
	}
	l, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Limits])
	if err != nil {
		return Limits{}, fmt.Errorf("limits: %w", err)
	}
	return l, nil
}
