package job

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/db"
)

// ErrHalted means that an operator has halted belfry: no job runs, no schedule fires, and no message leaves
// the database, in any process, until `belfry unhalt`.
var ErrHalted = errors.New("belfry is halted")

// Halt is the state of the halt, in the database's clock.
type Halt struct {
	At     *time.Time `json:"halted_at" db:"halted_at"` // nil if belfry is not halted
	By     string     `json:"halted_by" db:"halted_by"`
	Reason string     `json:"halt_reason" db:"halt_reason"`
}

// Err returns nil, or ErrHalted with the time, the actor and the reason.
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

// Halt stops generation and delivery of everything. When it returns without error no further row and no
// cursor movement of any job is committed, and no message that was not handed to a provider is sent. RUNNING
// jobs become PENDING and retain their cursors. It waits up to 2 seconds for sessions that have locked rows
// of jobs (see Holders); such a session can still commit the rows it has written. If belfry is halted
// already, changed is false. After ErrUnreachable the halt may have taken effect; repeat the call.
func (s *Store) Halt(ctx context.Context, act Act) (h Halt, changed bool, err error) {
	return s.setHalt(ctx, queries.halt, act)
}

// Unhalt ends a halt. The running processes continue all work where it was. If belfry is not halted, changed
// is false.
func (s *Store) Unhalt(ctx context.Context, act Act) (changed bool, err error) {
	_, changed, err = s.setHalt(ctx, queries.unhalt, act)
	return changed, err
}

func (s *Store) setHalt(ctx context.Context, statement string, act Act) (h Halt, changed bool, err error) {
	err = s.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		var note string
		err := tx.QueryRow(ctx, statement, pgx.StrictNamedArgs{"actor": optional(act.Actor), "reason": act.Reason}).Scan(&h.At, &h.By,
			&h.Reason, &note)
		changed = note == ""
		return err
	})
	if err != nil {
		return Halt{}, false, fmt.Errorf("halt: %w", db.ExplainLock(ctx, s.pool, err, "the row of belfry.installation", "installation", ""))
	}
	return h, changed, nil
}

// Halted returns the state of the halt.
func (s *Store) Halted(ctx context.Context) (h Halt, err error) {
	err = s.read(ctx, func(ctx context.Context, tx pgx.Tx) error {
		h, err = readHalt(ctx, tx)
		return err
	})
	return h, err
}

func readHalt(ctx context.Context, tx pgx.Tx) (Halt, error) {
	h, err := db.One[Halt](ctx, tx, queries.haltGet)
	if err != nil {
		return Halt{}, fmt.Errorf("read the halt: %w", err)
	}
	return h, nil
}

// logHalt logs the beginning and the end of a halt, once each.
func (r *Runner) logHalt(now Halt) {
	switch was := r.halted; {
	case now.At != nil && !was:
		r.log.Warn().Err(now.Err()).Msg("no job runs before `belfry unhalt`")
	case now.At == nil && was:
		r.log.Info().Msg("belfry is no longer halted; jobs run again")
	}
	r.halted = now.At != nil
}
