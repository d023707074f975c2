package outbox

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Verdict is what the look right before a provider's call says.
type Verdict string

// The verdicts.
const (
	VerdictSend     Verdict = "send"
	VerdictHeld     Verdict = "held"     // its job is ABORTED or waits for approval, its lane is paused, or all is halted: back to PENDING, as it was
	VerdictEdited   Verdict = "edited"   // its job's content was corrected: back to PENDING, as it was, to be composed anew
	VerdictRecalled Verdict = "recalled" // becomes CANCELLED
	VerdictLost     Verdict = "lost"     // another owner has it, or it is finished, or its lease has expired: forget it
)

// Look is the look right before the call, after HandOver: one verdict per message, in
// their order, from one snapshot. Only VerdictSend, under a lease that HandOver has
// returned, allows a call, and the call is to follow at once: the message counts as handed to
// the provider from now on (I6).
func (l *Ledger) Look(ctx context.Context, messages []Claimed) ([]Verdict, error) {
	if err := checkBatch(len(messages)); err != nil || len(messages) == 0 {
		return nil, err
	}
	k := keysOf(messages)
	of := keys{tids: k.tids}
	v, err := l.look(ctx, k, of)
	if err != nil {
		return nil, err
	}
	for i := range messages {
		if v.verdict(&messages[i]) == VerdictLost { // or it is where its claim did not leave it
			of.jobs, of.channels = append(of.jobs, k.jobs[i]), append(of.channels, k.channels[i])
		}
	}
	if len(of.jobs) > 0 {
		// All of them again: what the first look let pass may be held by now.
		if v, err = l.look(ctx, k, of); err != nil {
			return nil, err
		}
	}
	verdicts := make([]Verdict, len(messages))
	for i := range messages {
		verdicts[i] = v.verdict(&messages[i])
	}
	return verdicts, nil
}

// view is what one look has found.
type view struct {
	halted bool
	jobs   map[int64]int32 // whose messages may be sent: the revisions of their contents
	owned  map[Key]owned   // what is in flight under leases that live
}

type owned struct {
	lease    int64
	recalled bool
}

// verdict repeats the rule of the view sendable_messages.
func (v *view) verdict(m *Claimed) Verdict {
	o, found := v.owned[m.Key]
	revision, sendable := v.jobs[m.JobID]
	switch {
	case !found || o.lease != m.LeaseID:
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

// look asks for messages by their places and by their keys, as of says; all has the leases and
// jobs of every one.
func (l *Ledger) look(ctx context.Context, all, of keys) (*view, error) {
	v := &view{}
	var b pgx.Batch
	b.Queue(queries.messageLook, pgx.StrictNamedArgs{
		"tids": of.tids, "job_ids": of.jobs, "channel_ids": of.channels, "leases": different(all.leases), "jobs": different(all.jobs),
	}).QueryRow(func(row pgx.Row) error {
		var revisions []int32
		var ids, jobs, channels, leases []int64
		var recalled []bool
		if err := row.Scan(&v.halted, &ids, &revisions, &jobs, &channels, &leases, &recalled); err != nil {
			return err
		}
		v.jobs, v.owned = make(map[int64]int32, len(ids)), make(map[Key]owned, len(jobs))
		for i, id := range ids {
			v.jobs[id] = revisions[i]
		}
		for i := range jobs {
			v.owned[Key{jobs[i], channels[i]}] = owned{leases[i], recalled[i]}
		}
		return nil
	})
	if err := l.atOnce(ctx, false, &b); err != nil {
		return nil, fmt.Errorf("look at %d messages: %w", len(all.jobs), err)
	}
	return v, nil
}
