package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// PushQueue is how far the pushes of one of a carrier's two queues are.
type PushQueue struct {
	Name  string // activities or bulk
	Epoch string // a UUID, new whenever a carrier is to forget what it has been told
	// First is the number of the epoch's first push, Last that of the last one that was
	// made; First-1 when none was.
	First, Last int64
}

// activities reports whether it is the queue of the messages of activities.
func (q PushQueue) activities() bool { return q.Name == "activities" }

// Lead makes this relay the one that pushes, to a transport of that name, for so long, or
// goes on with it, and returns both queues. None: another relay does, or the database is not
// adopted. Two that believe it at the same time do no harm: each push has a number of its
// own, and one that comes out of turn is a gap to the carrier.
func (l *Ledger) Lead(ctx context.Context, transport string, seconds time.Duration) ([]PushQueue, error) {
	return list(ctx, l, "lead the pushes", queries.queueLead, pgx.StrictNamedArgs{
		"relay": l.relay, "transport": transport, "seconds": seconds.Seconds(),
	}, scanQueue)
}

func scanQueue(row pgx.CollectableRow) (q PushQueue, err error) {
	err = row.Scan(&q.Name, &q.Epoch, &q.First, &q.Last)
	return q, err
}

// StopLeading lets another relay push at once.
func (l *Ledger) StopLeading(ctx context.Context) error {
	_, err := list(ctx, l, "stop leading the pushes", queries.queueLeave, pgx.StrictNamedArgs{"relay": l.relay}, pgx.RowTo[string])
	return err
}

// RenewQueue begins a new epoch of a queue, whose first push is the earliest that a message is
// QUEUED by. false: this relay does not push any more, or another one has begun one.
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

// QueueJob makes a push of up to limit due messages of one job: they are QUEUED by it when it
// returns, durably. Which they are and next are as with ClaimJob, whatever their media; push
// is its number, 0 when there are none, or when this relay does not push in that epoch any
// more.
func (l *Ledger) QueueJob(ctx context.Context, q PushQueue, jobID int64, after Position, limit int, tries Tries) (keys []Key, push int64, next Position, err error) {
	next = after
	keys, push, err = l.queue(ctx, fmt.Sprintf("queue messages of job %d", jobID), queries.messageQueue, q, limit, pgx.StrictNamedArgs{
		"job_id": jobID, "after_at": after.DueAt, "after_channel": after.ChannelID, "retries": tries.retries(),
	}, func(dueAt time.Time, k Key) { next = Position{dueAt, k.ChannelID} })
	if err != nil {
		return nil, 0, after, err
	}
	return keys, push, next, nil
}

// QueueActivities makes a push of up to limit due messages of activities. since and next are as
// with ClaimActivities, the rest as with QueueJob.
func (l *Ledger) QueueActivities(ctx context.Context, q PushQueue, since time.Time, limit int, tries Tries) (keys []Key, push int64, next time.Time, err error) {
	next = since
	keys, push, err = l.queue(ctx, "queue messages of activities", queries.activityQueue, q, limit, pgx.StrictNamedArgs{"since": since, "retries": tries.retries()},
		func(dueAt time.Time, _ Key) { next = dueAt })
	if err != nil {
		return nil, 0, since, err
	}
	return keys, push, next, nil
}

func (l *Ledger) queue(ctx context.Context, what, statement string, q PushQueue, limit int, args pgx.StrictNamedArgs, each func(dueAt time.Time, k Key)) (keys []Key, push int64, err error) {
	args["relay"], args["epoch"], args["keys"] = l.relay, q.Epoch, limit
	var b pgx.Batch
	b.Queue(statement, args).Query(func(rows pgx.Rows) error {
		var k Key
		var dueAt time.Time
		_, err := pgx.ForEachRow(rows, []any{&k.JobID, &k.ChannelID, &push, &dueAt}, func() error {
			keys = append(keys, k)
			each(dueAt, k)
			return nil
		})
		return err
	})
	if err := l.atOnce(ctx, true, &b); err != nil {
		return nil, 0, fmt.Errorf("%s: %w", what, err)
	}
	return keys, push, nil
}

// QueuedBy lists what is still QUEUED by a push, in key order, and the lane of its job, "" of
// activities: all of a push are of one job, or of activities.
func (l *Ledger) QueuedBy(ctx context.Context, q PushQueue, number int64) (keys []Key, lane string, err error) {
	keys, err = take(ctx, l, fmt.Sprintf("read push %d of the queue %s", number, q.Name), queries.pushKeys, pgx.StrictNamedArgs{
		"activities": q.activities(), "number": number,
	}, func(row pgx.CollectableRow) (k Key, err error) {
		err = row.Scan(&k.JobID, &k.ChannelID, &lane)
		return k, err
	})
	return keys, lane, err
}

// Unqueue takes back up to limit QUEUED messages that the carrier has lost, PENDING as they
// were: their push is earlier than oldest, the oldest push inside the carrier, and was made
// longer than age ago. It returns how many. Without a limit on the age, copies that a worker
// has just taken out and not claimed yet would be pushed again in vain.
func (l *Ledger) Unqueue(ctx context.Context, q PushQueue, oldest int64, age time.Duration, limit int) (int, error) {
	of, err := take(ctx, l, "take back what the queue "+q.Name+" has lost", queries.messagesUnqueue, pgx.StrictNamedArgs{
		"activities": q.activities(), "name": q.Name, "oldest": oldest, "seconds": age.Seconds(), "keys": limit,
	}, pgx.RowTo[int64])
	return len(of), err
}

// Unserved takes back up to limit QUEUED messages, PENDING as they were, if no relay pushes to a
// carrier: whoever did has stopped, or works without one now. It returns how many. A copy that a
// carrier still has is valid all the same.
func (l *Ledger) Unserved(ctx context.Context, limit int) (int, error) {
	of, err := take(ctx, l, "take back what no relay with a carrier looks after", queries.messagesUnserved, pgx.StrictNamedArgs{"keys": limit}, pgx.RowTo[int64])
	return len(of), err
}

// UnservedTx is Ledger.Unserved as a part of the transaction tx. An error is as pgx returned it.
func UnservedTx(ctx context.Context, tx pgx.Tx, limit int) (int64, error) {
	tag, err := tx.Exec(ctx, queries.messagesUnserved, pgx.StrictNamedArgs{"keys": limit})
	return tag.RowsAffected(), err
}

// ForgetPushes deletes what is known of pushes that no message is QUEUED by any more, but of
// those that were made within age.
func (l *Ledger) ForgetPushes(ctx context.Context, q PushQueue, age time.Duration) error {
	_, err := take(ctx, l, "forget pushes of the queue "+q.Name, queries.pushesForget, pgx.StrictNamedArgs{
		"activities": q.activities(), "name": q.Name, "seconds": age.Seconds(),
	}, pgx.RowTo[int64])
	return err
}

// Copy is what a carrier has of a message: its key, and the number of the push that it came
// by, or, of one that was deferred since, that it came by last.
type Copy struct {
	Key
	Push int64
}

// CopyVerdict is what the claim of a copy says, and what becomes of the copy.
type CopyVerdict string

// The verdicts.
const (
	CopyClaimed   CopyVerdict = "claimed"    // in flight: its copy goes when it is settled
	CopyFinished  CopyVerdict = "finished"   // SENT, DEAD or CANCELLED: drop it
	CopyAnother   CopyVerdict = "another"    // in flight elsewhere, whose business it is: drop it
	CopyLater     CopyVerdict = "later"      // due later, or locked: put it back for Answer.Wait
	CopyHeld      CopyVerdict = "held"       // PENDING until its job may be sent, and pushed again then: drop it
	CopyNotQueued CopyVerdict = "not queued" // by that push, but by a later one, or there is no such message: drop it
)

// Answer is what became of a copy.
type Answer struct {
	Verdict CopyVerdict
	Claimed Claimed       // with CopyClaimed; else its Key
	Dead    bool          // with CopyFinished: it is DEAD
	Wait    time.Duration // with CopyLater
}

// lockedFor is how long a copy waits whose message was locked.
const lockedFor = 100 * time.Millisecond

// ClaimCopies claims by key: up to MaxBatch copies in one statement, one answer each, in their
// order. A message is claimed if it is QUEUED, or PENDING and due, and may be sent, whichever
// copy comes first; but while a later push than a copy's has queued it, that one's copy is the
// one. What is claimed is under one new lease, of whatever jobs, and may be forgotten by a crash of
// the server; what CopyHeld and CopyAnother say may not. In a database that nothing may leave
// (Installation.Err) it returns an error.
func (l *Ledger) ClaimCopies(ctx context.Context, copies []Copy) ([]Answer, error) {
	what := fmt.Sprintf("claim %d messages by key", len(copies))
	if err := checkBatch(len(copies)); err != nil || len(copies) == 0 {
		return nil, err
	}
	k, pushes := newKeys(len(copies)), make([]int64, 0, len(copies))
	answers, asked := make([]Answer, len(copies)), make([]int, 0, len(copies))
	for i, best := range latest(copies) {
		answers[i] = Answer{Verdict: CopyNotQueued, Claimed: Claimed{Key: copies[i].Key}}
		if best {
			n := len(asked)
			k.jobs[n], k.channels[n] = copies[i].JobID, copies[i].ChannelID
			pushes, asked = append(pushes, copies[i].Push), append(asked, i)
		}
	}
	n, lease := len(asked), newLeaseID()
	var b pgx.Batch
	b.Queue(queries.copiesClaim, pgx.StrictNamedArgs{
		"job_ids": k.jobs[:n], "channel_ids": k.channels[:n], "pushes": pushes, "jobs": different(k.jobs[:n]),
		"lease": lease, "relay": l.relay, "seconds": l.leaseTime.Seconds(),
	}).Query(func(rows pgx.Rows) error {
		var a Answer
		var wait float64
		var tid pgtype.TID
		c, i := &a.Claimed, 0
		tag, err := pgx.ForEachRow(rows, []any{&a.Verdict, &wait, &c.Lane, &c.Step, &c.Attempts, &c.Crashes, &c.Reason, &c.Ambiguous, &a.Dead, &tid}, func() error {
			answers[asked[i]] = a.of(copies[asked[i]].Key, lease, wait, tid)
			i++
			return nil
		})
		return letOr(tag, err)
	})
	if err := l.atOnce(ctx, false, &b); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	l.makeSure(ctx, answers)
	return answers, nil
}

// makeSure makes durable what drops copies of messages that are not finished, which is a claim
// of this relay or another's: a crash of the server that forgot it would leave them QUEUED
// without a copy. What cannot be made durable now is asked for again.
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

// of completes an answer of the database.
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

// latest marks one copy of each message, of the latest push.
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
