package outbox

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Position is the progress of the claims of one job. The zero value is the beginning.
type Position struct {
	DueAt     time.Time
	ChannelID int64
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

// ClaimJob takes up to limit due messages of one job that this relay serves and that come
// after a position, in the order of their due time and channel, under one new lease. next
// is the position of the last one, or after when there is none.
//
// The cost of a claim depends on the messages it takes, not on earlier claims. Messages can become due
// behind a position, because they were returned unchanged or were written by a transaction that committed
// late. A claim from the beginning finds them. Such a claim steps over all rows taken since the last vacuum,
// so it must be rare.
func (l *Ledger) ClaimJob(ctx context.Context, jobID int64, after Position, limit int, tries Tries) (claimed []Claimed,
	next Position, err error) {
	next = after
	claimed, err = l.claim(ctx, fmt.Sprintf("claim messages of job %d", jobID), queries.messageClaim, limit, pgx.StrictNamedArgs{
		"job_id": jobID, "after_at": after.DueAt, "after_channel": after.ChannelID, "retries": tries.retries(),
	}, func(dueAt time.Time, c Claimed) { next = Position{dueAt, c.ChannelID} })
	if err != nil {
		return nil, after, err
	}
	return claimed, next, nil
}

// ClaimActivities takes up to limit due messages of activities that this relay serves, in the order of their
// due time, under one new lease: those due at since or later, all when it is zero. next is the due time of
// the last one, or since if there is none. An activity can become visible after its due time. since must
// therefore lag behind next by the duration of the service's transactions, and be zero from time to time
// (see ClaimJob).
func (l *Ledger) ClaimActivities(ctx context.Context, since time.Time, limit int, tries Tries) (claimed []Claimed, next time.Time,
	err error) {
	next = since
	claimed, err = l.claim(ctx, "claim messages of activities", queries.activityClaim, limit,
		pgx.StrictNamedArgs{"since": since, "retries": tries.retries()},
		func(dueAt time.Time, _ Claimed) { next = dueAt })
	if err != nil {
		return nil, since, err
	}
	return claimed, next, nil
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

func (l *Ledger) claim(ctx context.Context, what, statement string, limit int, args pgx.StrictNamedArgs,
	each func(dueAt time.Time, c Claimed)) ([]Claimed, error) {
	if limit < 1 || limit > MaxBatch {
		return nil, fmt.Errorf("%s: %d messages are not allowed; allowed values: 1 to %d", what, limit, MaxBatch)
	}
	args["lease"], args["relay"], args["seconds"], args["keys"], args["media"] = newLeaseID(), l.relay, l.leaseTime.Seconds(), limit, l.media
	var claimed []Claimed
	var b pgx.Batch
	b.Queue(statement, args).Query(func(rows pgx.Rows) error {
		var c Claimed
		var dueAt time.Time
		_, err := pgx.ForEachRow(rows,
			[]any{&c.JobID, &c.ChannelID, &c.LeaseID, &c.Step, &c.Attempts, &c.Crashes, &c.Reason, &c.Ambiguous, &dueAt, &c.tid}, func() error {
				if claimed == nil {
					claimed = make([]Claimed, 0, limit)
				}
				claimed = append(claimed, c)
				each(dueAt, c)
				return nil
			})
		return err
	})
	if err := l.atOnce(ctx, false, &b); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return claimed, nil
}
