package jobs

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/admin/operation"
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

func statusOperation() operation.Operation {
	return operation.Define(operation.Operation{
		Name: "status", Short: "Show halts, paused lanes and senders, and the number of running jobs", Role: operation.Viewer,
		Long: `Show in a few lines whether operators have stopped anything: a halt, with its actor and
reason, and paused lanes and senders. The exit code is 0 in each case. For problems see
` + "`belfry doctor`" + `.`,
		Example: "  belfry status\n  belfry status --json | jq .halted_at",
	}, ReadStatus, statusText)
}

// ReadStatus reads the halt, the paused lanes and senders, and the number of running jobs.
func ReadStatus(ctx context.Context, env *operation.Env, _ operation.None) (s Status, err error) {
	err = operation.Reading(ctx, env, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, queries.statusRead, pgx.StrictNamedArgs{"limit": statusMost})
		if err != nil {
			return err
		}
		s, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Status])
		return err
	})
	return s, err
}

func statusText(d *text.Doc, _ operation.None, s Status) {
	if s.Halted() {
		d.Line("%s", s.HaltLine())
		d.Note("%s", endHalt())
	} else {
		d.Line("belfry is not halted")
	}
	d.Line("%s running", text.Counted(s.Running, "job"))
	for _, paused := range []struct {
		kind  string
		names []string
	}{{"lane", s.PausedLanes}, {"sender", s.PausedSenders}} {
		if len(paused.names) > 0 {
			refs := make([]text.RefCell, len(paused.names))
			for i, name := range paused.names {
				refs[i] = text.Ref(paused.kind, name)
			}
			d.Line("paused %ss: %s", paused.kind, text.Join(refs, ", "))
		}
	}
}

// haltLine returns the time, the actor and the reason of a halt.
func haltLine(h job.Halt) text.Line {
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
	return haltLine(s.Halt)
}
