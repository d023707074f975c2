package outbox

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/job"
)

// Position is the progress of the claims of one job, or of activities. The zero value is the beginning.
type Position struct {
	DueAt            time.Time
	JobID, ChannelID int64
	// More reports that the claim did not reach the end of the due messages.
	More bool

	skips bool // the claim reached its bound before its limit, because it skipped messages
	turns int  // claims of messages that were never claimed; the zero Position has none
}

// claimWait is how long a claim waits for other claims of the job. Whoever holds them longer, such as an erasure that
// waits itself, delays this job only.
const claimWait = 50 * time.Millisecond

// returnedTurn is the number of claims in a row after which messages that were claimed before come first.
const returnedTurn = 4

// examined is the number of messages that one claim or push examines, at most. It skips messages that it may not
// take, such as those for media that its relay does not serve, and any number of them can be due.
const examined = 2000

// bound returns the number of messages that a claim of limit messages after p examines, at most. Finding the
// bound costs a twentieth of a claim if it is 2,000, so it is twice the limit until a claim skips messages.
func (p Position) bound(limit int) int {
	if p.skips {
		return examined
	}
	return min(examined, 2*limit)
}

// newLeaseID returns a unique id of 63 random bits. A database sequence is not sufficient: claims commit
// asynchronously, so that a server crash can lose a claim and assign its number to another relay.
func newLeaseID() int64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return max(1, int64(binary.BigEndian.Uint64(b[:])>>1))
}

// Tries selects the messages of a claim or a push. The zero value is AnyTry.
type Tries int

// The tries.
const (
	AnyTry   Tries = iota
	FirstTry       // messages without an attempt
	LaterTry       // messages with an attempt: by this medium, an earlier one, or a relay that died
)

// retries returns the statement parameter @retries.
func (t Tries) retries() *bool {
	if t == AnyTry {
		return nil
	}
	later := t == LaterTry
	return &later
}

// ClaimJob takes up to limit due messages of one job that this relay serves, under up to two new leases: those that
// were never claimed, in the order of their channels, and those that wait after an earlier claim and come after a
// position, in the order of their due time and channel. The latter come last, and first in one of a few claims. next
// is the position of the last one of these; that of the last examined one if these contain fewer than limit; or after
// when there is none.
//
// It returns job.ErrLocked if it found nothing and another session holds the job's claims.
//
// The cost of a claim is bounded, and depends on the messages after its position, not on earlier claims. Messages can become due
// behind a position, because they were returned unchanged or were written by a transaction that committed
// late. A claim from the beginning finds them. Such a claim steps over all rows taken since the last vacuum,
// so it must be rare.
func (l *Ledger) ClaimJob(ctx context.Context, jobID int64, after Position, limit int, tries Tries) (claimed []Claimed,
	next Position, err error) {
	what := fmt.Sprintf("claim messages of job %d", jobID)
	again := func(after Position, limit int) ([]Claimed, Position, error) {
		return l.claim(ctx, what, queries.messageClaim, after, limit, pgx.StrictNamedArgs{
			"job_id": jobID, "after_at": after.DueAt, "after_channel": after.ChannelID, "retries": tries.retries(),
		})
	}
	switch {
	case tries == LaterTry:
		return again(after, limit)
	case after.turns == returnedTurn:
		if claimed, next, err = again(after, limit); err == nil && len(claimed) < limit {
			taken, more, _ := l.take(ctx, what, jobID, "", after.skips, limit-len(claimed)) // the next claim returns its error
			claimed = append(claimed, taken...)
			next.skips, next.More = next.skips || more, next.More || more || len(claimed) == limit
		}
		next.turns = 1
		return claimed, next, err
	}
	claimed, more, err := l.take(ctx, what, jobID, "", after.skips, limit)
	held := errors.Is(err, job.ErrLocked)
	if err != nil && !held {
		return nil, after, err
	}
	if len(claimed) == limit {
		after.turns, after.skips, after.More = after.turns+1, false, true
		return claimed, after, nil
	}
	locked := err
	rest, next, err := again(after, limit-len(claimed))
	switch {
	case len(claimed) > 0:
		err = nil // the next claim returns it
	case err == nil && len(rest) == 0 && held:
		return nil, after, locked
	}
	if len(claimed) > 0 || more || after.turns > 0 {
		next.turns = 1
	}
	next.skips, next.More = next.skips || more, next.More || more
	return append(claimed, rest...), next, err
}

// take claims messages of a job that were never claimed or, in an epoch of the bulk queue, makes a push of them: their
// lease is then its number. more reports that it examined as many messages as it may before it found limit.
func (l *Ledger) take(ctx context.Context, what string, jobID int64, epoch string, skips bool, limit int,
) (taken []Claimed, more bool, err error) {
	bound := limit
	if skips {
		bound = max(limit, examined)
	}
	args := pgx.StrictNamedArgs{"job_id": jobID, "bound": bound, "media": l.media, "epoch": nil}
	if epoch != "" {
		args["media"], args["epoch"] = nil, epoch
	}
	taken, err = l.claimed(ctx, what, queries.messageTake, args, limit, jobID, func(c *Claimed, _ time.Time) { more = more || c.LeaseID == 0 })
	return taken, more, err
}

// ClaimActivities is ClaimJob for messages of activities. within omits those that have been due for longer;
// 0 omits none. An activity can become visible after its due time, and later than within, so that some
// claims must begin at the beginning.
func (l *Ledger) ClaimActivities(ctx context.Context, after Position, within time.Duration, limit int, tries Tries) (claimed []Claimed,
	next Position, err error) {
	return l.claim(ctx, "claim messages of activities", queries.activityClaim, after, limit, activityArgs(after, within, tries))
}

func activityArgs(after Position, within time.Duration, tries Tries) pgx.StrictNamedArgs {
	var seconds *float64
	if within > 0 {
		seconds = new(within.Seconds())
	}
	return pgx.StrictNamedArgs{
		"after_at": after.DueAt, "after_job": after.JobID, "after_channel": after.ChannelID, "within": seconds, "retries": tries.retries(),
	}
}

// Next returns the time until the next message is due that is not due yet and not held. ok is false if there
// is none.
func (l *Ledger) Next(ctx context.Context) (wait time.Duration, ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	var seconds *float64
	if err := l.pool.QueryRow(ctx, queries.messagesNext).Scan(&seconds); err != nil {
		return 0, false, fmt.Errorf("read the time of the next message: %w", mapError(err))
	}
	if seconds == nil {
		return 0, false, nil
	}
	return time.Duration(min(*seconds, 1e9) * float64(time.Second)), true, nil
}

// Due returns jobs with a message that became due in the last duration: a returned one, or the next one of the job that
// was never claimed.
func (l *Ledger) Due(ctx context.Context, last time.Duration) ([]int64, error) {
	args := pgx.StrictNamedArgs{"seconds": last.Seconds()}
	return list(ctx, l, "list jobs with messages that became due", queries.jobsDue, args, pgx.RowTo[int64])
}

func (l *Ledger) claim(ctx context.Context, what, statement string, after Position, limit int,
	args pgx.StrictNamedArgs) ([]Claimed, Position, error) {
	args["bound"], args["media"] = after.bound(limit), l.media
	next := reached{last: after}
	claimed, err := l.claimed(ctx, what, statement, args, limit, 0, func(c *Claimed, dueAt time.Time) {
		next.add(c.Key, dueAt, c.LeaseID == 0)
	})
	if err != nil {
		return nil, after, err
	}
	return claimed, next.of(len(claimed) == limit), nil
}

// claimed runs a statement that claims up to limit messages under a new lease, and returns them. It holds the claims of
// the job hold, unless that is 0, before the statement, whose snapshot thereby contains what others changed while they
// held them. row is called for each row, also for the edge, whose lease is 0.
func (l *Ledger) claimed(ctx context.Context, what, statement string, args pgx.StrictNamedArgs, limit int, hold int64,
	row func(c *Claimed, dueAt time.Time)) (claimed []Claimed, err error) {
	if limit < 1 || limit > MaxBatch {
		return nil, fmt.Errorf("%s: %d messages are not allowed; allowed values: 1 to %d", what, limit, MaxBatch)
	}
	lease, began := newLeaseID(), time.Now()
	args["lease"], args["relay"], args["seconds"], args["keys"] = lease, l.relay, l.leaseTime.Seconds(), limit
	var b pgx.Batch
	locks := ledgerTimeout
	if hold != 0 {
		locks = l.claimWait
		b.Queue(queries.claimsBegin, pgx.StrictNamedArgs{"job_id": hold})
		b.Queue(queries.claimsHold, pgx.StrictNamedArgs{"jobs": []int64{hold}})
	}
	b.Queue(statement, args).Query(func(rows pgx.Rows) error {
		var c Claimed
		var dueAt time.Time
		_, err := pgx.ForEachRow(rows,
			[]any{&c.JobID, &c.ChannelID, &c.LeaseID, &c.Step, &c.Attempts, &c.Crashes, &c.Reason, &c.Ambiguous, &dueAt, &c.tid}, func() error {
				if row(&c, dueAt); c.LeaseID == 0 {
					return nil
				}
				if claimed == nil {
					claimed = make([]Claimed, 0, limit)
				}
				claimed = append(claimed, c)
				return nil
			})
		return err
	})
	push := args["epoch"] != nil // which the carrier gets to know
	if err := l.within(ctx, push, locks, &b); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if len(claimed) > 0 && !push {
		l.hold([]int64{lease}, began)
	}
	return claimed, nil
}

// reached collects the position that a claim or a push has reached.
type reached struct{ last, edge Position }

// add adds a row of its result, and returns edge: whether it is the edge.
func (r *reached) add(k Key, dueAt time.Time, edge bool) bool {
	at := &r.last
	if edge {
		at = &r.edge
	}
	*at = Position{DueAt: dueAt, JobID: k.JobID, ChannelID: k.ChannelID}
	return edge
}

// of returns the position, full if the limit was reached.
func (r *reached) of(full bool) Position {
	next := r.last
	if !full && r.edge != (Position{}) {
		next, full = r.edge, true
		next.skips = true
	}
	next.More = full
	return next
}
