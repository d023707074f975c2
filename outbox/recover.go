package outbox

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/db"
)

// Lost is a lease that its relay no longer renews, with the messages in PROCESSING under it.
type Lost struct {
	LeaseID int64
	Relay   string
	// Handed are the messages that were handed to providers; their outcome is unknown.
	Handed []Handed
	// Unhanded is the number of messages that were certainly not sent.
	Unhanded int
	// Unread means that the messages are unknown, because the statement that reads those of several leases
	// failed. ReadLost reads those of one.
	Unread bool

	orphan bool
}

// Handed is a message that a stopped relay had handed to a provider. Step is the step of that call, Attempts
// the number of earlier calls of the step.
type Handed struct {
	Claimed
	Route    []string  // of its job or activity; empty if that was deleted
	Bypassed []Attempt // refusals of earlier steps that are not recorded yet
}

// bypassedSteps returns the refusals of a handover, once each even if it was repeated.
func bypassedSteps(steps []int, reasons, route []string) (bypassed []Attempt) {
	for i, step := range steps {
		if i > 0 && step == steps[i-1] {
			continue
		}
		a := Attempt{Step: step, Outcome: OutcomeRefused, Reason: Reason(reasons[i])}
		if step < len(route) {
			a.Medium = route[step]
		}
		bypassed = append(bypassed, a)
	}
	return bypassed
}

// Holds reports whether a lease is certainly valid: this ledger claimed or renewed it less than the lease time ago, by
// this process's clocks. It queries no database, so that a call can ask directly before the step that cannot be undone.
// A process that was stopped, or has lost its database, does not hold its leases.
func (l *Ledger) Holds(leaseID int64) bool {
	l.mu.Lock()
	since, known := l.leases[leaseID]
	l.mu.Unlock()
	return known && l.age(since) < l.leaseTime
}

// age returns the time since then by the clock that has passed further: the monotonic clock stands still while the
// machine is suspended.
func (*Ledger) age(since time.Time) time.Duration {
	now := time.Now()
	return max(now.Sub(since), now.Round(0).Sub(since.Round(0)))
}

// hold records that leases are valid since then.
func (l *Ledger) hold(leaseIDs []int64, since time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range leaseIDs {
		l.leases[id] = since
	}
}

// letGo forgets leases that have ended or were lost.
func (l *Ledger) letGo(leaseIDs []int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range leaseIDs {
		delete(l.leases, id)
	}
}

// Renew extends leases to the lease time from the database's present time. It returns the leases that have
// expired and were or will be recovered. An expired lease is never renewed.
func (l *Ledger) Renew(ctx context.Context, leaseIDs []int64) (lost []int64, err error) {
	if len(leaseIDs) == 0 {
		return nil, nil
	}
	began := time.Now()
	renewed, err := list(ctx, l, "renew leases", queries.leaseRenew, pgx.StrictNamedArgs{
		"ids": leaseIDs, "relay": l.relay, "seconds": l.leaseTime.Seconds(),
	}, pgx.RowTo[int64])
	if err != nil {
		return nil, err
	}
	l.hold(renewed, began)
	live := make(map[int64]bool, len(renewed))
	for _, id := range renewed {
		live[id] = true
	}
	for _, id := range leaseIDs {
		if !live[id] {
			lost = append(lost, id)
		}
	}
	l.letGo(lost)
	return lost, nil
}

// Lost lists up to limit orphans and up to limit expired leases of any relay, except the leases in stay. It
// locks nothing; Recover decides which relay takes a lease. If the messages of these leases cannot be read
// together, the leases are Unread, so that one of them does not delay the others.
//
// An orphan has this relay's name and is not in known: its claim's response was lost, or it belongs to an
// earlier process. A lease younger than fifteen seconds is not an orphan, because its claim may be in
// progress. Recover ends an orphan before it takes messages back.
func (l *Ledger) Lost(ctx context.Context, known, stay []int64, limit int) ([]Lost, error) {
	stay = append([]int64{}, stay...) // not NULL, which compares as unknown
	known = append(slices.Clone(stay), known...)
	leases, err := list(ctx, l, "find lost leases", queries.leasesLost, pgx.StrictNamedArgs{
		"relay": l.relay, "known": known, "stay": stay,
		"seconds": orphanAge.Seconds(), "n": limit,
	}, func(row pgx.CollectableRow) (found Lost, err error) {
		err = row.Scan(&found.LeaseID, &found.Relay, &found.orphan)
		return found, err
	})
	if err != nil || len(leases) == 0 {
		return nil, err
	}
	if err := l.readLost(ctx, leases); err != nil {
		for i := range leases {
			leases[i].Handed, leases[i].Unhanded, leases[i].Unread = nil, 0, true
		}
	}
	return leases, nil
}

// ReadLost reads the messages of a lease that is Unread.
func (l *Ledger) ReadLost(ctx context.Context, lost *Lost) error {
	found := []Lost{{LeaseID: lost.LeaseID, Relay: lost.Relay, orphan: lost.orphan}}
	err := l.readLost(ctx, found)
	if err == nil {
		*lost = found[0]
	}
	return err
}

func (l *Ledger) readLost(ctx context.Context, leases []Lost) error {
	ids, at := make([]int64, len(leases)), make(map[int64]*Lost, len(leases))
	for i := range leases {
		ids[i], at[leases[i].LeaseID] = leases[i].LeaseID, &leases[i]
	}
	_, err := list(ctx, l, "read lost leases", queries.leaseMessages,
		pgx.StrictNamedArgs{"ids": ids}, func(row pgx.CollectableRow) (h Handed, err error) {
			var handed bool
			var steps []int
			var reasons []string
			err = row.Scan(&h.JobID, &h.ChannelID, &h.LeaseID, &h.Step, &h.Attempts, &h.Crashes, &h.Reason, &h.Ambiguous, &h.Route, &handed,
				&steps, &reasons)
			switch lease := at[h.LeaseID]; {
			case err != nil:
			case handed:
				h.Bypassed = bypassedSteps(steps, reasons, h.Route)
				lease.Handed = append(lease.Handed, h)
			default:
				lease.Unhanded++
			}
			return h, err
		})
	return err
}

// Recovered is the result of Recover.
type Recovered struct {
	// Gone means that nothing was done: another relay was first, or the lease is valid.
	Gone bool
	// Released counts messages that were never sent and are due unchanged. Settled counts messages handed to
	// providers, settled as given. Left counts messages that were locked, or handed over since Lost; the
	// lease remains for them.
	Released, Settled, Left int
	// Statuses are the new statuses of the messages, in the order of the settlements, or "" for a message
	// that was not settled.
	Statuses []Status
}

// Recover takes back the messages of a lost lease in one transaction. Messages that were not handed to a
// provider become PENDING unchanged. settlements decides each message of lost.Handed, and records the
// skipped steps and the crash; their crashes increase by one. Recalled messages become CANCELLED unless they
// are SENT. The lease ends with its last message.
func (l *Ledger) Recover(ctx context.Context, lost Lost, settlements []Settlement) (r Recovered, err error) {
	decided := make(map[Key]int, len(settlements))
	for i, s := range settlements {
		if err := s.problem(); err != nil {
			return r, err
		}
		decided[s.Key] = i
	}
	if lost.orphan {
		err = l.expire(ctx, lost.LeaseID)
	}
	if err != nil {
		return r, fmt.Errorf("recover lease %d of relay %s: %w", lost.LeaseID, lost.Relay, err)
	}
	err = inTx(ctx, l.pool, func(ctx context.Context, tx pgx.Tx) error {
		r = Recovered{Statuses: make([]Status, len(settlements))}
		if _, err := tx.Exec(ctx, queries.ledgerBegin, beginArgs(true, ledgerTimeout)); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, queries.leaseLock, pgx.StrictNamedArgs{"id": lost.LeaseID})
		if err != nil || tag.RowsAffected() == 0 {
			r.Gone = err == nil
			return err
		}
		var all []Settlement
		var of []*Status // the status of each message
		var c Claimed
		var handed bool
		args := pgx.StrictNamedArgs{"id": lost.LeaseID}
		err = db.Each(ctx, tx, queries.leaseMessagesLock, args, []any{&c.JobID, &c.ChannelID, &handed}, func() error {
			s, status := Release(c), new(Status)
			i, some := decided[c.Key]
			switch {
			case !handed:
				r.Released++
			case !some:
				return nil
			default:
				s, status = settlements[i], &r.Statuses[i]
				r.Settled++
			}
			s.LeaseID = lost.LeaseID
			all, of = append(all, s), append(of, status)
			return nil
		})
		if err != nil {
			return err
		}
		return l.takeBack(ctx, tx, lost.LeaseID, all, of, &r.Left)
	})
	if err != nil {
		return r, fmt.Errorf("recover lease %d of relay %s: %w", lost.LeaseID, lost.Relay, err)
	}
	return r, nil
}

// expire ends a lease of this relay's name. It commits before messages are taken back, so that an earlier
// process that is still alive fails every recheck from now on.
func (l *Ledger) expire(ctx context.Context, lease int64) error {
	var b pgx.Batch
	b.Queue(queries.leaseExpire, pgx.StrictNamedArgs{"id": lease, "relay": l.relay})
	return l.atOnce(ctx, true, &b)
}

// takeBack writes the settlements of a recovery, sets the status of each, ends the lease, and counts the
// messages that prevent its end.
func (l *Ledger) takeBack(ctx context.Context, tx pgx.Tx, lease int64, all []Settlement, of []*Status, left *int) error {
	var b pgx.Batch
	todo := make([]int, len(all))
	for i := range todo {
		todo[i] = i
	}
	changed := 0
	queueSettlements(&b, all, todo, 1, false, func(i int, s Status) {
		if *of[i] = s; s != "" {
			changed++
		}
	})
	b.Queue(queries.leasesEnd, pgx.StrictNamedArgs{"ids": []int64{lease}})
	b.Queue(queries.handoversDeleteOrphans)
	b.Queue(queries.deliveriesSettled, pgx.StrictNamedArgs{"relay": l.relay})
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return err
	}
	if changed != len(all) {
		return fmt.Errorf("%d of %d locked messages were changed", changed, len(all))
	}
	return tx.QueryRow(ctx, queries.leaseLeft, pgx.StrictNamedArgs{"id": lease}).Scan(left)
}
