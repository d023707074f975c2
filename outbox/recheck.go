package outbox

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// Verdict is the result of a recheck for one message.
type Verdict string

// The verdicts.
const (
	VerdictSend     Verdict = "send"
	VerdictHeld     Verdict = "held"     // by its job, a paused lane or a halt: return it to PENDING unchanged
	VerdictEdited   Verdict = "edited"   // its job's content was corrected: return it to PENDING unchanged, to be composed again
	VerdictRecalled Verdict = "recalled" // it becomes CANCELLED
	VerdictLost     Verdict = "lost"     // another owner has it, it is finished, or its lease has expired: ignore it
)

// Recheck returns one verdict per message, in the same order, from one snapshot. The relay calls it after
// HandOver and right before the provider's call. Only VerdictSend, under a lease that HandOver has returned,
// allows a call. The call must follow at once: from now on the message counts as handed to the provider
// (I6).
func (l *Ledger) Recheck(ctx context.Context, messages []Claimed) ([]Verdict, error) {
	if err := checkBatch(len(messages)); err != nil || len(messages) == 0 {
		return nil, err
	}
	k := keysOf(messages)
	of := keys{tids: k.tids}
	v, err := l.recheck(ctx, k, of)
	if err != nil {
		return nil, err
	}
	for i := range messages {
		if v.verdict(&messages[i]) == VerdictLost { // or its row has moved since its claim
			of.jobs, of.channels = append(of.jobs, k.jobs[i]), append(of.channels, k.channels[i])
		}
	}
	if len(of.jobs) > 0 {
		// All messages again: one that passed the first check may be held by now.
		if v, err = l.recheck(ctx, k, of); err != nil {
			return nil, err
		}
	}
	verdicts := make([]Verdict, len(messages))
	for i := range messages {
		verdicts[i] = v.verdict(&messages[i])
	}
	return verdicts, nil
}

// view is the result of one recheck query.
type view struct {
	halted bool
	jobs   map[int64]int32 // content revisions of the jobs whose messages may be sent
	leases []int64         // valid ones
	owned  map[Key]owned   // messages in flight
}

type owned struct {
	lease     int64
	unchanged bool // its row: it belongs to the lease that claimed it
	recalled  bool
}

// verdict repeats the rule of the view sendable_messages.
func (v *view) verdict(m *Claimed) Verdict {
	o, found := v.owned[m.Key]
	revision, sendable := v.jobs[m.JobID]
	switch {
	case !found || !o.unchanged && o.lease != m.LeaseID || !slices.Contains(v.leases, m.LeaseID):
		return VerdictLost
	case o.recalled:
		return VerdictRecalled
	case v.halted, m.JobID > 0 && !sendable:
		return VerdictHeld
	case m.JobID > 0 && int(revision) != m.Revision:
		return VerdictEdited
	}
	return VerdictSend
}

// recheck queries the messages in of by their row positions and keys, and the leases and jobs of all.
func (l *Ledger) recheck(ctx context.Context, all, of keys) (*view, error) {
	v := &view{}
	var b pgx.Batch
	b.Queue(queries.messageRecheck, pgx.StrictNamedArgs{
		"tids": of.tids, "job_ids": of.jobs, "channel_ids": of.channels, "leases": different(all.leases), "jobs": different(all.jobs),
	}).QueryRow(func(row pgx.Row) error {
		var revisions []int32
		var ids, jobs, channels, leases []int64
		var unchanged, recalled []bool
		if err := row.Scan(&v.halted, &ids, &revisions, &v.leases, &jobs, &channels, &leases, &unchanged, &recalled); err != nil {
			return err
		}
		v.jobs, v.owned = make(map[int64]int32, len(ids)), make(map[Key]owned, len(jobs))
		for i, id := range ids {
			v.jobs[id] = revisions[i]
		}
		for i := range jobs {
			v.owned[Key{jobs[i], channels[i]}] = owned{leases[i], unchanged[i], recalled[i]}
		}
		return nil
	})
	if err := l.atOnce(ctx, false, &b); err != nil {
		return nil, fmt.Errorf("recheck %d messages: %w", len(all.jobs), err)
	}
	return v, nil
}
