package outbox

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// HandOver durably records that messages are about to be handed to providers, and returns the leases whose
// messages it recorded. Messages of an expired lease are not recorded and must not be sent, whatever Recheck
// returns. If a relay dies, only its recorded messages have an unknown outcome. The step of each message is
// the step of the call. bypassed are the refusals of the steps between the claimed step and that one, if
// there are any; a recovery appends them to the attempts. HandOver can be repeated.
func (l *Ledger) HandOver(ctx context.Context, messages []Claimed, bypassed map[Key][]Attempt) (recorded []int64, err error) {
	if err := checkBatch(len(messages)); err != nil || len(messages) == 0 {
		return nil, err
	}
	k := keysOf(messages)
	leases, steps := different(k.leases), make([]int16, 0, len(messages))
	for i := range messages {
		steps = append(steps, small(messages[i].Step))
	}
	var reasons []string // "" for steps that are called; nil means all
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

// different returns the distinct values of ids, ascending.
func different(ids []int64) []int64 {
	sorted := slices.Clone(ids)
	slices.Sort(sorted)
	return slices.Compact(sorted)
}
