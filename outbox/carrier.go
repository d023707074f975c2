package outbox

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfryhq/belfry/job"
)

// RequeueAfter is the default age after which a push without a copy in the carrier is pushed again.
const RequeueAfter = 10 * time.Minute

// PushQueue is the progress of the pushes of one of a carrier's two queues.
type PushQueue struct {
	Name  string // activities or bulk
	Epoch string // a UUID; a new one makes a carrier discard its contents
	// First and Last are the numbers of the epoch's first and last pushes. Without a push, Last is First-1.
	First, Last int64
}

// activities reports whether the queue is for messages of activities.
func (q PushQueue) activities() bool { return q.Name == "activities" }

// Lead makes this relay the leader, which pushes to the named transport, for a limited time, or renews that,
// and returns both queues. It returns none if another relay leads or the database is not adopted. Two relays
// that both believe to lead do no harm: each push has a unique number, and the carrier treats a push out of
// order as a gap.
func (l *Ledger) Lead(ctx context.Context, transport string, seconds time.Duration) ([]PushQueue, error) {
	return list(ctx, l, "lead the pushes", queries.queueLead, pgx.StrictNamedArgs{
		"relay": l.relay, "transport": transport, "seconds": seconds.Seconds(),
	}, scanQueue)
}

func scanQueue(row pgx.CollectableRow) (q PushQueue, err error) {
	err = row.Scan(&q.Name, &q.Epoch, &q.First, &q.Last)
	return q, err
}

// StopLeading ends this relay's lead, so that another relay can push at once.
func (l *Ledger) StopLeading(ctx context.Context) error {
	_, err := list(ctx, l, "stop leading the pushes", queries.queueLeave, pgx.StrictNamedArgs{"relay": l.relay}, pgx.RowTo[string])
	return err
}

// RenewQueue begins a new epoch of a queue. Its first push is the earliest push with QUEUED messages. It
// returns false if this relay no longer leads, or if another relay has begun an epoch.
func (l *Ledger) RenewQueue(ctx context.Context, q PushQueue) (PushQueue, bool, error) {
	var renewed []PushQueue
	var b pgx.Batch
	b.Queue(queries.queueRenew, pgx.StrictNamedArgs{
		"relay": l.relay, "name": q.Name, "epoch": q.Epoch, "activities": q.activities(),
	}).Query(func(rows pgx.Rows) (err error) {
		renewed, err = pgx.CollectRows(rows, scanQueue)
		return err
	})
	if err := l.atOnce(ctx, true, &b); err != nil {
		return q, false, fmt.Errorf("begin an epoch of the queue %s: %w", q.Name, err)
	}
	if len(renewed) == 0 {
		return q, false, nil
	}
	return renewed[0], true, nil
}

// QueueJob makes a push of up to limit due messages of one job, which are durably QUEUED when it returns. It
// selects them as ClaimJob does, for all media, but those that were never claimed and the others in different pushes,
// and returns the same next. push is the number of the push,
// or 0 if there are no messages or if this relay no longer pushes in that epoch.
func (l *Ledger) QueueJob(ctx context.Context, q PushQueue, jobID int64, after Position, limit int, tries Tries) (keys []Key,
	push int64, next Position, err error) {
	what := fmt.Sprintf("queue messages of job %d", jobID)
	again := func() ([]Key, int64, Position, error) {
		return l.queue(ctx, what, queries.messageQueue, q, after, limit, pgx.StrictNamedArgs{
			"job_id": jobID, "after_at": after.DueAt, "after_channel": after.ChannelID, "retries": tries.retries(),
		})
	}
	turned := after.turns > 0
	if tries != LaterTry && after.turns == returnedTurn {
		if keys, push, next, err = again(); err != nil || len(keys) > 0 {
			next.turns, next.More = 1, true
			return keys, push, next, err
		}
		after, after.turns = next, 0
	}
	var more bool
	var held error // another session holds the job's claims
	if tries != LaterTry {
		taken, skipped, err := l.take(ctx, what, jobID, q.Epoch, after.skips, limit)
		switch {
		case errors.Is(err, job.ErrLocked):
			held = err
		case err != nil:
			return nil, 0, after, err
		case len(taken) > 0:
			for i := range taken {
				keys, push = append(keys, taken[i].Key), taken[i].LeaseID
			}
			after.turns, after.skips, after.More = after.turns+1, skipped, true
			return keys, push, after, nil
		}
		more = skipped
	}
	keys, push, next, err = again()
	if held != nil && err == nil && len(keys) == 0 {
		return nil, 0, after, held
	}
	if turned || more {
		next.turns = 1
	}
	next.skips, next.More = next.skips || more, next.More || more
	return keys, push, next, err
}

// QueueActivities is QueueJob for messages of activities. after, within and next are those of ClaimActivities.
func (l *Ledger) QueueActivities(ctx context.Context, q PushQueue, after Position, within time.Duration, limit int,
	tries Tries) (keys []Key, push int64, next Position, err error) {
	return l.queue(ctx, "queue messages of activities", queries.activityQueue, q, after, limit, activityArgs(after, within, tries))
}

func (l *Ledger) queue(ctx context.Context, what, statement string, q PushQueue, after Position, limit int,
	args pgx.StrictNamedArgs) (keys []Key, push int64, _ Position, err error) {
	args["relay"], args["epoch"], args["keys"], args["bound"] = l.relay, q.Epoch, limit, examined
	next := reached{last: after}
	var b pgx.Batch
	b.Queue(statement, args).Query(func(rows pgx.Rows) error {
		var k Key
		var number int64
		var dueAt time.Time
		_, err := pgx.ForEachRow(rows, []any{&k.JobID, &k.ChannelID, &number, &dueAt}, func() error {
			if !next.add(k, dueAt, number == 0) {
				keys, push = append(keys, k), number
			}
			return nil
		})
		return err
	})
	if err := l.atOnce(ctx, true, &b); err != nil {
		return nil, 0, after, fmt.Errorf("%s: %w", what, err)
	}
	return keys, push, next.of(len(keys) == limit), nil
}

// QueuedBy lists the messages that are still QUEUED by a push, in key order, and the lane of their job, or
// "" for activities. All messages of a push belong to one job, or to activities.
func (l *Ledger) QueuedBy(ctx context.Context, q PushQueue, number int64) (keys []Key, lane string, err error) {
	keys, err = take(ctx, l, fmt.Sprintf("read push %d of the queue %s", number, q.Name), queries.pushKeys, pgx.StrictNamedArgs{
		"activities": q.activities(), "name": q.Name, "number": number,
	}, func(row pgx.CollectableRow) (k Key, err error) {
		err = row.Scan(&k.JobID, &k.ChannelID, &lane)
		return k, err
	})
	return keys, lane, err
}

// Unqueue returns up to limit QUEUED messages that the carrier has lost to PENDING, and those of a few pushes that were
// never claimed before, and returns their number, 0 if none is left. Their push precedes oldest, the oldest push in the
// carrier, and is older than age. Without the limit on the age, copies that a worker has taken out and not claimed yet
// would be pushed again.
func (l *Ledger) Unqueue(ctx context.Context, q PushQueue, oldest int64, age time.Duration, limit int) (int, error) {
	of, err := take(ctx, l, "return lost messages of the queue "+q.Name, queries.messagesUnqueue, pgx.StrictNamedArgs{
		"activities": q.activities(), "name": q.Name, "oldest": oldest, "seconds": age.Seconds(), "keys": limit,
	}, pgx.RowTo[int64])
	return len(of), err
}

// Unserved is Unqueue for the messages of both queues if no relay pushes to a carrier, because the relays have
// stopped or work without a carrier. It returns their number, 0 if none is left. Copies that remain in a carrier
// stay valid.
func (l *Ledger) Unserved(ctx context.Context, limit int) (int, error) {
	of, err := take(ctx, l, "return messages of a carrier that no relay uses", queries.messagesUnserved,
		pgx.StrictNamedArgs{"keys": limit}, pgx.RowTo[int64])
	return len(of), err
}

// UnservedTx is Ledger.Unserved as a part of the transaction tx. An error is as pgx returned it.
func UnservedTx(ctx context.Context, tx pgx.Tx, limit int) (int64, error) {
	tag, err := tx.Exec(ctx, queries.messagesUnserved, pgx.StrictNamedArgs{"keys": limit})
	return tag.RowsAffected(), err
}

// ForgetPushes deletes the records of pushes that have no QUEUED message and are older than age.
func (l *Ledger) ForgetPushes(ctx context.Context, q PushQueue, age time.Duration) error {
	_, err := take(ctx, l, "forget pushes of the queue "+q.Name, queries.pushesForget, pgx.StrictNamedArgs{
		"activities": q.activities(), "name": q.Name, "seconds": age.Seconds(),
	}, pgx.RowTo[int64])
	return err
}

// Copy is a carrier's copy of a message: its key and the number of the last push that contained it.
type Copy struct {
	Key
	Push int64
}

// CopyVerdict is the result of the claim of a copy. It determines the treatment of the copy.
type CopyVerdict string

// The verdicts.
const (
	CopyClaimed   CopyVerdict = "claimed"    // in flight: drop the copy when it is settled
	CopyFinished  CopyVerdict = "finished"   // SENT, DEAD or CANCELLED: drop it
	CopyAnother   CopyVerdict = "another"    // in flight at another relay: drop the copy
	CopyLater     CopyVerdict = "later"      // due later, or locked: put it back for Answer.Wait
	CopyHeld      CopyVerdict = "held"       // PENDING until its job may be sent, and then pushed again: drop the copy
	CopyNotQueued CopyVerdict = "not queued" // by that push, but by a later one, or the message does not exist: drop the copy
)

// Answer is the result for one copy.
type Answer struct {
	Verdict CopyVerdict
	Claimed Claimed       // with CopyClaimed; else its Key
	Dead    bool          // with CopyFinished: it is DEAD
	Wait    time.Duration // with CopyLater
}

// lockedFor is the delay of a copy whose message is locked.
const lockedFor = 100 * time.Millisecond

// ClaimCopies claims up to MaxBatch copies by key and returns one answer each, in their order. A message is claimed with
// the first copy, if it is QUEUED, or PENDING and due, and may be sent. If a later push has queued it, only the copy of
// that push counts. The claimed messages, of any jobs, have up to two new leases: one for those that were never changed.
// A server crash can lose the claims, but not the states behind CopyHeld and CopyAnother. It returns an error if
// messages may not leave the database (Installation.Err).
func (l *Ledger) ClaimCopies(ctx context.Context, copies []Copy) ([]Answer, error) {
	return l.claimCopies(ctx, copies, false)
}

// ClaimKeys claims messages of jobs by key under up to two new leases, whatever has queued them, and returns those that it
// claimed. It is ClaimCopies without copies.
func (l *Ledger) ClaimKeys(ctx context.Context, keys []Key) (claimed []Claimed, err error) {
	copies := make([]Copy, len(keys))
	for i, k := range keys {
		copies[i] = Copy{Key: k, Push: math.MaxInt64}
	}
	answers, err := l.claimCopies(ctx, copies, true)
	for i := range answers {
		if answers[i].Verdict == CopyClaimed {
			claimed = append(claimed, answers[i].Claimed)
		}
	}
	return claimed, err
}

// claimCopies is ClaimCopies. With held it also claims messages that were never claimed, and holds the claims of their
// jobs meanwhile.
func (l *Ledger) claimCopies(ctx context.Context, copies []Copy, held bool) ([]Answer, error) {
	if err := checkBatch(len(copies)); err != nil || len(copies) == 0 {
		return nil, err
	}
	answers, asked := make([]Answer, len(copies)), make([]int, 0, len(copies))
	began := time.Now()
	for i, best := range latest(copies) {
		answers[i] = Answer{Verdict: CopyNotQueued, Claimed: Claimed{Key: copies[i].Key}}
		if best {
			asked = append(asked, i)
		}
	}
	left, err := l.takeCopies(ctx, copies, asked, answers, held)
	if err != nil {
		return nil, err
	}
	if err := l.judgeCopies(ctx, copies, left, answers, held); err != nil {
		if len(left) == len(asked) {
			return nil, err
		}
		for _, i := range left { // the next claim returns the error
			answers[i].Verdict, answers[i].Wait = CopyLater, lockedFor
		}
	}
	for i := range answers {
		if answers[i].Verdict == CopyClaimed {
			l.hold([]int64{answers[i].Claimed.LeaseID}, began)
		}
	}
	l.makeSure(ctx, answers)
	return answers, nil
}

// takeCopies answers the copies of messages that were never changed, of those asked, and returns the others: all, if
// another session holds one of their pushes for longer than claims do.
func (l *Ledger) takeCopies(ctx context.Context, copies []Copy, asked []int, answers []Answer, held bool) (left []int, err error) {
	args, _ := l.copyArgs(copies, asked, held, newLeaseID())
	taken := make([]bool, len(copies))
	var b pgx.Batch
	b.Queue(queries.copiesTake, args).Query(func(rows pgx.Rows) error {
		var n int // from 1
		var c Claimed
		_, err := pgx.ForEachRow(rows, []any{&n, &c.LeaseID, &c.Lane, &c.tid}, func() error {
			i := asked[n-1]
			taken[i] = true
			if c.LeaseID == 0 {
				answers[i].Verdict = CopyHeld
				return nil
			}
			c.Key = copies[i].Key
			answers[i] = Answer{Verdict: CopyClaimed, Claimed: c}
			return nil
		})
		return err
	})
	switch err := l.within(ctx, false, l.claimWait, &b); {
	case errors.Is(err, job.ErrLocked):
		return asked, nil
	case err != nil:
		return nil, fmt.Errorf("claim %d messages by key: %w", len(copies), err)
	}
	return slices.DeleteFunc(slices.Clone(asked), func(i int) bool { return taken[i] }), nil
}

// judgeCopies answers the copies of other messages.
func (l *Ledger) judgeCopies(ctx context.Context, copies []Copy, asked []int, answers []Answer, held bool) error {
	if len(asked) == 0 {
		return nil
	}
	lease := newLeaseID()
	args, jobs := l.copyArgs(copies, asked, held, lease)
	var b pgx.Batch
	if held {
		for _, id := range jobs { // a claim may begin them meanwhile
			b.Queue(queries.claimsBegin, pgx.StrictNamedArgs{"job_id": id})
		}
		b.Queue(queries.claimsHold, pgx.StrictNamedArgs{"jobs": jobs})
	}
	b.Queue(queries.copiesClaim, args).Query(func(rows pgx.Rows) error {
		var a Answer
		var wait float64
		var tid pgtype.TID
		c, i := &a.Claimed, 0
		tag, err := pgx.ForEachRow(rows,
			[]any{&a.Verdict, &wait, &c.Lane, &c.Step, &c.Attempts, &c.Crashes, &c.Reason, &c.Ambiguous, &a.Dead, &tid}, func() error {
				answers[asked[i]] = a.of(copies[asked[i]].Key, lease, wait, tid)
				i++
				return nil
			})
		return letOr(tag, err)
	})
	if err := l.atOnce(ctx, false, &b); err != nil {
		return fmt.Errorf("claim %d messages by key: %w", len(copies), err)
	}
	return nil
}

// copyArgs returns the arguments of a claim of those copies, and the jobs among them.
func (l *Ledger) copyArgs(copies []Copy, asked []int, held bool, lease int64) (args pgx.StrictNamedArgs, jobs []int64) {
	k, pushes := newKeys(len(asked)), make([]int64, len(asked))
	for n, i := range asked {
		k.jobs[n], k.channels[n], pushes[n] = copies[i].JobID, copies[i].ChannelID, copies[i].Push
	}
	jobs = different(k.jobs)
	return pgx.StrictNamedArgs{
		"job_ids": k.jobs, "channel_ids": k.channels, "pushes": pushes, "jobs": jobs, "held": held,
		"lease": lease, "relay": l.relay, "seconds": l.leaseTime.Seconds(),
	}, jobs
}

// makeSure makes the claims durable for which copies of unfinished messages are dropped. Otherwise a server
// crash could lose such a claim, of this relay or another, and leave the messages QUEUED without a copy. If
// that fails, the copies are answered again later.
func (l *Ledger) makeSure(ctx context.Context, answers []Answer) {
	var unsure []int
	for i := range answers {
		if v := answers[i].Verdict; v == CopyHeld || v == CopyAnother {
			unsure = append(unsure, i)
		}
	}
	if len(unsure) == 0 {
		return
	}
	k := newKeys(len(unsure))
	for n, i := range unsure {
		k.jobs[n], k.channels[n] = answers[i].Claimed.JobID, answers[i].Claimed.ChannelID
	}
	sure := make(map[int]bool, len(unsure))
	var b pgx.Batch
	b.Queue(queries.copiesSure, pgx.StrictNamedArgs{"job_ids": k.jobs, "channel_ids": k.channels}).Query(func(rows pgx.Rows) error {
		var n int // from 1
		_, err := pgx.ForEachRow(rows, []any{&n}, func() error {
			sure[unsure[n-1]] = true
			return nil
		})
		return err
	})
	err := l.atOnce(ctx, true, &b)
	for _, i := range unsure {
		if err != nil || !sure[i] {
			answers[i].Verdict, answers[i].Wait = CopyLater, lockedFor
		}
	}
}

func letOr(tag pgconn.CommandTag, err error) error {
	if err == nil && tag.RowsAffected() == 0 {
		return errKept
	}
	return err
}

// of completes an answer from the database.
func (a Answer) of(k Key, lease int64, wait float64, tid pgtype.TID) Answer {
	switch a.Verdict {
	case CopyClaimed:
		a.Claimed.Key, a.Claimed.LeaseID, a.Claimed.tid = k, lease, tid
	case CopyLater:
		a.Wait = max(lockedFor, time.Duration(min(wait, 1e9)*float64(time.Second)))
		fallthrough
	case CopyFinished, CopyAnother, CopyHeld, CopyNotQueued:
		a.Claimed = Claimed{Key: k}
	}
	return a
}

// latest marks the copy of each message with the latest push.
func latest(copies []Copy) []bool {
	best, at := make([]bool, len(copies)), make(map[Key]int, len(copies))
	for i, c := range copies {
		j, twice := at[c.Key]
		if twice && copies[j].Push >= c.Push {
			continue
		}
		if twice {
			best[j] = false
		}
		best[i], at[c.Key] = true, i
	}
	return best
}
