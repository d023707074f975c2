package job

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/db"
)

// ErrHalted means that an operator has halted belfry: no job runs, no schedule fires, and no
// message leaves the database, whatever process works on it, until it is lifted.
var ErrHalted = errors.New("belfry is halted")

// Halt is whether everything is halted, in the database's clock.
type Halt struct {
	At     *time.Time `json:"halted_at" db:"halted_at"` // nil: it is not
	By     string     `json:"halted_by" db:"halted_by"`
	Reason string     `json:"halt_reason" db:"halt_reason"`
}

// Err is nil, or ErrHalted with since when, by whom and why.
func (h Halt) Err() error {
	if h.At == nil {
		return nil
	}
	why := ""
	if h.Reason != "" {
		why = ": " + h.Reason
	}
	return fmt.Errorf("%w since %s by %s%s", ErrHalted, h.At.UTC().Format("2006-01-02 15:04:05Z"), h.By, why)
}

// Halt stops generation and delivery of everything. When it returns without error no further
// row and no cursor movement of any job is committed, and no message that was not handed to a
// provider is sent. Jobs that ran are PENDING, with their cursors. It waits for 2 seconds for
// sessions that keep rows of jobs locked (see Holders), each of which may still commit what it has written. What is halted stays as it
// is, which changed tells. When the error is ErrUnreachable it may have happened; repeat it.
func (s *Store) Halt(ctx context.Context, act Act) (h Halt, changed bool, err error) {
	return s.setHalt(ctx, queries.halt, act)
}

// Lift ends a Halt: everything goes on where it was, in the processes that are there. What is
// not halted stays as it is.
func (s *Store) Unhalt(ctx context.Context, act Act) (changed bool, err error) {
	_, changed, err = s.setHalt(ctx, queries.unhalt, act)
	return changed, err
}

func (s *Store) setHalt(ctx context.Context, statement string, act Act) (h Halt, changed bool, err error) {
	err = s.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		var note string
		err := tx.QueryRow(ctx, statement, pgx.StrictNamedArgs{"actor": optional(act.Actor), "reason": act.Reason}).Scan(&h.At, &h.By, &h.Reason, &note)
		changed = note == ""
		return err
	})
	if err != nil {
		return Halt{}, false, fmt.Errorf("halt: %w", db.ExplainLock(ctx, s.pool, err, "the row of belfry.installation", "installation", ""))
	}
	return h, changed, nil
}

// Halted returns whether everything is halted.
func (s *Store) Halted(ctx context.Context) (h Halt, err error) {
	err = s.read(ctx, func(ctx context.Context, tx pgx.Tx) error {
		h, err = readHalt(ctx, tx)
		return err
	})
	return h, err
}

func readHalt(ctx context.Context, tx pgx.Tx) (Halt, error) {
	rows, err := tx.Query(ctx, queries.haltGet)
	if err != nil {
		return Halt{}, fmt.Errorf("read the halt: %w", err)
	}
	return pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Halt])
}

// tellHalt logs, once each, that everything is halted and that it is no more.
func (r *Runner) logHalt(now Halt) {
	switch was := r.halted; {
	case now.At != nil && !was:
		r.log.Warn().Err(now.Err()).Msg("no job runs before `belfry unhalt`")
	case now.At == nil && was:
		r.log.Info().Msg("belfry is no longer halted; jobs run again")
	}
	r.halted = now.At != nil
}
