package operation

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// statusMost is the maximum number of paused lanes, and of paused senders, of a status.
const statusMost = 100

// Status reports whether operators have stopped anything.
type Status struct {
	job.Halt

	Running       int64    `json:"running" db:"running"`               // jobs
	PausedLanes   []string `json:"paused_lanes" db:"paused_lanes"`     // the first 100, by name
	PausedSenders []string `json:"paused_senders" db:"paused_senders"` // the first 100, by name
	// Place is the position of the last events, from which a watch can follow.
	Place string `json:"place" db:"place"`
}

// Halted reports whether everything is halted.
func (s Status) Halted() bool { return s.At != nil }

// ReadStatus reads the halt, the paused lanes and senders, and the number of running jobs.
func ReadStatus(ctx context.Context, env *Env, _ None) (s Status, err error) {
	err = Reading(ctx, env, func(ctx context.Context, tx pgx.Tx) error {
		s, err = db.One[Status](ctx, tx, queries.statusRead, pgx.StrictNamedArgs{"limit": statusMost})
		return err
	})
	return s, err
}

// HaltLine returns the time, the actor and the reason of a halt.
func HaltLine(h job.Halt) text.Line {
	reason := ""
	if h.Reason != "" {
		reason = ": " + text.OneLine(h.Reason, 200)
	}
	return text.Sprintf("everything is halted since %s by %s%s", h.At, h.By, reason)
}

// HaltLine describes the halt. It is empty if there is none.
func (s Status) HaltLine() text.Line {
	if !s.Halted() {
		return nil
	}
	return HaltLine(s.Halt)
}
