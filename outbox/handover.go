package outbox

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// HandOver records that messages are about to be handed to providers, and returns the leases
// whose messages it has recorded: those of a lease that it found expired are not, and must not
// be called, whatever Look says. When it has returned without an error the record is durable:
// of the messages that a dead relay had in flight these have an unknown outcome, and no
// others. Step of each is the one
// that the call is for. bypassed are the refusals of the steps between the one that the
// message was claimed at and that one, of the few that have some: whoever recovers the
// message appends them to its attempts. It may be made again.
func (l *Ledger) HandOver(ctx context.Context, messages []Claimed, bypassed map[Key][]Attempt) (recorded []int64, err error) {
	if err := checkBatch(len(messages)); err != nil || len(messages) == 0 {
		return nil, err
	}
	k := keysOf(messages)
	leases, steps := different(k.leases), make([]int16, 0, len(messages))
	for i := range messages {
		steps = append(steps, small(messages[i].Step))
	}
	var reasons []string // "" of the steps that are called; nil: of all
	if len(bypassed) > 0 {
		reasons = slices.Repeat([]string{""}, len(messages))
		for i := range messages {
			m := &messages[i]
			for _, a := range bypassed[m.Key] {
				k.leases, k.jobs, k.channels = append(k.leases, m.LeaseID), append(k.jobs, m.JobID), append(k.channels, m.ChannelID)
				steps, reasons = append(steps, small(a.Step)), append(reasons, string(a.Reason))
			}
		}
	}
	var b pgx.Batch
	b.Queue(queries.handoverRecord, pgx.StrictNamedArgs{
		"lease_ids": k.leases, "job_ids": k.jobs, "channel_ids": k.channels, "steps": steps, "reasons": reasons, "leases": leases,
	}).Query(func(rows pgx.Rows) (err error) {
		recorded, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		return err
	})
	if err := l.atOnce(ctx, true, &b); err != nil {
		return nil, fmt.Errorf("hand over %d messages: %w", len(messages), err)
	}
	return recorded, nil
}

// different returns the different values of ids, ascending.
func different(ids []int64) []int64 {
	sorted := slices.Clone(ids)
	slices.Sort(sorted)
	return slices.Compact(sorted)
}
